// Forms of quantised weights, packed for these kernels (`packing.rs` writes them), and the product for many rows.
//
// Integers become bf16 exactly. A group's products are summed apart, from zero, and `sum = fmaf(scale, part, sum)` adds
// them: no weight is rounded. The formats' names and numbers are ggml's.
//
// Fragments of 16 outputs follow one another, in each the units in their order, and in a unit first the integers: 16
// bytes of a lane after those of the lane before. `upper` is of output g of a fragment, `lower` of output g + 8.
#pragma once

#include "product.cuh"

// Later architectures take more registers for the same: less is under way there.
#if __CUDA_ARCH__ >= 1000
constexpr bool IS_TIGHT = true;
#else
constexpr bool IS_TIGHT = false;
#endif

// One and one, in bf16.
constexpr u32 ONES = 0x3f803f80u;

// A group's integers of both outputs, as two matrix instructions take them.
struct Integers {
    u32 upper[4], lower[4];
};

// The sums of two rows' activations in a group.
struct TwoRows {
    float first, second;
};
struct NoRows {};

// Multiplies half a group: the first instruction's, or the second's.
template <int HALF>
__device__ __forceinline__ void multiply_half(float (&part)[4], const Integers& w, uint4 x) {
    constexpr int AT = 2 * HALF;
    u32 first = HALF == 0 ? x.x : x.z, second = HALF == 0 ? x.y : x.w;
    ptx::multiply_bf16(part, w.upper[AT], w.lower[AT], w.upper[AT + 1], w.lower[AT + 1], first, second);
}

// Adds scaled products: numbers 0 and 1 are of the upper output, 2 and 3 of the lower one.
__device__ __forceinline__ void add_scaled(float (&sums)[4], float upper, float lower, const float (&part)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i] = fmaf(i < 2 ? upper : lower, part[i], sums[i]);
}

// Adds a scaled offset, the same for all inputs of a group.
__device__ __forceinline__ void add_offset(float (&sums)[4], float upper, float lower, TwoRows rows) {
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i] = fmaf(i < 2 ? upper : lower, i % 2 == 0 ? rows.first : rows.second, sums[i]);
}

// Sums a group's activations, as a product by ones.
__device__ __forceinline__ TwoRows sum_rows(uint4 x) {
    float sums[4] = {};
    ptx::multiply_bf16(sums, ONES, ONES, ONES, ONES, x.x, x.y);
    ptx::multiply_bf16(sums, ONES, ONES, ONES, ONES, x.z, x.w);
    return TwoRows{sums[0], sums[1]};
}

// The 32 bits of a vector, in its order.
__device__ __forceinline__ u32 word(uint4 v, int at) { return at == 0 ? v.x : at == 1 ? v.y : at == 2 ? v.z : v.w; }

// A byte of a vector.
__device__ __forceinline__ u32 byte(uint4 v, int at) { return word(v, at / 4) >> at % 4 * 8 & 0xff; }

// The number in 16 bits of a vector.
__device__ __forceinline__ float half_at(uint4 v, int at) {
    return ptx::widen_half((u16)(word(v, at / 2) >> at % 2 * 16));
}

// Eight integers of 4 bits, less what they are stored above. Pair i is in bits 4i and 16 + 4i.
template <u32 LESS>
__device__ __forceinline__ void unpack_nibbles(u32 (&pairs)[4], u32 v) {
#pragma unroll
    // A bf16 of 128 to 255 has its integer in its lower bits.
    for (int i = 0; i < 4; i++)
        pairs[i] = ptx::multiply_add_bf16x2((v >> 4 * i & 0x000f000fu) | 0x43004300u, ONES, LESS);
}
// Minus 128, 136 and 160, twice.
constexpr u32 LESS_128 = 0xc300c300u, LESS_136 = 0xc308c308u, LESS_160 = 0xc320c320u;

// Bytes of an access of a whole warp, and of one whose lanes of the same outputs read the same.
constexpr int OWN_BYTES = WARP * 16, SHARED_BYTES = TILE * 16;

// How a form's units lie. `own`: accesses of 16 bytes a lane. `shared`: of 16 bytes for each g. Then `ENDS` bytes for
// each g. A unit is read into registers, or word by word where it lies in shared memory (`UnitView`).
template <int OWN, int SHARED, int ENDS>
struct UnitOf {
    static constexpr int SHARED_AT = OWN * OWN_BYTES, ENDS_AT = SHARED_AT + SHARED * SHARED_BYTES;
    static constexpr int BYTES = ENDS_AT + TILE * ENDS;

    uint4 owns[OWN], shareds[SHARED];
    u32 end[ENDS == 0 ? 1 : ENDS / 4];

    __device__ __forceinline__ void load(const u8* from) {
        u32 lane = threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < OWN; i++) owns[i] = ptx::load_streamed(from + i * OWN_BYTES + lane * 16);
#pragma unroll
        for (int i = 0; i < SHARED; i++)
            shareds[i] = ptx::load_cached(from + SHARED_AT + i * SHARED_BYTES + lane / 4 * 16);
#pragma unroll
        for (int i = 0; i < ENDS / 4; i++) end[i] = __ldg((const u32*)(from + ENDS_AT + lane / 4 * ENDS) + i);
    }

    __device__ __forceinline__ uint4 own(int at) const { return owns[at]; }
    __device__ __forceinline__ uint4 shared(int at) const { return shareds[at]; }
    __device__ __forceinline__ u32 ends(int at) const { return end[at]; }
};

// A unit in memory, as a lane sees it.
template <class Unit>
struct UnitView {
    const u8* at;
    u32 lane;

    __device__ __forceinline__ uint4 own(int i) const { return *(const uint4*)(at + i * OWN_BYTES + lane * 16); }
    __device__ __forceinline__ uint4 shared(int i) const {
        return *(const uint4*)(at + Unit::SHARED_AT + i * SHARED_BYTES + lane / 4 * 16);
    }
    __device__ __forceinline__ u32 ends(int i) const {
        constexpr int ENDS = (Unit::BYTES - Unit::ENDS_AT) / TILE;
        return ((const u32*)(at + Unit::ENDS_AT + lane / 4 * ENDS))[i];
    }
};

// What forms share: where a fragment's units are. Inputs 8t to 8t+7 of a group are a lane's.
template <int OWN, int SHARED, int ENDS, int GROUPS_OF_UNIT>
struct Packed {
    static constexpr int GROUPS = GROUPS_OF_UNIT;
    // A block of a file has one group or eight.
    static constexpr bool IS_PADDED = GROUPS < 8;
    typedef UnitOf<OWN, SHARED, ENDS> Unit;

    const u8* at;

    Packed() = default;

    // Fragments beyond the last repeat it.
    __device__ __forceinline__ Packed(const Product& p, u32 fragment) {
        fragment = min(fragment, (p.outputs + FRAGMENT - 1) / FRAGMENT - 1);
        at = p.weights + (size_t)fragment * units_of<Packed>(p) * Unit::BYTES;
    }

    __device__ __forceinline__ const u8* unit(u32 unit) const { return at + (size_t)unit * Unit::BYTES; }

    __device__ __forceinline__ Unit load(u32 at) const {
        Unit v;
        v.load(unit(at));
        return v;
    }

    static __device__ __forceinline__ uint4 activations(const u8* row, u32 t) { return *(const uint4*)(row + t * 16); }

    // Puts a lane's numbers of a group where `activations` reads them.
    static __device__ __forceinline__ void put(u8* row, u32 t, uint4 numbers) { *(uint4*)(row + t * 16) = numbers; }
};

// Number i of a lane's eight of an output.
__device__ __forceinline__ float integer(const u32 (&pairs)[4], int i) {
    return i % 2 == 0 ? low(pairs[i / 2]) : high(pairs[i / 2]);
}

// Groups with one scale.
struct ScaledGroup {
    Integers numbers;
    float upper, lower;
};

// What forms of such groups share.
struct Scaled {
    typedef ScaledGroup Group;
    typedef NoRows RowSums;
    static constexpr bool WANTS_ROW_SUMS = false;

    static __device__ __forceinline__ RowSums row_sums(uint4) { return RowSums{}; }

    static __device__ __forceinline__ void multiply(float (&sums)[4], const Group& w, uint4 x, RowSums) {
        float part[4] = {};
        multiply_half<0>(part, w.numbers, x);
        multiply_half<1>(part, w.numbers, x);
        add_scaled(sums, w.upper, w.lower, part);
    }

    // Weight i of a lane's eight of an output, rounded once at most.
    static __device__ __forceinline__ float weight(const Group& w, bool is_lower, int i) {
        return is_lower ? w.lower * integer(w.numbers.lower, i) : w.upper * integer(w.numbers.upper, i);
    }
};

// Groups with a scale and an offset, which is multiplied by the sum of the activations.
struct OffsetGroup : ScaledGroup {
    float upper_offset, lower_offset;
};

// What forms of such groups share.
struct Offset {
    typedef OffsetGroup Group;
    typedef TwoRows RowSums;
    static constexpr bool WANTS_ROW_SUMS = true;

    static __device__ __forceinline__ RowSums row_sums(uint4 x) { return sum_rows(x); }

    static __device__ __forceinline__ void multiply(float (&sums)[4], const Group& w, uint4 x, RowSums rows) {
        Scaled::multiply(sums, w, x, NoRows{});
        add_offset(sums, w.upper_offset, w.lower_offset, rows);
    }

    static __device__ __forceinline__ float weight(const Group& w, bool is_lower, int i) {
        return Scaled::weight(w, is_lower, i) + (is_lower ? w.lower_offset : w.upper_offset);
    }
};

// The integers of a group of 4 bits. An access has two groups, in each the upper output and then the lower one.
template <u32 LESS, class Source>
__device__ __forceinline__ void take_nibbles(Integers& v, const Source& unit, int at) {
    uint4 two = unit.own(at / 2);
    unpack_nibbles<LESS>(v.upper, word(two, at % 2 * 2));
    unpack_nibbles<LESS>(v.lower, word(two, at % 2 * 2 + 1));
}

// d * q, of 8 bits. Shared: four scales of the upper and of the lower output. The bytes of four integers are the first,
// the third, the second, the fourth.
struct Q8_0 : Packed<4, 1, 0, 4>, Scaled {
    using Packed::Packed;
    static constexpr int AHEAD_8 = 3, BLOCKS_8 = 3, AHEAD_16 = 2, BLOCKS_16 = 3;

    // The lower seven bits above 128, less 128, or less 256 where the sign is set.
    static __device__ __forceinline__ u32 pair(u32 v) {
        return ptx::multiply_add_bf16x2((v & 0x007f007fu) | 0x43004300u, ONES, (v & 0x00800080u) | 0xc300c300u);
    }

    template <class Source>
    static __device__ __forceinline__ Group group(const Source& unit, int at) {
        Group v;
        uint4 own = unit.own(at), scales = unit.shared(0);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v.numbers.upper[i] = pair(word(own, i / 2) >> i % 2 * 8);
            v.numbers.lower[i] = pair(word(own, 2 + i / 2) >> i % 2 * 8);
        }
        v.upper = half_at(scales, at);
        v.lower = half_at(scales, 4 + at);
        return v;
    }
};

// d * (q - 8), of 4 bits. Shared: as of Q8_0.
struct Q4_0 : Packed<2, 1, 0, 4>, Scaled {
    using Packed::Packed;
    static constexpr int AHEAD_8 = 4, BLOCKS_8 = 3, AHEAD_16 = 5, BLOCKS_16 = 2;

    template <class Source>
    static __device__ __forceinline__ Group group(const Source& unit, int at) {
        Group v;
        take_nibbles<LESS_136>(v.numbers, unit, at);
        uint4 scales = unit.shared(0);
        v.upper = half_at(scales, at);
        v.lower = half_at(scales, 4 + at);
        return v;
    }
};

// d * q + m, of 4 bits. Shared: scales as of Q8_0, then offsets.
struct Q4_1 : Packed<2, 2, 0, 4>, Offset {
    using Packed::Packed;
    static constexpr int AHEAD_8 = 3, BLOCKS_8 = IS_TIGHT ? 2 : 3, AHEAD_16 = IS_TIGHT ? 2 : 3, BLOCKS_16 = 2;

    template <class Source>
    static __device__ __forceinline__ Group group(const Source& unit, int at) {
        Group v;
        take_nibbles<LESS_128>(v.numbers, unit, at);
        uint4 scales = unit.shared(0), offsets = unit.shared(1);
        v.upper = half_at(scales, at);
        v.lower = half_at(scales, 4 + at);
        v.upper_offset = half_at(offsets, at);
        v.lower_offset = half_at(offsets, 4 + at);
        return v;
    }
};

// d * scale * q - dmin * min, of 4 bits. Shared: 8 scales and 8 mins of a byte, of the upper output, then of the lower
// one. Ends: d and dmin of both.
struct Q4K : Packed<4, 2, 8, 8>, Offset {
    using Packed::Packed;
    static constexpr int AHEAD_8 = 2, BLOCKS_8 = IS_TIGHT ? 2 : 3, AHEAD_16 = IS_TIGHT ? 1 : 2, BLOCKS_16 = 2;

    // All products have at most 24 bits: they are exact.
    template <class Source>
    static __device__ __forceinline__ Group group(const Source& unit, int at) {
        Group v;
        take_nibbles<LESS_128>(v.numbers, unit, at);
        uint4 upper = unit.shared(0), lower = unit.shared(1);
        u32 upper_ends = unit.ends(0), lower_ends = unit.ends(1);
        v.upper = ptx::widen_half((u16)upper_ends) * (float)byte(upper, at);
        v.lower = ptx::widen_half((u16)lower_ends) * (float)byte(lower, at);
        v.upper_offset = -ptx::widen_half((u16)(upper_ends >> 16)) * (float)byte(upper, 8 + at);
        v.lower_offset = -ptx::widen_half((u16)(lower_ends >> 16)) * (float)byte(lower, 8 + at);
        return v;
    }
};

// d * scale * (q - 32), of 6 bits. Own: four accesses of lower bits, two of upper ones. Shared: 16 scales of a byte, of
// the upper output, then of the lower one. Ends: d of both. A scale is of 16 inputs, so the first instruction takes
// inputs 4t to 4t+3 of a group's first half, and the second those of its second half.
struct Q6K : Packed<6, 2, 4, 8> {
    using Packed::Packed;
    static constexpr int AHEAD_8 = 2, BLOCKS_8 = 3, AHEAD_16 = 2, BLOCKS_16 = 3;
    struct Group {
        Integers numbers;
        float upper[2], lower[2];
    };
    typedef NoRows RowSums;
    static constexpr bool WANTS_ROW_SUMS = false;

    // Pair i has its upper bits at 2i and 16 + 2i, eight further where the group is odd.
    static __device__ __forceinline__ void unpack(u32 (&pairs)[4], u32 v, u32 bits, int odd) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int from = 2 * i + 8 * odd;
            u32 more = (from < 4 ? bits << (4 - from) : bits >> (from - 4)) & 0x00300030u;
            pairs[i] = ptx::multiply_add_bf16x2((v >> 4 * i & 0x000f000fu) | 0x43004300u | more, ONES, LESS_160);
        }
    }

    template <class Source>
    static __device__ __forceinline__ Group group(const Source& unit, int at) {
        Group v;
        uint4 two = unit.own(at / 2), bits = unit.own(4 + at / 4);
        unpack(v.numbers.upper, word(two, at % 2 * 2), word(bits, at / 2 % 2 * 2), at % 2);
        unpack(v.numbers.lower, word(two, at % 2 * 2 + 1), word(bits, at / 2 % 2 * 2 + 1), at % 2);
        uint4 upper = unit.shared(0), lower = unit.shared(1);
        float upper_d = ptx::widen_half((u16)unit.ends(0)), lower_d = ptx::widen_half((u16)(unit.ends(0) >> 16));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            v.upper[half] = upper_d * (float)(signed char)byte(upper, 2 * at + half);
            v.lower[half] = lower_d * (float)(signed char)byte(lower, 2 * at + half);
        }
        return v;
    }

    static __device__ __forceinline__ uint4 activations(const u8* row, u32 t) {
        uint2 first = *(const uint2*)(row + t * 8), second = *(const uint2*)(row + GROUP_BYTES / 2 + t * 8);
        return make_uint4(first.x, first.y, second.x, second.y);
    }

    static __device__ __forceinline__ void put(u8* row, u32 t, uint4 numbers) {
        *(uint2*)(row + t * 8) = make_uint2(numbers.x, numbers.y);
        *(uint2*)(row + GROUP_BYTES / 2 + t * 8) = make_uint2(numbers.z, numbers.w);
    }

    static __device__ __forceinline__ float weight(const Group& w, bool is_lower, int i) {
        return is_lower ? w.lower[i / 4] * integer(w.numbers.lower, i) : w.upper[i / 4] * integer(w.numbers.upper, i);
    }

    static __device__ __forceinline__ RowSums row_sums(uint4) { return RowSums{}; }

    static __device__ __forceinline__ void multiply(float (&sums)[4], const Group& w, uint4 x, RowSums) {
        float first[4] = {}, second[4] = {};
        multiply_half<0>(first, w.numbers, x);
        add_scaled(sums, w.upper[0], w.lower[0], first);
        multiply_half<1>(second, w.numbers, x);
        add_scaled(sums, w.upper[1], w.lower[1], second);
    }
};

// Whether a slice ends with a unit.
__device__ __forceinline__ bool is_slice_end(u32 units, u32 unit) {
    bool is_end = false;
#pragma unroll
    for (u32 slice = 1; slice <= SLICES; slice++) is_end |= slice_begin(units, slice) == unit + 1;
    return is_end;
}

// 33 rows and more. A block has 128 outputs and 64 rows. A warp has 16 of the outputs and all rows, so that each weight
// is unpacked once in a block. Both operands go through shared memory: activations a group at a time, weights a unit.
// Grid: output blocks * row blocks.
template <class Form>
__device__ __forceinline__ void many_rows_packed(const Product& p) {
    constexpr int ROWS = 64, TILES = ROWS / TILE, THREADS = 256, WARPS = THREADS / WARP;
    constexpr int STAGE = ROWS * GROUP_BYTES;
    constexpr int UNIT_BYTES = Form::Unit::BYTES, UNITS_BYTES = WARPS * UNIT_BYTES;
    static_assert(Form::GROUPS >= STAGES, "a unit's copies end while the one before it is used");
    typedef Writer<1, ROWS, SIDE, THREADS> Out;
    u8* shared = shared_memory();
    uint2 block = block_of<ROWS>(p);
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, units = units_of<Form>(p);
    u32 first_output = block.x * SIDE, first_row = block.y * ROWS, steps = units * Form::GROUPS;
    Form weights(p, first_output / FRAGMENT + warp);
    u8* packed = shared + STAGES * STAGE + warp * UNIT_BYTES;
    // A warp copies its own weights.
    auto copy_unit = [&](u32 at) {
#pragma unroll
        for (int byte = 0; byte < UNIT_BYTES; byte += OWN_BYTES) {
            u32 own = byte + lane * 16;
            if (at < units && own < UNIT_BYTES)
                ptx::copy_async16(ptx::shared(packed + at % 2 * UNITS_BYTES + own), weights.unit(at) + own, true);
        }
    };
    copy_unit(0);
    ptx::dependents_wait();
    ptx::dependents_launch();

    static_assert(STAGE == THREADS * 16, "a thread copies 16 bytes of a stage");
    u32 own_row = first_row + threadIdx.x / 4;
    bool is_row = own_row < p.rows;
    const u8* source = p.row(is_row ? own_row : 0) + threadIdx.x % 4 * 16;
    ptx::shared_t to = ptx::shared(shared + threadIdx.x * 16);
    auto copy = [&](u32 step) {
        if (step < steps) ptx::copy_async16(to + step % STAGES * STAGE, source + group_at<Form>(p, step), is_row);
        ptx::copy_commit();
    };
#pragma unroll
    for (int step = 0; step < STAGES - 1; step++) copy(step);
    // What a lane of row g of tile `tile` reads at a step.
    auto rows_at = [&](u32 step, int tile) {
        return shared + step % STAGES * STAGE + (tile * TILE + lane / 4) * GROUP_BYTES;
    };
    // A warp sums the rows of a tile for all warps, one step ahead.
    static_assert(TILES == WARPS, "a warp has a tile");
    __shared__ float2 row_sums[2][ROWS / 2];
    auto sum_tile = [&](u32 step) {
        if (!Form::WANTS_ROW_SUMS) return;
        TwoRows two = sum_rows(Form::activations(rows_at(step, warp), lane % 4));
        if (lane < 4) row_sums[step % 2][warp * TILE / 2 + lane] = make_float2(two.first, two.second);
    };
    auto sums_of = [&](u32 step, int tile) {
        if constexpr (Form::WANTS_ROW_SUMS) {
            float2 two = row_sums[step % 2][tile * TILE / 2 + lane % 4];
            return TwoRows{two.x, two.y};
        } else {
            return NoRows{};
        }
    };
    ptx::copy_wait<STAGES - 2>();
    __syncthreads();
    sum_tile(0);

    float sums[1][TILES][4] = {}, totals[1][TILES][4] = {};
    for (u32 at = 0; at < units; at++) {
        UnitView<typename Form::Unit> unit[1] = {{packed + at % 2 * UNITS_BYTES, lane}};
#pragma unroll
        for (int i = 0; i < Form::GROUPS; i++) {
            u32 step = at * Form::GROUPS + i;
            // This step's copies and those of the next one have happened.
            ptx::copy_wait<STAGES - 3>();
            __syncthreads();
            if (i == 0) copy_unit(at + 1);
            copy(step + STAGES - 1);
            sum_tile(step + 1);
            add_group<Form>(
                sums, unit, i, [&](int j) { return rows_at(step, j); }, [&](int j, uint4) { return sums_of(step, j); });
        }
        if (is_slice_end(units, at)) end_slice(totals, sums);
    }
    ptx::copy_wait<0>();
    __syncthreads();
    float* all = (float*)shared;
    lay_sums(all + warp * FRAGMENT, Out::STRIDE, totals);
    __syncthreads();
    Out{p, all, first_row, first_output}.write();
}
