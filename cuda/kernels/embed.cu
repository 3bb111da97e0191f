// Rows of the embedding for the tokens of a step. A warp takes a part of a row.
#include "device.cuh"

constexpr int THREADS = 128;
// Numbers of a 16-byte access, and those that a warp has.
constexpr int STEP = 8;
constexpr int PART = WARP * STEP;

// A token below zero is the sample `-1 - token` of the step before, which only the device knows yet. What is no token
// of the vocabulary, as where nothing could be sampled, becomes a row of zeros, and is told.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
    embed(const bf16* table, const int* tokens, const u32* sampled, bf16* out, u32* broken, u32 rows, u32 width,
          u32 vocab, float scale) {
    ptx::dependents_wait();
    ptx::dependents_launch();
    u32 parts = (width + PART - 1) / PART;
    u32 item = (blockIdx.x * THREADS + threadIdx.x) / WARP;
    u32 row = item / parts;
    u32 at = item % parts * PART + threadIdx.x % WARP * STEP;
    if (row >= rows || at >= width) return;

    int named = tokens[row];
    u32 token = named >= 0 ? (u32)named : sampled[-1 - named];
    uint4 numbers = make_uint4(0, 0, 0, 0);
    if (token < vocab) {
        numbers = ptx::load_cached(table + (size_t)token * width + at);
        u32* pairs = (u32*)&numbers;
#pragma unroll
        for (int pair = 0; pair < STEP / 2; pair++) {
            pairs[pair] = ptx::round_bf16x2(low(pairs[pair]) * scale, high(pairs[pair]) * scale);
        }
    } else if (at == 0) {
        tell_broken(broken, row);
    }
    *(uint4*)(out + (size_t)row * width + at) = numbers;
}
