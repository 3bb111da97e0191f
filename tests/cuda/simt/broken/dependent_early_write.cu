// BROKEN: the kernel writes before it waits, while the kernel before it may still read that memory. Found in a
// checked module as a race.
#include "ptx.cuh"

extern "C" __global__ void __launch_bounds__(64) dependent(float* out, const float* earlier, const float* weights) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    const float weight = weights[i];
    out[i] = 0.0f;
    ptx::dependents_wait();
    ptx::dependents_launch();
    out[i] = earlier[i] * weight;
}
