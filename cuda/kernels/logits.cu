// Scales and caps logits, in the families that do.
#include "device.cuh"

constexpr int THREADS = 256;

// x = x * scale, then cap * tanh(x / cap), unless the cap is zero.
extern "C" __global__ void __launch_bounds__(THREADS) cap_logits(float* logits, u64 count, float scale, float cap) {
    ptx::dependents_wait();
    ptx::dependents_launch();
    u64 step = (u64)gridDim.x * THREADS;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        float x = logits[i] * scale;
        logits[i] = cap == 0.0f ? x : cap * tanhf(x / cap);
    }
}
