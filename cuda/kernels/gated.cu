// Activated gates times ups. A thread takes 8 of each.
#include "activation.cuh"

// Which activation; the host has the same numbers.
constexpr u32 GELU_TANH = 1;

constexpr int THREADS = 256;
// Numbers of a 16-byte access; also a group of interleaved gates, which its ups follow.
constexpr int STEP = 8;

__device__ __forceinline__ float activate(u32 activation, float gate, float up) {
    return (activation == GELU_TANH ? gelu_tanh(gate) : silu(gate)) * up;
}

extern "C" __global__ void __launch_bounds__(THREADS, 6)
    gated(const bf16* gates_ups, bf16* out, u32* broken, u32 rows, u32 width, u32 activation, u32 interleaved) {
    ptx::dependents_wait();
    ptx::dependents_launch();
    u32 steps = width / STEP;
    u32 item = blockIdx.x * THREADS + threadIdx.x;
    u32 row = item / steps;
    u32 step = item % steps;
    if (row >= rows) return;

    const bf16* gates = gates_ups + (size_t)row * 2 * width + step * (interleaved ? 2 * STEP : STEP);
    uint4 gate = *(const uint4*)gates;
    uint4 up = *(const uint4*)(gates + (interleaved ? STEP : width));
    u32* to = (u32*)&gate;
    const u32* ups = (const u32*)&up;
    bool is_row_broken = false;
#pragma unroll
    for (int pair = 0; pair < STEP / 2; pair++) {
        float first = activate(activation, low(to[pair]), low(ups[pair]));
        float second = activate(activation, high(to[pair]), high(ups[pair]));
        to[pair] = ptx::round_bf16x2(first, second);
        // No broken gate or up gives a sound product, so that the products tell of them too.
        is_row_broken |= is_broken(low(to[pair])) | is_broken(high(to[pair]));
    }
    if (is_row_broken) tell_broken(broken, row);
    *(uint4*)(out + (size_t)row * width + step * STEP) = gate;
}
