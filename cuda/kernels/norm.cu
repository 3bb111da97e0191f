// RMS norm of rows, after adding to the residual stream. A block norms a row, which its threads keep in registers where it
// fits: then each number is read once.
#include "device.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / WARP;
// Numbers of a 16-byte access.
constexpr int STEP = 8;

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

// The residual stream is rounded before it is normed, so that a row that is read back has the same norm.
extern "C" __global__ void __launch_bounds__(THREADS)
    add_norm(bf16* residual, const bf16* add, const float* weight, bf16* out, u32* broken, u32 width, float eps,
             float residual_scale) {
    __shared__ float partial[WARPS];
    size_t row = (size_t)blockIdx.x * width;
    ptx::dependents_wait();
    ptx::dependents_launch();

    float sum = 0.0f;
    bool is_row_broken = false;
    for (u32 i = threadIdx.x * STEP; i < width; i += THREADS * STEP) {
        uint4 r = *(const uint4*)(residual + row + i);
        if (add != nullptr) {
            uint4 a = *(const uint4*)(add + row + i);
            u32* to = (u32*)&r;
            const u32* more = (const u32*)&a;
#pragma unroll
            for (int pair = 0; pair < STEP / 2; pair++) {
                float first = fmaf(low(more[pair]), residual_scale, low(to[pair]));
                float second = fmaf(high(more[pair]), residual_scale, high(to[pair]));
                to[pair] = ptx::round_bf16x2(first, second);
            }
            *(uint4*)(residual + row + i) = r;
        }
        const u32* pairs = (const u32*)&r;
#pragma unroll
        for (int pair = 0; pair < STEP / 2; pair++) {
            float first = low(pairs[pair]), second = high(pairs[pair]);
            is_row_broken |= is_broken(first) | is_broken(second);
            sum = fmaf(first, first, sum);
            sum = fmaf(second, second, sum);
        }
    }
    if (is_row_broken) broken[blockIdx.x] = 1;
    float scale = 1.0f;
    if (weight != nullptr) scale = rsqrtf(sum_block(sum, partial) / (float)width + eps);

    for (u32 i = threadIdx.x * STEP; i < width; i += THREADS * STEP) {
        uint4 r = *(const uint4*)(residual + row + i);
        u32* pairs = (u32*)&r;
        if (weight != nullptr) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float4 w = *(const float4*)(weight + i + 4 * half);
                u32* two = pairs + 2 * half;
                two[0] = ptx::round_bf16x2(low(two[0]) * scale * w.x, high(two[0]) * scale * w.y);
                two[1] = ptx::round_bf16x2(low(two[1]) * scale * w.z, high(two[1]) * scale * w.w);
            }
        }
        *(uint4*)(out + row + i) = r;
    }
}
