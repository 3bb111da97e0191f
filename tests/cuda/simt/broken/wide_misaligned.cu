// BROKEN: a load of 16 bytes starts 4 bytes beyond a multiple of 16. Found in a checked module as a misaligned
// address. In a plain one the processor may or may not notice.
#include "ptx.cuh"

extern "C" __global__ void __launch_bounds__(64) wide(float* out, const float* in) {
    const int i = (blockIdx.x * 64 + threadIdx.x) * 4;
    float4 four = *reinterpret_cast<const float4*>(in + i + 1);
    four.x += four.x;
    four.y += four.y;
    four.z += four.z;
    four.w += four.w;
    *reinterpret_cast<float4*>(out + i) = four;
}
