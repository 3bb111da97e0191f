// What a card does at best, for measurements: it reads memory, multiplies on the tensor cores, and begins kernels.
#include "device.cuh"

constexpr int THREADS = 256;
// Accesses of 16 bytes that a thread has under way.
constexpr int DEPTH = 8;
constexpr u64 ACCESS = 16;
// Sums of products that a warp works on in turn: enough that none waits for the one before it.
constexpr int SUMS = 8;

// Adds up, without carry, the words of pieces that begin `stride` bytes apart. A block reads a piece, then the next
// one that no other block has.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    read_pieces(const u8* from, u64 pieces, u64 piece_bytes, u64 stride, u32* total) {
    u32 sum = 0;
    for (u64 piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const u8* own = from + piece * stride;
        for (u64 first = threadIdx.x * ACCESS; first < piece_bytes; first += THREADS * DEPTH * ACCESS) {
            uint4 parts[DEPTH];
#pragma unroll
            for (int i = 0; i < DEPTH; i++) {
                u64 at = first + i * THREADS * ACCESS;
                parts[i] = at < piece_bytes ? ptx::load_streamed(own + at) : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int i = 0; i < DEPTH; i++) sum += parts[i].x + parts[i].y + parts[i].z + parts[i].w;
        }
    }
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    if (threadIdx.x % WARP == 0) atomicAdd(total, sum);
}

// Two numbers in bf16 of a lane: eighths from -1 to 7/8, so that sums of their products are exact.
__device__ __forceinline__ u32 numbers_of(u32 lane, u32 part) {
    u32 bits = (lane * 7 + part * 13 + 5) * 2654435761u;
    float first = (float)(int)(bits >> 28) * 0.125f - 1.0f, second = (float)(int)(bits >> 24 & 15) * 0.125f - 1.0f;
    return ptx::round_bf16x2(first, second);
}

// Multiplies the same two matrices of each warp so many times into each of its sums, and writes a sum of each thread.
extern "C" __global__ void __launch_bounds__(THREADS, 2) multiply(u32 rounds, float* out) {
    u32 lane = threadIdx.x % WARP;
    u32 a0 = numbers_of(lane, 0), a1 = numbers_of(lane, 1), a2 = numbers_of(lane, 2), a3 = numbers_of(lane, 3);
    u32 b0 = numbers_of(lane, 4), b1 = numbers_of(lane, 5);
    float sums[SUMS][4] = {};
    for (u32 round = 0; round < rounds; round++) {
#pragma unroll
        for (int i = 0; i < SUMS; i++) ptx::multiply_bf16(sums[i], a0, a1, a2, a3, b0, b1);
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < SUMS; i++) sum += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}

// Counts that it ran, behind all kernels before it.
extern "C" __global__ void __launch_bounds__(WARP, 1) count_up(u32* count) {
    ptx::dependents_wait();
    ptx::dependents_launch();
    if (threadIdx.x == 0) *count += 1;
}
