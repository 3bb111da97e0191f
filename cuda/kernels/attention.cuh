// What the kernels of attention share: the exact order of a row's sums, and how tokens come to shared memory.
//
// A row has the same bits by decode and by prefill, in every chunk, and beside any other rows. For that its context is
// cut at absolute positions into pieces, and a piece is walked in steps. In a step each score is one chain over the
// dims; each lane of a quad adds up its own weights in the order of tokens; rounded weights go through the tensor cores
// in chunks of 16 tokens. At the end of a piece the quad adds up, and pieces are folded from left to right. Steps and
// pieces that a row sees nothing of change no bit of it.
//
// Who includes this defines DIM, the numbers of a head.
#pragma once

#include "device.cuh"

// Tokens of a piece and of a step.
constexpr u32 PIECE = 512;
constexpr u32 STEP = 32;

// Accesses of 16 bytes, and how many a row of a head takes.
constexpr int CHUNK = 16;
constexpr int CHUNKS = DIM / 8;

// Tiles of 8 dims, as the tensor cores take them.
constexpr int DIM_TILES = DIM / 8;

// Bytes from row to row in shared memory. The odd number of chunks puts eight rows into eight groups of banks.
constexpr int PITCH = (CHUNKS + 1) * CHUNK;
constexpr int STEP_BYTES = STEP * PITCH;

constexpr float LOG2_E = 1.4426950408889634f;

static_assert(DIM % 16 == 0, "the tensor cores take 16 dims at a time");

// How a product of a query and a key becomes a score, whose power of two is the weight.
struct Scoring {
    float scale;
    // A cap of zero is none.
    float cap;
    float cap_slope;
    // Positions that a row sees, itself included; 0: all before it.
    u32 window;
    // A score for each query head that takes a share and adds nothing; null: none.
    const float* sinks;
};

// Turns products of queries and keys into scores. A cap bends them by cap * tanh(score / cap), written with the one
// exponential that all kernels use.
template <int COUNT>
__device__ __forceinline__ void score(float* dots, const Scoring& scoring) {
    if (scoring.cap == 0.0f) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) dots[i] *= scoring.scale;
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        float power = ptx::exp2_approx(dots[i] * scoring.cap_slope);
        dots[i] = scoring.cap * (1.0f - __fdividef(2.0f, power + 1.0f));
    }
}

// The first position that a row sees; `length` is its position plus one.
__device__ __forceinline__ u32 first_visible(u32 length, u32 window) {
    return window != 0 && length > window ? length - window : 0;
}

// What scores are set against: the largest one, and zero as long as there is none.
__device__ __forceinline__ float base_of(float top) { return top == -infinity() ? 0.0f : top; }

// Shares of the sums so far and of a new piece in the sums over both.
struct Shares {
    float before;
    float piece;
};

// Adds a piece's largest score and mass to those of the pieces left of it.
__device__ __forceinline__ Shares fold(float& top, float& mass, float piece_top, float piece_mass) {
    float next = fmaxf(top, piece_top);
    float base = base_of(next);
    Shares shares = {ptx::exp2_approx(top - base), ptx::exp2_approx(piece_top - base)};
    top = next;
    mass = fmaf(piece_mass, shares.piece, mass * shares.before);
    return shares;
}

__device__ __forceinline__ float fold_sum(float sum, float piece_sum, Shares shares) {
    return fmaf(piece_sum, shares.piece, sum * shares.before);
}

// What makes a row's output of its sums; `head` is its query head.
__device__ __forceinline__ float closing(float top, float mass, const Scoring& scoring, u32 head) {
    if (scoring.sinks == nullptr) return 1.0f / mass;
    float sink = scoring.sinks[head] * LOG2_E;
    float next = fmaxf(top, sink);
    float share = ptx::exp2_approx(top - next);
    return share * (1.0f / fmaf(mass, share, ptx::exp2_approx(sink - next)));
}

// Two numbers of an output. A masked step may have turned a sum of -0 into +0: adding zero makes both +0.
__device__ __forceinline__ u32 close(float first, float second, float factor) {
    return ptx::round_bf16x2(first * factor + 0.0f, second * factor + 0.0f);
}

// Where the keys and values of a layer lie, of all sequences.
struct Cache {
    // The layer's slice in the record of block 0.
    const char* slice;
    // Block tables, `[slots][blocks_max]`.
    const u32* tables;
    u64 record_bytes;
    u32 blocks_max;
    // Tokens of a block are 1 << block_shift.
    u32 block_shift;
};

// Where those of one sequence and KV head lie.
struct Context {
    const char* head;
    const u32* table;
    u64 record_bytes;
    u32 block_shift;
    // Bytes from a key to its value.
    u32 value_offset;
};

__device__ __forceinline__ Context context_of(const Cache& cache, u32 slot, u32 head) {
    u32 value_offset = (DIM * 2) << cache.block_shift;
    return {cache.slice + (u64)head * 2 * value_offset, cache.tables + (u64)slot * cache.blocks_max, cache.record_bytes,
            cache.block_shift, value_offset};
}

// The address of one chunk of a token's key.
__device__ __forceinline__ const char* key_chunk(const Context& context, u32 token, u32 chunk) {
    u64 block = context.table[token >> context.block_shift];
    u32 within = token & ((1u << context.block_shift) - 1);
    return context.head + block * context.record_bytes + (within * DIM * 2 + chunk * CHUNK);
}

// Begins to copy a step's keys, its values, or both, of the tokens from `begin` to before `end`. The others become
// zeros: they may never have been written, and zero weights would not hide what is no number.
template <int THREADS, bool KEYS, bool VALUES>
__device__ __forceinline__ void copy_step(ptx::shared_t keys, ptx::shared_t values, const Context& context, u32 step,
                                          u32 begin, u32 end) {
#pragma unroll
    for (int i = 0; i < (STEP * CHUNKS + THREADS - 1) / THREADS; i++) {
        u32 at = i * THREADS + threadIdx.x;
        if (STEP * CHUNKS % THREADS != 0 && at >= STEP * CHUNKS) break;
        u32 row = at / CHUNKS, chunk = at % CHUNKS, token = step + row;
        bool wanted = token >= begin && token < end;
        const char* from = wanted ? key_chunk(context, token, chunk) : context.head;
        u32 to = row * PITCH + chunk * CHUNK;
        if (KEYS) ptx::copy_async16(keys + to, from, wanted);
        if (VALUES) ptx::copy_async16(values + to, from + context.value_offset, wanted);
    }
}
