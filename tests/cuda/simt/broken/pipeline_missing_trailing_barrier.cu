// BROKEN: no barrier ends the loop, so the next copy may overwrite what others still read. Found in a checked module
// as a race, in every mode. A plain module shows wrong numbers only if copies land early.
#include "ptx.cuh"

constexpr int THREADS = 64;
constexpr int TILE = THREADS * 4;

extern "C" __global__ void __launch_bounds__(THREADS) pipeline(float* out, const float* in, int tiles) {
    __shared__ __align__(16) float buffers[2][TILE];
    const int own = threadIdx.x * 4;
    const int other = (threadIdx.x ^ 33) * 4;
    ptx::copy_async16(ptx::shared(&buffers[0][own]), in + own, true);
    ptx::copy_commit();
    float sum = 0.0f;
    for (int tile = 0; tile < tiles; tile++) {
        const bool more = tile + 1 < tiles;
        const float* next = in + (more ? (tile + 1) * TILE : 0) + own;
        ptx::copy_async16(ptx::shared(&buffers[(tile + 1) % 2][own]), next, more);
        ptx::copy_commit();
        ptx::copy_wait<1>();
        __syncthreads();
        for (int i = 0; i < 4; i++) sum += buffers[tile % 2][other + i];
    }
    ptx::copy_wait<0>();
    out[threadIdx.x] = sum;
}
