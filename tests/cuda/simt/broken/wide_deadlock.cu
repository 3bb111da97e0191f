// BROKEN: one warp waits at a numbered barrier for the other, which never comes. Found in every module, as a
// deadlock.
#include "ptx.cuh"

extern "C" __global__ void __launch_bounds__(64) wide(float* out, const float* in) {
    const int i = (blockIdx.x * 64 + threadIdx.x) * 4;
    if (threadIdx.x < 32) ptx::barrier_sync(1, 64);
    float4 four = *reinterpret_cast<const float4*>(in + i);
    four.x += four.x;
    four.y += four.y;
    four.z += four.z;
    four.w += four.w;
    *reinterpret_cast<float4*>(out + i) = four;
}
