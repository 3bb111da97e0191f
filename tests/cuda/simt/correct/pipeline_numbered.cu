// As pipeline.cu, in blocks of two warps that hand tiles over by numbered barriers: warp 1 copies, and warp 0 adds up.
// The order of memory that these barriers give must be seen by the checks.
#include "ptx.cuh"

constexpr int TILE = 256;
constexpr unsigned FILLED = 1, EMPTY = 2;

extern "C" __global__ void __launch_bounds__(64) pipeline(float* out, const float* in, int tiles) {
    __shared__ __align__(16) float buffer[TILE];
    const int lane = threadIdx.x % 32;
    const bool copies = threadIdx.x >= 32;
    float low = 0.0f, high = 0.0f;
    for (int tile = 0; tile < tiles; tile++) {
        if (copies) {
            for (int part = 0; part < 2; part++) {
                const int at = (part * 32 + lane) * 4;
                ptx::copy_async16(ptx::shared(&buffer[at]), in + tile * TILE + at, true);
            }
            ptx::copy_commit();
            ptx::copy_wait<0>();
        }
        ptx::barrier_sync(FILLED, 64);
        for (int i = 0; i < 4 && !copies; i++) {
            low += buffer[(lane ^ 33) * 4 + i];
            high += buffer[((lane + 32) ^ 33) * 4 + i];
        }
        ptx::barrier_sync(EMPTY, 64);
    }
    if (!copies) {
        out[lane] = low;
        out[lane + 32] = high;
    }
}
