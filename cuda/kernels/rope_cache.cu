// Queries, keys and values between their product and attention: norms of heads, rotary embedding, the paged cache. A
// group of lanes takes a head. A lane has two steps of 8 numbers of it: where it can, two that are turned together.
#include "device.cuh"

constexpr int THREADS = 128;
constexpr int WARPS = THREADS / WARP;
// Numbers of a 16-byte access.
constexpr int STEP = 8;
// The slot of a row that is there to fill up a batch.
constexpr u32 PADDING = 0xffffffffu;

// The operands of all rows; rope_cache.rs says what each is.
struct Operands {
    const bf16* heads;
    bf16* queries;
    u8* slices;
    const u32* tables;
    const u32* positions;
    const u32* slots;
    const u32* ends;
    const float* rotary;
    const float* growth;
    const float* query_weight;
    const float* key_weight;
    u32* broken;
    u64 record_bytes;
    u32 rows;
    u32 query_heads;
    u32 kv_heads;
    u32 dim;
    u32 rotated;
    u32 block_tokens;
    u32 blocks_max;
    float eps;

    __device__ u32 heads_of_row() const { return query_heads + 2 * kv_heads; }
};

// Where the two steps of a lane begin in the head; those at `dim` or beyond are none. Numbers i and i + rotated / 2 are
// turned together. Where these halves are whole steps, the first lanes have one of each half.
struct Place {
    u32 first;
    u32 second;
    bool is_pair;

    __device__ Place(u32 lane, u32 rotated) {
        u32 pairs = rotated % (2 * STEP) == 0 ? rotated / (2 * STEP) : 0;
        is_pair = lane < pairs;
        first = (is_pair ? lane : 2 * lane) * STEP;
        second = first + (is_pair ? pairs : 1) * STEP;
    }
};

// What a lane has of a head.
struct Part {
    float first[STEP];
    float second[STEP];
};

// Reads a step, or zeros; whether a number of it is infinite or none.
__device__ __forceinline__ bool load_step(float (&to)[STEP], const bf16* head, u32 at, u32 dim) {
    uint4 numbers = make_uint4(0, 0, 0, 0);
    if (at < dim) numbers = *(const uint4*)(head + at);
    const u32* pairs = (const u32*)&numbers;
    bool is_step_broken = false;
#pragma unroll
    for (int pair = 0; pair < STEP / 2; pair++) {
        to[2 * pair] = low(pairs[pair]);
        to[2 * pair + 1] = high(pairs[pair]);
        is_step_broken |= is_broken(to[2 * pair]) | is_broken(to[2 * pair + 1]);
    }
    return is_step_broken;
}

// Reads what a lane has of a head; whether a number of it is infinite or none.
__device__ __forceinline__ bool load_part(Part& part, const bf16* head, const Place& place, u32 dim) {
    bool is_first_broken = load_step(part.first, head, place.first, dim);
    return load_step(part.second, head, place.second, dim) | is_first_broken;
}

// Rounds a step, times `factor`, and writes it, if the head has it.
__device__ __forceinline__ void store_step(bf16* head, const float (&from)[STEP], float factor, u32 at, u32 dim) {
    if (at >= dim) return;
    uint4 numbers;
    u32* pairs = (u32*)&numbers;
#pragma unroll
    for (int pair = 0; pair < STEP / 2; pair++) {
        pairs[pair] = ptx::round_bf16x2(from[2 * pair] * factor, from[2 * pair + 1] * factor);
    }
    *(uint4*)(head + at) = numbers;
}

__device__ __forceinline__ void read_floats(float (&to)[STEP], const float* from) {
    *(float4*)&to[0] = *(const float4*)from;
    *(float4*)&to[STEP / 2] = *(const float4*)(from + STEP / 2);
}

__device__ __forceinline__ float sum_squares(const Part& part) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < STEP; i++) sum = fmaf(part.first[i], part.first[i], sum);
#pragma unroll
    for (int i = 0; i < STEP; i++) sum = fmaf(part.second[i], part.second[i], sum);
    return sum;
}

__device__ __forceinline__ void norm_step(float (&numbers)[STEP], float scale, const float* weight, u32 at, u32 dim) {
    if (at >= dim) return;
    float weights[STEP];
    read_floats(weights, weight + at);
#pragma unroll
    for (int i = 0; i < STEP; i++) numbers[i] = numbers[i] * scale * weights[i];
}

// Turns the pairs of a lane that has both of each.
__device__ __forceinline__ void turn_pairs(Part& part, const float* cosines, u32 first, u32 half) {
    float cosine[STEP], sine[STEP];
    read_floats(cosine, cosines + first);
    read_floats(sine, cosines + half + first);
#pragma unroll
    for (int i = 0; i < STEP; i++) {
        float a = part.first[i], b = part.second[i];
        part.first[i] = a * cosine[i] - b * sine[i];
        part.second[i] = fmaf(b, cosine[i], a * sine[i]);
    }
}

// What becomes of a head: a query, or a key or value at a position.
struct Head {
    u32 row;
    u32 head;
    // Of its row.
    u32 slot;
    u32 position;
    const bf16* from;

    __device__ Head(const Operands& o, u32 row, u32 head) : row(row), head(head) {
        slot = o.slots[row];
        position = o.positions[row];
        from = o.heads + ((size_t)row * o.heads_of_row() + head) * o.dim;
    }

    __device__ bool is_query(const Operands& o) const { return head < o.query_heads; }
    __device__ bool is_value(const Operands& o) const { return head >= o.query_heads + o.kv_heads; }

    // Where it is written: to the queries, or to its place in the cache.
    __device__ bf16* to(const Operands& o) const {
        if (is_query(o)) return o.queries + ((size_t)row * o.query_heads + head) * o.dim;
        u32 block = o.tables[(size_t)slot * o.blocks_max + position / o.block_tokens];
        u32 plane = 2 * ((head - o.query_heads) % o.kv_heads) + (is_value(o) ? 1 : 0);
        u32 token = plane * o.block_tokens + position % o.block_tokens;
        return (bf16*)(o.slices + block * o.record_bytes) + (size_t)token * o.dim;
    }
};

// The number of a head, normed.
__device__ __forceinline__ float normed(const Head& head, u32 number, float scale, const float* weight) {
    float value = widen(head.from[number]);
    return weight == nullptr ? value : value * scale * weight[number];
}

// Norms and turns a head number by number: for rotary embeddings whose halves are not whole steps.
template <int LANES>
__device__ __forceinline__ void turn_by_number(const Operands& o, const Head& head, bf16* to, float scale,
                                               const float* weight, float growth) {
    const float* cosines = o.rotary + (size_t)head.position * o.rotated;
    u32 half = o.rotated / 2;
    for (u32 i = threadIdx.x % LANES; i < half; i += LANES) {
        float a = normed(head, i, scale, weight), b = normed(head, half + i, scale, weight);
        float cosine = cosines[i], sine = cosines[half + i];
        to[i] = round_bf16((a * cosine - b * sine) * growth);
        to[half + i] = round_bf16(fmaf(b, cosine, a * sine) * growth);
    }
    for (u32 i = o.rotated + threadIdx.x % LANES; i < o.dim; i += LANES) {
        to[i] = round_bf16(normed(head, i, scale, weight) * growth);
    }
}

// The row that begins a block makes those of its positions zero that no row of this step writes: attention reads whole
// blocks.
__device__ __forceinline__ void clear_behind(const Operands& o, const Head& head, bf16* to, const Place& place) {
    if (head.is_query(o) || head.position % o.block_tokens != 0) return;
    uint4 zeros = make_uint4(0, 0, 0, 0);
    u32 end = max(o.ends[head.row], head.position + 1);
    for (u32 token = end - head.position; token < o.block_tokens; token++) {
        if (place.first < o.dim) *(uint4*)(to + token * o.dim + place.first) = zeros;
        if (place.second < o.dim) *(uint4*)(to + token * o.dim + place.second) = zeros;
    }
}

// Brings what a lane has of a head to where it belongs. `weight`: of the norm of this head, or null.
template <int LANES>
__device__ __forceinline__ void finish_head(const Operands& o, const Head& head, Part& part, const Place& place,
                                            float scale, const float* weight) {
    if (head.slot == PADDING) return;
    bf16* to = head.to(o);
    float growth = head.is_query(o) && o.growth != nullptr ? o.growth[head.position] : 1.0f;
    if (!head.is_value(o) && o.rotated % (2 * STEP) != 0) {
        turn_by_number<LANES>(o, head, to, scale, weight, growth);
    } else {
        if (weight != nullptr) {
            norm_step(part.first, scale, weight, place.first, o.dim);
            norm_step(part.second, scale, weight, place.second, o.dim);
        }
        const float* cosines = o.rotary + (size_t)head.position * o.rotated;
        if (!head.is_value(o) && place.is_pair) turn_pairs(part, cosines, place.first, o.rotated / 2);
        store_step(to, part.first, growth, place.first, o.dim);
        store_step(to, part.second, growth, place.second, o.dim);
    }
    clear_behind(o, head, to, place);
}

// Heads by themselves, in any order. Where they are normed, each is by its own numbers.
template <int LANES>
__device__ __forceinline__ void take_heads(const Operands& o) {
    constexpr u32 AT_ONCE = THREADS / LANES;
    Place place(threadIdx.x % LANES, o.rotated);
    u32 count = o.rows * o.heads_of_row();
    for (u32 begin = blockIdx.x * AT_ONCE; begin < count; begin += gridDim.x * AT_ONCE) {
        u32 item = begin + threadIdx.x / LANES;
        bool is_there = item < count;
        if (!is_there) item = count - 1;
        Head head(o, item / o.heads_of_row(), item % o.heads_of_row());
        Part part;
        bool is_head_broken = load_part(part, head.from, place, o.dim);
        const float* weight = head.is_query(o) ? o.query_weight : head.is_value(o) ? nullptr : o.key_weight;
        float scale = 1.0f;
        // All lanes sum, since a warp may have heads of both kinds.
        if (o.query_weight != nullptr) scale = rsqrtf(sum_lanes<LANES>(sum_squares(part)) / (float)o.dim + o.eps);
        if (!is_there) continue;
        if (is_head_broken && head.slot != PADDING) tell_broken(o.broken, head.row);
        finish_head<LANES>(o, head, part, place, scale, weight);
    }
}

// Sums over the block in one order: a tree in each warp, then the warps in turn.
__device__ __forceinline__ float sum_block(float v, float* partial) {
    v = sum_lanes(v);
    __syncthreads();
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = v;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++) sum += partial[warp];
    return sum;
}

// Whole rows, a block each: all queries are normed together, and so are all keys.
template <int LANES>
__device__ __forceinline__ void take_rows(const Operands& o) {
    __shared__ float partial[WARPS];
    constexpr u32 AT_ONCE = THREADS / LANES;
    Place place(threadIdx.x % LANES, o.rotated);
    for (u32 row = blockIdx.x; row < o.rows; row += gridDim.x) {
        float of_queries = 0.0f, of_keys = 0.0f;
        bool is_row_broken = false;
        for (u32 number = threadIdx.x / LANES; number < o.heads_of_row(); number += AT_ONCE) {
            Head head(o, row, number);
            Part part;
            is_row_broken |= load_part(part, head.from, place, o.dim);
            float sum = sum_squares(part);
            if (head.is_query(o)) of_queries += sum;
            else if (!head.is_value(o)) of_keys += sum;
        }
        if (is_row_broken && o.slots[row] != PADDING) tell_broken(o.broken, row);
        float query_scale = rsqrtf(sum_block(of_queries, partial) / (float)(o.query_heads * o.dim) + o.eps);
        float key_scale = rsqrtf(sum_block(of_keys, partial) / (float)(o.kv_heads * o.dim) + o.eps);
        for (u32 number = threadIdx.x / LANES; number < o.heads_of_row(); number += AT_ONCE) {
            Head head(o, row, number);
            Part part;
            load_part(part, head.from, place, o.dim);
            bool is_query = head.is_query(o);
            const float* weight = is_query ? o.query_weight + number * o.dim
                                  : head.is_value(o) ? nullptr : o.key_weight + (number - o.query_heads) * o.dim;
            finish_head<LANES>(o, head, part, place, is_query ? query_scale : key_scale, weight);
        }
    }
}

// How far the step is, for those who read its keys and values: a word of the host, which rises with each layer.
struct Progress {
    // In device memory: the mark of the step, to which a layer adds its number plus one; then whether anybody listens.
    const u64* step;
    u64* word;

    __device__ bool is_awaited() const { return step[1] != 0; }

    // Shows the layer behind all that this thread knows to be written.
    __device__ void raise(u32 layer) const {
        ptx::fence_system();
        ptx::store_release_system(word, step[0] + layer + 1);
    }
};

// Raises the progress in the block that comes here last: then all have written. `ticket` is zero before and after.
__device__ __forceinline__ void raise_at_end(const Progress& progress, u32* ticket, u32 layer) {
    if (ticket == nullptr || !progress.is_awaited()) return;
    __syncthreads();
    if (threadIdx.x != 0) return;
    // What the block wrote, which the barrier showed to this thread, comes before its ticket for all others.
    __threadfence();
    if (atomicAdd(ticket, 1u) != gridDim.x - 1) return;
    *ticket = 0;
    progress.raise(layer);
}

template <int LANES>
__device__ __forceinline__ void take(const Operands& o, bool by_width) {
    if (by_width) take_rows<LANES>(o);
    else take_heads<LANES>(o);
}

// A lane has 16 numbers of a head. `by_width`: queries are normed over all their heads, and keys likewise.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
    rope_cache(const bf16* heads, bf16* queries, u8* slices, const u32* tables, const u32* positions,
               const u32* slots, const u32* ends, const float* rotary, const float* growth, const float* query_weight,
               const float* key_weight, u32* broken, u32* ticket, const u64* step, u64* word, u64 record_bytes,
               u32 rows, u32 query_heads, u32 kv_heads, u32 dim, u32 rotated, u32 block_tokens, u32 blocks_max,
               u32 layer, float eps, u32 by_width) {
    Operands operands = {heads,        queries,      slices,     tables, positions,   slots,    ends,
                         rotary,       growth,       query_weight, key_weight, broken, record_bytes, rows,
                         query_heads,  kv_heads,     dim,        rotated, block_tokens, blocks_max, eps};
    ptx::dependents_wait();
    ptx::dependents_launch();
    if (dim <= 64) take<4>(operands, by_width != 0);
    else if (dim <= 128) take<8>(operands, by_width != 0);
    else take<16>(operands, by_width != 0);
    raise_at_end(Progress{step, word}, ticket, layer);
}

// Raises the progress where several launches wrote the layer, behind the last of them.
extern "C" __global__ void __launch_bounds__(1, 1) raise_progress(const u64* step, u64* word, u32 layer) {
    ptx::dependents_wait();
    ptx::dependents_launch();
    Progress progress = {step, word};
    if (progress.is_awaited()) progress.raise(layer);
}
