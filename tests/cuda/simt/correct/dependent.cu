// A dependent launch: loads weights, then waits for the kernels before it, then reads what they wrote.
#include "ptx.cuh"

extern "C" __global__ void __launch_bounds__(64) dependent(float* out, const float* earlier, const float* weights) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    const float weight = weights[i];
    ptx::dependents_wait();
    ptx::dependents_launch();
    out[i] = earlier[i] * weight;
}
