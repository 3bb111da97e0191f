// BROKEN: the kernel reads what the one before it writes, and waits only then. Found in every module: poison gives
// wrong numbers in a plain one, and a checked one names the read.
#include "ptx.cuh"

extern "C" __global__ void __launch_bounds__(64) dependent(float* out, const float* earlier, const float* weights) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    const float weight = weights[i];
    const float number = earlier[i];
    ptx::dependents_wait();
    ptx::dependents_launch();
    out[i] = number * weight;
}
