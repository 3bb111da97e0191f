// Decode attention over pages of 16 tokens, one query head: one warp a page at a time, pages copied by cp.async, the
// four warps' results merged in shared memory. Head of 64 numbers in f32.
#include "ptx.cuh"

constexpr int HEAD = 64, PAGE = 16, WARPS = 4;

struct Part {
    float maximum, sum;
    float values[HEAD];
};

// Returns the sum over the lanes of a warp.
__device__ inline float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    attention(float* out, const float* query, const float* keys, const float* values, const int* table,
              const int* lengths, int pages_per_sequence) {
    __shared__ Part parts[WARPS];
    DYNAMIC_SHARED(float, staging);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, length = lengths[blockIdx.x];
    float* key_page = staging + warp * 2 * PAGE * HEAD;
    float* value_page = key_page + PAGE * HEAD;
    const float2 q = *reinterpret_cast<const float2*>(&query[blockIdx.x * HEAD + lane * 2]);
    float maximum = -1e30f, sum = 0.0f, acc0 = 0.0f, acc1 = 0.0f;
    for (int page = warp; page * PAGE < length; page += WARPS) {
        const size_t base = static_cast<size_t>(table[blockIdx.x * pages_per_sequence + page]) * PAGE * HEAD;
        const int tokens = min(PAGE, length - page * PAGE);
        for (int chunk = lane; chunk < PAGE * HEAD / 4; chunk += 32) {
            const bool wanted = chunk * 4 / HEAD < tokens;
            ptx::copy_async16(ptx::shared(key_page + chunk * 4), keys + base + chunk * 4, wanted);
            ptx::copy_async16(ptx::shared(value_page + chunk * 4), values + base + chunk * 4, wanted);
        }
        ptx::copy_commit();
        ptx::copy_wait<0>();
        __syncwarp();
        for (int token = 0; token < tokens; token++) {
            const float* k = key_page + token * HEAD + lane * 2;
            const float* v = value_page + token * HEAD + lane * 2;
            const float score = warp_sum(q.x * k[0] + q.y * k[1]);
            const float higher = fmaxf(maximum, score);
            const float keep = __expf(maximum - higher), weight = __expf(score - higher);
            sum = sum * keep + weight;
            acc0 = acc0 * keep + weight * v[0];
            acc1 = acc1 * keep + weight * v[1];
            maximum = higher;
        }
        __syncwarp();
    }
    Part& part = parts[warp];
    part.values[lane * 2] = acc0;
    part.values[lane * 2 + 1] = acc1;
    if (lane == 0) {
        part.maximum = maximum;
        part.sum = sum;
    }
    __syncthreads();
    if (threadIdx.x >= HEAD) return;
    float highest = -1e30f, weights = 0.0f, result = 0.0f;
    for (const Part& p : parts) highest = fmaxf(highest, p.maximum);
    for (const Part& p : parts) {
        const float weight = __expf(p.maximum - highest);
        weights += p.sum * weight;
        result += p.values[threadIdx.x] * weight;
    }
    out[blockIdx.x * HEAD + threadIdx.x] = result / weights;
}
