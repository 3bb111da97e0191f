// Marks of the tokens that a sequence has seen, which penalties go by: a row of one word per token of the vocabulary.
//
// Grid of both kernels: blocks of a run, runs. All rows are cleared before any is added to, and what is added has no
// order.
#include "device.cuh"

constexpr int THREADS = 256;

// A mark: whether the token was seen at all, and how often in the output.
constexpr u32 SEEN = 1u << 31;

// Tokens of one sequence; `kernels/history.rs` has the same.
struct __align__(16) HistoryRun {
    u32* counts;
    const u32* tokens;
    u32 len;
    u32 prompt;
    u32 clears;
    u32 unused;
};
static_assert(sizeof(HistoryRun) == 32, "as in history.rs");

// Forgets all tokens of the rows that begin with this run.
extern "C" __global__ void __launch_bounds__(THREADS)
    history_clear(const HistoryRun* runs, const u32* count, u32 vocab) {
    ptx::dependents_wait();
    ptx::dependents_launch();
    u32 first = (blockIdx.x * THREADS + threadIdx.x) * 4, step = gridDim.x * THREADS * 4;
    for (u32 run = blockIdx.y; run < *count; run += gridDim.y) {
        if (!runs[run].clears) continue;
        u32* counts = runs[run].counts;
        for (u32 token = first; token < vocab; token += step) {
            if (token + 4 <= vocab) {
                *(uint4*)(counts + token) = uint4{0, 0, 0, 0};
            } else {
                for (u32 i = token; i < vocab; i++) counts[i] = 0;
            }
        }
    }
}

// Adds tokens: the first ones as those of the prompt, the others as output.
extern "C" __global__ void __launch_bounds__(THREADS)
    history_add(const HistoryRun* runs, const u32* count, u32 vocab) {
    ptx::dependents_wait();
    ptx::dependents_launch();
    for (u32 run = blockIdx.y; run < *count; run += gridDim.y) {
        const HistoryRun own = runs[run];
        for (u32 i = blockIdx.x * THREADS + threadIdx.x; i < own.len; i += gridDim.x * THREADS) {
            u32 token = own.tokens[i];
            if (token >= vocab) continue;
            atomicOr(&own.counts[token], SEEN);
            if (i >= own.prompt) atomicAdd(&own.counts[token], 1u);
        }
    }
}
