// Attention of single rows, each the last one of its sequence: the group of query heads of a KV head is the operand.
//
// An item of work is a piece of an entry's context and a KV head. Blocks take items in turn, with keys and values some
// steps ahead. Each warp scores 8 of a step's 32 tokens, and then sums up its own part of the dims over all of them.
// An entry of several pieces leaves one partial result for each, and the block that arrives last folds them in order.
#include "attention.cuh"

constexpr int WARPS = 4;
constexpr int THREADS = WARPS * WARP;

// Steps of keys and values in shared memory. Up to 128 dims three blocks share a multiprocessor of an H100, and have
// some 48 KB each under way; wider heads have 32 KB, since small cards have 99 KB of shared memory in all.
constexpr int STAGES = DIM <= 64 ? 6 : DIM <= 96 ? 5 : DIM <= 128 ? 4 : 2;
constexpr int BLOCKS = DIM <= 128 ? 3 : 2;
constexpr int STAGE_BYTES = 2 * STEP_BYTES;

// Numbers from row to row of the scores; eight of them more than tokens put rows into different banks.
constexpr int SCORE_PITCH = STEP + 8;

// Tiles of 8 dims that a warp sums up.
constexpr int OWN_TILES = (DIM_TILES + WARPS - 1) / WARPS;

// Chunks of 16 dims that a score is a chain of.
constexpr int DIM_STEPS = DIM / 16;

struct Decode {
    const bf16* queries;
    bf16* out;
    u32 query_stride;
    u32 out_stride;
    u32 kv_heads;
    // Query heads of a KV head.
    u32 group;
    Cache cache;
    Scoring scoring;
    const u32* rows;
    const u32* slots;
    const u32* lengths;
    // Pieces before each entry, and behind the last one all of them.
    const u32* pieces;
    const u32* count;
    // Sums, `[piece][KV head][group][DIM]`, and each one's largest score and mass, `[piece][KV head][group]`.
    float* partials;
    float2* masses;
    // Arrivals, `[entry][KV head]`, zero between launches.
    u32* tickets;
};

struct Item {
    u32 entry;
    u32 head;
    // Its place in the list of all pieces.
    u32 piece;
    // Pieces before those of the entry, and those of the entry.
    u32 piece_first;
    u32 piece_count;
    // Visible positions: from `begin` to before `end`.
    u32 begin;
    u32 end;
};

// A warp's part of an item: rows g and g + 8 of HALVES x 8 query heads, and the dims of its tiles.
template <int HALVES>
struct Part {
    u32 queries[DIM_STEPS][2 * HALVES];
    float sums[OWN_TILES][4];
    float top[HALVES];
    float mass[HALVES];
};

__device__ __forceinline__ u32 lane_of() { return threadIdx.x % WARP; }
__device__ __forceinline__ u32 warp_of() { return threadIdx.x / WARP; }

// The tile of dims that a warp has at a place, if there are as many.
__device__ __forceinline__ u32 tile_of(int place) { return warp_of() * OWN_TILES + place; }
__device__ __forceinline__ bool is_tile(int place) { return DIM_TILES % WARPS == 0 || tile_of(place) < DIM_TILES; }

// The last entry that begins at a piece or before it. A warp looks at 32 places at once.
__device__ __forceinline__ u32 find_entry(const u32* pieces, u32 count, u32 piece) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        u32 stride = (high - low + WARP - 1) / WARP;
        u32 at = low + lane_of() * stride;
        u32 hits = __popc(__ballot_sync(ALL_LANES, at < high && pieces[at] <= piece));
        low += (hits - 1) * stride;
        high = min(low + stride, high);
    }
    return low;
}

__device__ __forceinline__ Item item_of(const Decode& call, u32 count, u32 number) {
    Item item;
    item.head = number % call.kv_heads;
    item.piece = number / call.kv_heads;
    item.entry = find_entry(call.pieces, count, item.piece);
    item.piece_first = call.pieces[item.entry];
    item.piece_count = call.pieces[item.entry + 1] - item.piece_first;
    u32 length = call.lengths[item.entry];
    u32 first = first_visible(length, call.scoring.window);
    u32 piece = first / PIECE + (item.piece - item.piece_first);
    item.begin = max(first, piece * PIECE);
    item.end = min(length, (piece + 1) * PIECE);
    return item;
}

// Where row `row` of the group lies in a buffer of query heads.
__device__ __forceinline__ u64 head_offset(const Decode& call, const Item& item, u32 stride, u32 row) {
    return (u64)call.rows[item.entry] * stride + (item.head * call.group + row) * DIM;
}

// Rows beyond the group repeat its last one, and are not written.
template <int HALVES>
__device__ __forceinline__ void begin_part(Part<HALVES>& part, const Decode& call, const Item& item) {
    u32 row = lane_of() / 4, pair = lane_of() % 4;
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        u32 own = min(row + half * 8, call.group - 1);
        const bf16* query = call.queries + head_offset(call, item, call.query_stride, own) + pair * 2;
#pragma unroll
        for (int i = 0; i < DIM_STEPS; i++) {
            part.queries[i][half] = *(const u32*)(query + i * 16);
            part.queries[i][HALVES + half] = *(const u32*)(query + i * 16 + 8);
        }
        part.top[half] = -infinity();
        part.mass[half] = 0.0f;
    }
#pragma unroll
    for (int tile = 0; tile < OWN_TILES; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++) part.sums[tile][i] = 0.0f;
}

// Adds the product of rows and 8 columns over 16 dims or tokens; with one half, rows 8 to 15 are zeros.
template <int HALVES>
__device__ __forceinline__ void multiply(float (&sums)[4], const u32 (&rows)[2 * HALVES], u32 first, u32 second) {
    if (HALVES == 1) {
        ptx::multiply_bf16(sums, rows[0], 0, rows[1], 0, first, second);
    } else {
        ptx::multiply_bf16(sums, rows[0], rows[1], rows[2 * HALVES - 2], rows[2 * HALVES - 1], first, second);
    }
}

// Scores the 8 tokens of this warp into shared memory; those that the row does not see are masked.
template <int HALVES>
__device__ __forceinline__ void score_tokens(const Part<HALVES>& part, ptx::shared_t keys, float* scores, u32 step,
                                             const Item& item, const Scoring& scoring) {
    u32 lane = lane_of(), own = warp_of() * 8;
    ptx::shared_t key = keys + (own + lane % 8) * PITCH + lane / 8 * CHUNK;
    float dots[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i + 1 < DIM_STEPS; i += 2) {
        u32 b[4];
        ptx::load_matrix_x4(b, key + i * 2 * CHUNK);
        multiply<HALVES>(dots, part.queries[i], b[0], b[1]);
        multiply<HALVES>(dots, part.queries[i + 1], b[2], b[3]);
    }
    if (DIM_STEPS % 2 != 0) {
        u32 b[2];
        ptx::load_matrix_x2(b, key + (DIM_STEPS - 1) * 2 * CHUNK);
        multiply<HALVES>(dots, part.queries[DIM_STEPS - 1], b[0], b[1]);
    }
    score<2 * HALVES>(dots, scoring);
    u32 token = own + lane % 4 * 2;
    bool sees_first = step + token >= item.begin && step + token < item.end;
    bool sees_second = step + token + 1 >= item.begin && step + token + 1 < item.end;
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        float first = sees_first ? dots[2 * half] : -infinity();
        float second = sees_second ? dots[2 * half + 1] : -infinity();
        *(float2*)(scores + (lane / 4 + half * 8) * SCORE_PITCH + token) = make_float2(first, second);
    }
}

// Turns a row's scores into weights: the four pairs of a lane, rounded for the tensor cores, with its mass and largest
// score moved on. Returns what the sums so far shrink by.
__device__ __forceinline__ float weigh(u32 (&weights)[4], float& top, float& mass, const float* scores) {
    float2 pairs[4];
    float next = top;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        pairs[i] = *(const float2*)(scores + i * 8);
        next = fmaxf(next, fmaxf(pairs[i].x, pairs[i].y));
    }
    next = max_lanes<4>(next);
    float base = base_of(next), shrink = ptx::exp2_approx(top - base);
    top = next;
    mass *= shrink;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float first = ptx::exp2_approx(pairs[i].x - base), second = ptx::exp2_approx(pairs[i].y - base);
        mass += first + second;
        weights[i] = ptx::round_bf16x2(first, second);
    }
    return shrink;
}

// Adds a step's values, weighed, to the sums of this warp's dims.
template <int HALVES>
__device__ __forceinline__ void sum_values(Part<HALVES>& part, ptx::shared_t values, const float* scores) {
    u32 lane = lane_of();
    u32 weights[HALVES][4];
    float shrink[2] = {1.0f, 1.0f};
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        const float* own = scores + (lane / 4 + half * 8) * SCORE_PITCH + lane % 4 * 2;
        shrink[half] = weigh(weights[half], part.top[half], part.mass[half], own);
    }
    u32 tokens[2][2 * HALVES];
#pragma unroll
    for (int half = 0; half < HALVES; half++)
#pragma unroll
        for (int i = 0; i < 4; i++) tokens[i / 2][i % 2 * HALVES + half] = weights[half][i];
#pragma unroll
    for (int tile = 0; tile < OWN_TILES; tile++) {
        if (!is_tile(tile)) break;
        u32 b[4];
        ptx::load_matrix_x4_transposed(b, values + lane * PITCH + tile_of(tile) * CHUNK);
#pragma unroll
        for (int i = 0; i < 2 * HALVES; i++) part.sums[tile][i] *= shrink[i / 2];
        multiply<HALVES>(part.sums[tile], tokens[0], b[0], b[1]);
        multiply<HALVES>(part.sums[tile], tokens[1], b[2], b[3]);
    }
}

// Walks a piece, with copies some steps ahead. A step's stage is free again when all warps have come to the next step.
template <int HALVES>
__device__ __forceinline__ void walk(Part<HALVES>& part, const Decode& call, const Item& item, char* stages,
                                     float* scores) {
    Context context = context_of(call.cache, call.slots[item.entry], item.head);
    u32 first = item.begin / STEP * STEP, steps = (item.end - first + STEP - 1) / STEP;
    ptx::shared_t shared = ptx::shared(stages);
    auto copy = [&](u32 i) {
        ptx::shared_t stage = shared + i % STAGES * STAGE_BYTES;
        if (i < steps)
            copy_step<THREADS, true, true>(stage, stage + STEP_BYTES, context, first + i * STEP, item.begin, item.end);
        ptx::copy_commit();
    };
    for (u32 i = 0; i + 1 < STAGES; i++) copy(i);
    begin_part(part, call, item);
    for (u32 i = 0; i < steps; i++) {
        ptx::shared_t stage = shared + i % STAGES * STAGE_BYTES;
        ptx::copy_wait<STAGES - 2>();
        __syncthreads();
        copy(i + STAGES - 1);
        score_tokens(part, stage, scores, first + i * STEP, item, call.scoring);
        __syncthreads();
        sum_values(part, stage + STEP_BYTES, scores);
    }
#pragma unroll
    for (int half = 0; half < HALVES; half++) part.mass[half] = sum_lanes<4>(part.mass[half]);
}

template <int HALVES>
__device__ __forceinline__ void write_out(const Part<HALVES>& part, const Decode& call, const Item& item) {
    u32 row = lane_of() / 4, pair = lane_of() % 4;
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        u32 own = row + half * 8;
        if (own >= call.group) continue;
        float factor = closing(part.top[half], part.mass[half], call.scoring, item.head * call.group + own);
        bf16* out = call.out + head_offset(call, item, call.out_stride, own) + pair * 2;
#pragma unroll
        for (int tile = 0; tile < OWN_TILES; tile++) {
            if (!is_tile(tile)) break;
            const float* sums = part.sums[tile] + 2 * half;
            *(u32*)(out + tile_of(tile) * 8) = close(sums[0], sums[1], factor);
        }
    }
}

template <int HALVES>
__device__ __forceinline__ void write_partial(const Part<HALVES>& part, const Decode& call, const Item& item) {
    u32 row = lane_of() / 4, pair = lane_of() % 4;
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        u32 own = row + half * 8;
        if (own >= call.group) continue;
        u64 at = ((u64)item.piece * call.kv_heads + item.head) * call.group + own;
        if (pair == 0 && warp_of() == 0) call.masses[at] = make_float2(part.top[half], part.mass[half]);
        float* partial = call.partials + at * DIM + pair * 2;
#pragma unroll
        for (int tile = 0; tile < OWN_TILES; tile++) {
            if (!is_tile(tile)) break;
            const float* sums = part.sums[tile] + 2 * half;
            *(float2*)(partial + tile_of(tile) * 8) = make_float2(sums[0], sums[1]);
        }
    }
}

// Says that this block's piece is written, and returns whether those of all others are too. The last to arrive sets the
// ticket back for the next launch.
__device__ __forceinline__ bool arrive(u32* ticket, u32 expected) {
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(ticket, 1u) + 1 == expected;
        if (is_last) *ticket = 0;
    }
    __syncthreads();
    if (is_last) __threadfence();
    return is_last;
}

// Folds the pieces of an entry from left to right. Each thread has four dims of a query head.
__device__ __forceinline__ void merge(const Decode& call, const Item& item) {
    u64 pitch = (u64)call.kv_heads * call.group;
    for (u32 at = threadIdx.x * 4; at < call.group * DIM; at += THREADS * 4) {
        u32 row = at / DIM, dim = at % DIM;
        u64 place = item.piece_first * pitch + item.head * call.group + row;
        float top = -infinity(), mass = 0.0f;
        float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
        for (u32 i = 0; i < item.piece_count; i++, place += pitch) {
            float2 piece = __ldcg(call.masses + place);
            float4 own = __ldcg((const float4*)(call.partials + place * DIM + dim));
            Shares shares = fold(top, mass, piece.x, piece.y);
            sums.x = fold_sum(sums.x, own.x, shares);
            sums.y = fold_sum(sums.y, own.y, shares);
            sums.z = fold_sum(sums.z, own.z, shares);
            sums.w = fold_sum(sums.w, own.w, shares);
        }
        float factor = closing(top, mass, call.scoring, item.head * call.group + row);
        uint2 out = make_uint2(close(sums.x, sums.y, factor), close(sums.z, sums.w, factor));
        *(uint2*)(call.out + head_offset(call, item, call.out_stride, row) + dim) = out;
    }
}

template <int HALVES>
__device__ __forceinline__ void decode(const Decode& call) {
    DYNAMIC_SHARED(char, stages);
    float* scores = (float*)(stages + STAGES * STAGE_BYTES);
    ptx::dependents_wait();
    ptx::dependents_launch();
    u32 count = *call.count;
    u32 items = call.pieces[count] * call.kv_heads;
    for (u32 number = blockIdx.x; number < items; number += gridDim.x) {
        Item item = item_of(call, count, number);
        Part<HALVES> part;
        walk(part, call, item, stages, scores);
        if (item.piece_count == 1) {
            write_out(part, call, item);
        } else {
            write_partial(part, call, item);
            if (arrive(call.tickets + item.entry * call.kv_heads + item.head, item.piece_count)) merge(call, item);
        }
        // The next item's copies go where slower warps still read.
        __syncthreads();
    }
}

#define PARAMETERS                                                                                                     \
    const bf16 *queries, bf16 *out, u32 query_stride, u32 out_stride, u32 kv_heads, u32 group, const char *slice,      \
        const u32 *tables, u64 record_bytes, u32 blocks_max, u32 block_shift, float scale, float cap, float cap_slope, \
        u32 window, const float *sinks, const u32 *rows, const u32 *slots, const u32 *lengths, const u32 *pieces,      \
        const u32 *count, float *partials, float2 *masses, u32 *tickets
#define CALL                                                                                              \
    {queries, out, query_stride, out_stride, kv_heads, group, {slice, tables, record_bytes, blocks_max, block_shift}, \
     {scale, cap, cap_slope, window, sinks}, rows, slots, lengths, pieces, count, partials, masses, tickets}

// Groups of at most 8 query heads.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attention_decode(PARAMETERS) {
    decode<1>(CALL);
}

// Groups of at most 16.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attention_decode_wide(PARAMETERS) {
    decode<2>(CALL);
}
