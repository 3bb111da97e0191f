// RMS norm of rows, after adding to the residual stream. A block norms a row, and keeps what fits of it in registers,
// so that most numbers are read once.
#include "device.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / WARP;
// Numbers of a 16-byte access.
constexpr int STEP = 8;
// Accesses of a thread that it keeps: those of rows up to 8192 numbers.
constexpr int KEPT = 4;

// Sums over the block in one order: a tree in each warp, then the warps in turn.
__device__ __forceinline__ float sum_block(float v, float* partial) {
    v = sum_lanes(v);
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = v;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++) sum += partial[warp];
    return sum;
}

// A row of the residual stream and what is added to it.
struct Row {
    const bf16* residual;
    const bf16* add;
    float scale;

    // 8 numbers of the sum, rounded: a row that is read back has the same norm.
    __device__ __forceinline__ uint4 read(u32 i) const {
        uint4 sum = *(const uint4*)(residual + i);
        if (add == nullptr) return sum;
        uint4 more = *(const uint4*)(add + i);
        u32* to = (u32*)&sum;
        const u32* from = (const u32*)&more;
#pragma unroll
        for (int pair = 0; pair < STEP / 2; pair++) {
            float first = fmaf(low(from[pair]), scale, low(to[pair]));
            float second = fmaf(high(from[pair]), scale, high(to[pair]));
            to[pair] = ptx::round_bf16x2(first, second);
        }
        return sum;
    }
};

// Adds the squares of 8 numbers to a sum; tells whether one is infinite or none.
__device__ __forceinline__ bool add_squares(const uint4& numbers, float& sum) {
    const u32* pairs = (const u32*)&numbers;
    bool broken = false;
#pragma unroll
    for (int pair = 0; pair < STEP / 2; pair++) {
        float first = low(pairs[pair]), second = high(pairs[pair]);
        broken |= is_broken(first) | is_broken(second);
        sum = fmaf(first, first, sum);
        sum = fmaf(second, second, sum);
    }
    return broken;
}

// Writes 8 numbers, normed if there are weights.
__device__ __forceinline__ void write_normed(bf16* out, uint4 numbers, const float* weight, u32 i, float scale) {
    u32* pairs = (u32*)&numbers;
    if (weight != nullptr) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float4 w = *(const float4*)(weight + i + 4 * half);
            u32* two = pairs + 2 * half;
            two[0] = ptx::round_bf16x2(low(two[0]) * scale * w.x, high(two[0]) * scale * w.y);
            two[1] = ptx::round_bf16x2(low(two[1]) * scale * w.z, high(two[1]) * scale * w.w);
        }
    }
    *(uint4*)(out + i) = numbers;
}

// Where `from` lists rows, row number `blockIdx.x` of the output is made of one of them, and the residual stream stays
// as it is.
extern "C" __global__ void __launch_bounds__(THREADS)
    add_norm(bf16* residual, const bf16* add, const float* weight, bf16* out, u32* broken, const u32* from, u32 width,
             float eps, float residual_scale) {
    __shared__ float partial[WARPS];
    ptx::dependents_wait();
    ptx::dependents_launch();

    u32 number = from == nullptr ? blockIdx.x : from[blockIdx.x];
    size_t at = (size_t)number * width;
    Row row{residual + at, add == nullptr ? nullptr : add + at, residual_scale};
    bool is_written = add != nullptr && from == nullptr;

    uint4 kept[KEPT];
    float sum = 0.0f;
    bool is_row_broken = false;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        u32 i = (k * THREADS + threadIdx.x) * STEP;
        if (i >= width) continue;
        kept[k] = row.read(i);
        is_row_broken |= add_squares(kept[k], sum);
    }
    for (u32 i = (KEPT * THREADS + threadIdx.x) * STEP; i < width; i += THREADS * STEP) {
        is_row_broken |= add_squares(row.read(i), sum);
    }
    if (is_row_broken) broken[number] = 1;
    float scale = 1.0f;
    if (weight != nullptr) scale = rsqrtf(sum_block(sum, partial) / (float)width + eps);

    bf16* to = out + (size_t)blockIdx.x * width;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        u32 i = (k * THREADS + threadIdx.x) * STEP;
        if (i >= width) continue;
        if (is_written) *(uint4*)(residual + at + i) = kept[k];
        write_normed(to, kept[k], weight, i, scale);
    }
    for (u32 i = (KEPT * THREADS + threadIdx.x) * STEP; i < width; i += THREADS * STEP) {
        uint4 numbers = row.read(i);
        if (is_written) *(uint4*)(residual + at + i) = numbers;
        write_normed(to, numbers, weight, i, scale);
    }
}
