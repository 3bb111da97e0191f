// Attention of runs of rows over their context in the cache, their own keys and values included.
//
// A tile is 128 rows, each a query and a head of the group of one KV head: neighbouring rows share a query. Blocks take
// tiles in turn. Values come while scores are made, and the next keys while values are summed up. Only steps that
// cross an edge of what a row of the tile sees look at masks. Sums over all pieces so far lie in a scratch of the
// block, where each thread reads what it wrote itself.
#include "attention.cuh"

// Rows of a tile, and what a warp has of them: two operands of 16 rows read a key from shared memory once for both.
constexpr int ROWS = 128;
constexpr int ROW_TILES = DIM <= 128 ? 2 : 1;
constexpr int WARPS = ROWS / 16 / ROW_TILES;
constexpr int THREADS = WARPS * WARP;
// Blocks of a multiprocessor: as many as the registers of their threads leave room for.
constexpr int BLOCKS = DIM <= 128 ? 2 : 1;
constexpr int QUERY_BYTES = ROWS * PITCH;

// Tiles of 8 tokens in a step.
constexpr int TOKEN_TILES = STEP / 8;

struct Prefill {
    const bf16* queries;
    bf16* out;
    u32 query_stride;
    u32 out_stride;
    u32 kv_heads;
    // Query heads of a KV head.
    u32 group;
    Cache cache;
    Scoring scoring;
    // First row in the buffers, slot, position of the first row, and queries of each tile.
    const uint4* tiles;
    const u32* count;
    // Sums over all pieces so far, `[block][ROW_TILES][DIM_TILES + 1][THREADS]`.
    float4* scratch;
};

struct Tile {
    u32 row;
    u32 slot;
    u32 position;
    u32 queries;
    u32 head;
    // Visible positions: from `begin` to before `end`, for one of its queries or other.
    u32 begin;
    u32 end;
};

// A warp's rows: row g and row g + 8 of each operand of 16.
struct Part {
    float sums[ROW_TILES][DIM_TILES][4];
    float top[ROW_TILES][2];
    float mass[ROW_TILES][2];
};

typedef float Dots[ROW_TILES][TOKEN_TILES][4];
typedef u32 Weights[ROW_TILES][TOKEN_TILES][2];

// Keeps the compiler from loading ahead more than the registers of a wide head hold: it loads for four tiles at a time.
__device__ __forceinline__ void bound_loads(int dim_tile) {
    if (DIM > 128 && dim_tile % 4 == 0) __syncwarp();
}

__device__ __forceinline__ u32 lane_of() { return threadIdx.x % WARP; }

// The row of a tile that a lane has in half `half` of operand `tile`.
__device__ __forceinline__ u32 row_of(int tile, int half) {
    return (threadIdx.x / WARP * ROW_TILES + tile) * 16 + half * 8 + lane_of() / 4;
}

__device__ __forceinline__ Tile tile_of(const Prefill& call, u32 item) {
    uint4 place = call.tiles[item / call.kv_heads];
    u32 begin = first_visible(place.z + 1, call.scoring.window);
    return {place.x, place.y, place.z, place.w, item % call.kv_heads, begin, place.z + place.w};
}

// Where a row of the tile lies in a buffer of query heads.
__device__ __forceinline__ u64 head_offset(const Prefill& call, const Tile& tile, u32 stride, u32 row) {
    return (u64)(tile.row + row / call.group) * stride + (tile.head * call.group + row % call.group) * DIM;
}

// Begins to copy the tile's queries; rows beyond the last query are zeros.
__device__ __forceinline__ void copy_queries(ptx::shared_t to, const Prefill& call, const Tile& tile) {
    u32 rows = tile.queries * call.group;
    for (u32 at = threadIdx.x; at < ROWS * CHUNKS; at += THREADS) {
        u32 row = at / CHUNKS, chunk = at % CHUNKS;
        bool wanted = row < rows;
        const bf16* from = call.queries + head_offset(call, tile, call.query_stride, wanted ? row : 0) + chunk * 8;
        ptx::copy_async16(to + row * PITCH + chunk * CHUNK, from, wanted);
    }
}

__device__ __forceinline__ void clear(Part& part) {
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; tile++) {
        part.top[tile][0] = part.top[tile][1] = -infinity();
        part.mass[tile][0] = part.mass[tile][1] = 0.0f;
#pragma unroll
        for (int dim = 0; dim < DIM_TILES; dim++)
#pragma unroll
            for (int i = 0; i < 4; i++) part.sums[tile][dim][i] = 0.0f;
    }
}

// Multiplies the warp's queries and a step's keys.
__device__ __forceinline__ void multiply_keys(Dots& dots, ptx::shared_t queries, ptx::shared_t keys) {
    u32 lane = lane_of();
    ptx::shared_t query = queries + (threadIdx.x / WARP * ROW_TILES * 16 + lane % 16) * PITCH + lane / 16 * CHUNK;
    ptx::shared_t key = keys + (lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * CHUNK;
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; tile++)
#pragma unroll
        for (int token = 0; token < TOKEN_TILES; token++)
#pragma unroll
            for (int i = 0; i < 4; i++) dots[tile][token][i] = 0.0f;
#pragma unroll
    for (int step = 0; step < DIM / 16; step++) {
        u32 a[ROW_TILES][4];
#pragma unroll
        for (int tile = 0; tile < ROW_TILES; tile++)
            ptx::load_matrix_x4(a[tile], query + tile * 16 * PITCH + step * 2 * CHUNK);
#pragma unroll
        for (int token = 0; token < TOKEN_TILES; token += 2) {
            u32 b[4];
            ptx::load_matrix_x4(b, key + token * 8 * PITCH + step * 2 * CHUNK);
#pragma unroll
            for (int tile = 0; tile < ROW_TILES; tile++) {
                const u32(&q)[4] = a[tile];
                ptx::multiply_bf16(dots[tile][token], q[0], q[1], q[2], q[3], b[0], b[1]);
                ptx::multiply_bf16(dots[tile][token + 1], q[0], q[1], q[2], q[3], b[2], b[3]);
            }
        }
    }
}

// Masks what rows do not see of a step that crosses an edge of it.
__device__ __forceinline__ void mask_tokens(Dots& scores, const Prefill& call, const Tile& tile, u32 step) {
#pragma unroll
    for (int row_tile = 0; row_tile < ROW_TILES; row_tile++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 length = tile.position + row_of(row_tile, half) / call.group + 1;
            u32 first = first_visible(length, call.scoring.window);
#pragma unroll
            for (int i = 0; i < 2 * TOKEN_TILES; i++) {
                u32 token = step + i / 2 * 8 + lane_of() % 4 * 2 + i % 2;
                if (token < first || token >= length) scores[row_tile][i / 2][half * 2 + i % 2] = -infinity();
            }
        }
}

// Turns products into scores; what a row does not see gets none.
__device__ __forceinline__ void score_tokens(Dots& dots, const Prefill& call, const Tile& tile, u32 step) {
    u32 window = call.scoring.window;
    score<ROW_TILES * TOKEN_TILES * 4>(&dots[0][0][0], call.scoring);
    bool is_edge = step + STEP > tile.position + 1 || (window != 0 && step + window < tile.end);
    if (is_edge) mask_tokens(dots, call, tile, step);
}

// Turns the scores of a row into weights, rounded for the tensor cores, and moves its mass and largest score on.
// Returns what the sums so far shrink by.
__device__ __forceinline__ float weigh(u32 (&weights)[TOKEN_TILES][2], Part& part, const Dots& scores, int tile,
                                       int half) {
    float& top = part.top[tile][half];
    float next = top;
#pragma unroll
    for (int token = 0; token < TOKEN_TILES; token++) {
        const float* pair = scores[tile][token] + half * 2;
        next = fmaxf(next, fmaxf(pair[0], pair[1]));
    }
    next = max_lanes<4>(next);
    float base = base_of(next), shrink = ptx::exp2_approx(top - base);
    top = next;
    float mass = part.mass[tile][half] * shrink;
#pragma unroll
    for (int token = 0; token < TOKEN_TILES; token++) {
        const float* pair = scores[tile][token] + half * 2;
        float first = ptx::exp2_approx(pair[0] - base), second = ptx::exp2_approx(pair[1] - base);
        mass += first + second;
        weights[token][half] = ptx::round_bf16x2(first, second);
    }
    part.mass[tile][half] = mass;
    return shrink;
}

// Weighs a step's tokens, and shrinks the sums where a warp's largest scores have grown: else the factor is one.
__device__ __forceinline__ void weigh_tokens(Weights& weights, Part& part, const Dots& scores) {
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; tile++) {
        float first = weigh(weights[tile], part, scores, tile, 0);
        float second = weigh(weights[tile], part, scores, tile, 1);
        if (!__any_sync(ALL_LANES, first != 1.0f || second != 1.0f)) continue;
#pragma unroll
        for (int dim = 0; dim < DIM_TILES; dim++) {
            float(&sums)[4] = part.sums[tile][dim];
            sums[0] *= first, sums[1] *= first, sums[2] *= second, sums[3] *= second;
        }
    }
}

// Adds a step's values, weighed.
__device__ __forceinline__ void sum_values(Part& part, const Weights& weights, ptx::shared_t values) {
    ptx::shared_t value = values + lane_of() * PITCH;
#pragma unroll
    for (int dim = 0; dim < DIM_TILES; dim++) {
        u32 b[4];
        bound_loads(dim);
        ptx::load_matrix_x4_transposed(b, value + dim * CHUNK);
#pragma unroll
        for (int tile = 0; tile < ROW_TILES; tile++) {
            const u32(&p)[TOKEN_TILES][2] = weights[tile];
            ptx::multiply_bf16(part.sums[tile][dim], p[0][0], p[0][1], p[1][0], p[1][1], b[0], b[1]);
            ptx::multiply_bf16(part.sums[tile][dim], p[2][0], p[2][1], p[3][0], p[3][1], b[2], b[3]);
        }
    }
}

// Folds a piece into the sums of those left of it. After the last piece, the sums are in `part`.
__device__ __forceinline__ void fold_piece(Part& part, float4* scratch, bool is_first, bool is_last) {
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; tile++) {
        float4* own = scratch + tile * (DIM_TILES + 1) * THREADS + threadIdx.x;
        float4* state = own + DIM_TILES * THREADS;
        float4 so_far = is_first ? make_float4(-infinity(), 0.0f, -infinity(), 0.0f) : *state;
        Shares first = fold(so_far.x, so_far.y, part.top[tile][0], sum_lanes<4>(part.mass[tile][0]));
        Shares second = fold(so_far.z, so_far.w, part.top[tile][1], sum_lanes<4>(part.mass[tile][1]));
        part.top[tile][0] = so_far.x, part.mass[tile][0] = so_far.y;
        part.top[tile][1] = so_far.z, part.mass[tile][1] = so_far.w;
        if (!is_last) *state = so_far;
#pragma unroll
        for (int dim = 0; dim < DIM_TILES; dim++) {
            float(&sums)[4] = part.sums[tile][dim];
            bound_loads(dim);
            float4 before = is_first ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : own[dim * THREADS];
            sums[0] = fold_sum(before.x, sums[0], first), sums[1] = fold_sum(before.y, sums[1], first);
            sums[2] = fold_sum(before.z, sums[2], second), sums[3] = fold_sum(before.w, sums[3], second);
            if (!is_last) own[dim * THREADS] = make_float4(sums[0], sums[1], sums[2], sums[3]);
        }
    }
}

__device__ __forceinline__ void write_out(const Part& part, const Prefill& call, const Tile& tile) {
#pragma unroll
    for (int row_tile = 0; row_tile < ROW_TILES; row_tile++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 row = row_of(row_tile, half);
            if (row >= tile.queries * call.group) continue;
            u32 head = tile.head * call.group + row % call.group;
            float factor = closing(part.top[row_tile][half], part.mass[row_tile][half], call.scoring, head);
            bf16* out = call.out + head_offset(call, tile, call.out_stride, row) + lane_of() % 4 * 2;
#pragma unroll
            for (int dim = 0; dim < DIM_TILES; dim++) {
                const float* sums = part.sums[row_tile][dim] + half * 2;
                *(u32*)(out + dim * 8) = close(sums[0], sums[1], factor);
            }
        }
}

// Walks the context of a tile. What the last tile left in shared memory has been read when its last values are summed
// up, so that copies may begin at once.
__device__ __forceinline__ void walk(const Prefill& call, const Tile& tile, ptx::shared_t queries, float4* scratch) {
    ptx::shared_t keys = queries + QUERY_BYTES, values = keys + STEP_BYTES;
    Context context = context_of(call.cache, tile.slot, tile.head);
    u32 step = tile.begin / STEP * STEP;
    copy_queries(queries, call, tile);
    copy_step<THREADS, true, false>(keys, values, context, step, tile.begin, tile.end);
    ptx::copy_commit();
    Part part;
    for (bool is_first = true; step < tile.end; is_first = false) {
        u32 end = min(tile.end, (step / PIECE + 1) * PIECE);
        clear(part);
        for (; step < end; step += STEP) {
            Dots dots;
            Weights weights;
            ptx::copy_wait<0>();
            __syncthreads();
            copy_step<THREADS, false, true>(keys, values, context, step, tile.begin, tile.end);
            ptx::copy_commit();
            multiply_keys(dots, queries, keys);
            score_tokens(dots, call, tile, step);
            weigh_tokens(weights, part, dots);
            ptx::copy_wait<0>();
            __syncthreads();
            if (step + STEP < tile.end)
                copy_step<THREADS, true, false>(keys, values, context, step + STEP, tile.begin, tile.end);
            ptx::copy_commit();
            sum_values(part, weights, values);
        }
        fold_piece(part, scratch, is_first, step >= tile.end);
    }
    write_out(part, call, tile);
}

// Tiles come longest first. Blocks take every other round of them backwards, which evens out their sums.
__device__ __forceinline__ void prefill(const Prefill& call) {
    DYNAMIC_SHARED(char, shared);
    ptx::dependents_wait();
    ptx::dependents_launch();
    float4* scratch = call.scratch + (size_t)blockIdx.x * ROW_TILES * (DIM_TILES + 1) * THREADS;
    u32 items = *call.count * call.kv_heads;
    for (u32 first = 0, round = 0; first < items; first += gridDim.x, round++) {
        u32 item = first + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
        if (item < items) walk(call, tile_of(call, item), ptx::shared(shared), scratch);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_prefill(const bf16* queries, bf16* out, u32 query_stride, u32 out_stride, u32 kv_heads, u32 group,
                      const char* slice, const u32* tables, u64 record_bytes, u32 blocks_max, u32 block_shift,
                      float scale, float cap, float cap_slope, u32 window, const float* sinks, const uint4* tiles,
                      const u32* count, float4* scratch) {
    prefill({queries, out, query_stride, out_stride, kv_heads, group,
             {slice, tables, record_bytes, blocks_max, block_shift}, {scale, cap, cap_slope, window, sinks}, tiles,
             count, scratch});
}
