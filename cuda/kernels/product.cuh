// Matrix products: what all forms of weights and all counts of rows share.
//
//     out[rows][outputs] = x[rows][inputs] * weights[outputs][inputs]^T + bias
//
// Every kernel sums in one order, so that a row has the same bits beside any other rows and in any kernel:
//
// - Inputs come in groups of 32. Two matrix instructions add a group's products to a sum in f32.
// - A form of weights stores units of one or more groups. Units are cut into four slices (`slice_begin`).
// - The groups of a slice are one chain, which begins at zero.
// - Slices are added in their order to zero, then the bias is added, then the sum is rounded.
//
// Weights are the operand of 16 rows in a matrix instruction, and activations that of 8 columns. A lane (g = lane / 4,
// t = lane % 4) holds inputs 8t to 8t+7 of a group: 16 bytes, of which each instruction takes half.
#pragma once

#include "activation.cuh"

// Inputs of a group.
constexpr int GROUP = 32;
// Bytes of a row's activations in a group.
constexpr int GROUP_BYTES = GROUP * (int)sizeof(bf16);
// Slices of the inputs.
constexpr int SLICES = 4;
// Outputs of a fragment of weights, and rows of a tile of activations.
constexpr int FRAGMENT = 16;
constexpr int TILE = 8;

// What becomes of sums. Gated: outputs are 8 gates, their 8 ups, and so on; half as many numbers are written.
constexpr u32 FINISH_BF16 = 0;
constexpr u32 FINISH_F32 = 1;
constexpr u32 FINISH_SILU = 2;

// The operands of a product.
struct Product {
    void* out;
    const u8* weights;
    const bf16* x;
    // Null: none.
    const float* bias;
    u32 rows, outputs, inputs, finish;
    // Numbers from one row of `out` to the next: a product may write some columns of wider rows.
    u32 stride;

    __device__ u32 groups() const { return inputs / GROUP; }

    __device__ const u8* row(u32 at) const { return (const u8*)(x + (size_t)at * inputs); }
};

// The first unit of a slice. Slices differ by one unit at most.
__device__ __forceinline__ u32 slice_begin(u32 units, u32 slice) { return units * slice / SLICES; }

// Units of the longest slice.
__device__ __forceinline__ u32 slice_units_max(u32 units) { return (units + SLICES - 1) / SLICES; }

// Units of a form of weights.
template <class Form>
__device__ __forceinline__ u32 units_of(const Product& p) {
    return (p.groups() + Form::GROUPS - 1) / Form::GROUPS;
}

// Where a group is in a row of activations, in bytes. Packed weights may have more groups than there are: they are zero
// there, and the last group stands for what is not there.
template <class Form>
__device__ __forceinline__ u32 group_at(const Product& p, u32 group) {
    if (Form::IS_PADDED) group = min(group, p.groups() - 1);
    return group * GROUP_BYTES;
}

// The block's dynamic shared memory.
__device__ __forceinline__ u8* shared_memory() {
    DYNAMIC_SHARED(u8, shared);
    return shared;
}

// Numbers of a row of sums in shared memory. Four more than it has outputs: then no two lanes meet in a bank.
__host__ __device__ constexpr int sums_stride(int outputs) { return outputs + 4; }

// Lays the sums of a warp in shared memory, `[row][output]`.
template <int FRAGMENTS, int TILES>
__device__ __forceinline__ void lay_sums(float* at, int stride, const float (&sums)[FRAGMENTS][TILES][4]) {
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int f = 0; f < FRAGMENTS; f++)
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                at[(j * TILE + 2 * t + i % 2) * stride + f * FRAGMENT + g + i / 2 * 8] = sums[f][j][i];
}

// Writes what becomes of a block's sums, which lie in shared memory as `[part][row][output]`; parts are added in order.
template <int PARTS, int ROWS, int OUTPUTS, int THREADS>
struct Writer {
    const Product& p;
    const float* sums;
    u32 first_row, first_output;

    static constexpr int STRIDE = sums_stride(OUTPUTS);
    static constexpr int PART = ROWS * STRIDE;

    __device__ float sum(u32 row, u32 output) const {
        const float* own = sums + row * STRIDE + output;
        float sum = 0.0f;
#pragma unroll
        for (int part = 0; part < PARTS; part++) sum += own[part * PART];
        if (p.bias != nullptr && first_output + output < p.outputs) sum += p.bias[first_output + output];
        return sum;
    }

    __device__ float gated(u32 row, u32 column) const {
        u32 output = column / 8 * 16 + column % 8;
        // Rounded as if a product and the activation were two kernels.
        float gate = widen(round_bf16(sum(row, output))), up = widen(round_bf16(sum(row, output + 8)));
        return (p.finish == FINISH_SILU ? silu(gate) : gelu_tanh(gate)) * up;
    }

    // Writes two neighbours of a row, of which the second may be beyond its end.
    __device__ void store(u32 row, u32 column, u32 width, float first, float second) const {
        size_t at = (size_t)row * p.stride + column;
        bool is_f32 = p.finish == FINISH_F32;
        if ((width | p.stride) % 2 == 0) {
            if (is_f32) *(float2*)((float*)p.out + at) = make_float2(first, second);
            else *(u32*)((bf16*)p.out + at) = ptx::round_bf16x2(first, second);
            return;
        }
        for (u32 i = 0; i < 2 && column + i < width; i++) {
            float v = i == 0 ? first : second;
            if (is_f32) ((float*)p.out)[at + i] = v;
            else ((bf16*)p.out)[at + i] = round_bf16(v);
        }
    }

    __device__ void write() const {
        bool is_gated = p.finish >= FINISH_SILU;
        u32 width = is_gated ? p.outputs / 2 : p.outputs, first = is_gated ? first_output / 2 : first_output;
        u32 pairs = is_gated ? OUTPUTS / 4 : OUTPUTS / 2;
        for (u32 e = threadIdx.x; e < ROWS * pairs; e += THREADS) {
            u32 row = e / pairs, column = e % pairs * 2;
            if (first_row + row >= p.rows || first + column >= width) continue;
            float one = is_gated ? gated(row, column) : sum(row, column);
            float two = is_gated ? gated(row, column + 1) : sum(row, column + 1);
            store(first_row + row, first + column, width, one, two);
        }
    }
};

// Adds a group's products to the sums of a warp. `rows` are the lane's activations, row g of each tile; `row_sums` is
// what the form wants to know of a tile beside them.
template <class Form, class Unit, int FRAGMENTS, int TILES, class Rows, class RowSums>
__device__ __forceinline__ void add_group(float (&sums)[FRAGMENTS][TILES][4], const Unit (&unit)[FRAGMENTS], int at,
                                          Rows rows, RowSums row_sums) {
    typename Form::Group group[FRAGMENTS];
#pragma unroll
    for (int f = 0; f < FRAGMENTS; f++) group[f] = Form::group(unit[f], at);
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        uint4 x = Form::activations(rows(j), threadIdx.x % 4);
        typename Form::RowSums own_sums = row_sums(j, x);
#pragma unroll
        for (int f = 0; f < FRAGMENTS; f++) Form::multiply(sums[f][j], group[f], x, own_sums);
    }
}

// As above; a warp makes the sums of rows itself.
template <class Form, class Unit, int FRAGMENTS, int TILES, class Rows>
__device__ __forceinline__ void add_group(float (&sums)[FRAGMENTS][TILES][4], const Unit (&unit)[FRAGMENTS], int at,
                                          Rows rows) {
    add_group<Form>(sums, unit, at, rows, [](int, uint4 x) { return Form::row_sums(x); });
}

// Weights of a warp on their way: units AHEAD of the one that is multiplied, in registers.
template <class Form, int FRAGMENTS, int AHEAD>
struct Stream {
    Form forms[FRAGMENTS];
    typename Form::Unit units[AHEAD][FRAGMENTS];
    u32 end;

    __device__ __forceinline__ void load_there(u32 unit, int place) {
#pragma unroll
        for (int f = 0; f < FRAGMENTS; f++) units[place][f] = forms[f].load(unit);
    }

    __device__ __forceinline__ void load(u32 unit, int place) {
        if (unit < end) load_there(unit, place);
    }

    // Begins with the fragment `fragment` at a unit.
    __device__ __forceinline__ Stream(const Product& p, u32 fragment, u32 begin, u32 end) : end(end) {
#pragma unroll
        for (int f = 0; f < FRAGMENTS; f++) forms[f] = Form(p, fragment + f);
        // A real branch ahead of `dependents_wait`: in one block of code the compiler moves these loads behind it.
        if (begin + AHEAD <= end) {
#pragma unroll
            for (int u = 0; u < AHEAD; u++) load_there(begin + u, u);
        } else {
#pragma unroll
            for (int u = 0; u < AHEAD; u++) load(begin + u, u);
        }
    }

    // Takes a unit, and asks for the one AHEAD of it.
    __device__ __forceinline__ void take(typename Form::Unit (&unit)[FRAGMENTS], u32 at, int place) {
#pragma unroll
        for (int f = 0; f < FRAGMENTS; f++) unit[f] = units[place][f];
        load(at + AHEAD, place);
    }
};

// 1 to 16 rows. A block has FRAGMENTS * 16 outputs; its four warps are the four slices. Weights go straight from memory
// into registers, and activations come through the first-level cache. Grid: outputs / (16 * FRAGMENTS).
template <class Form, int FRAGMENTS, int TILES, int AHEAD>
__device__ __forceinline__ void few_rows(const Product& p) {
    constexpr int ROWS = TILES * TILE, OUTPUTS = FRAGMENTS * FRAGMENT, THREADS = SLICES * WARP;
    typedef Writer<SLICES, ROWS, OUTPUTS, THREADS> Out;
    __shared__ float slices[SLICES * Out::PART];
    u32 slice = threadIdx.x / WARP, units = units_of<Form>(p);
    u32 begin = slice_begin(units, slice), end = slice_begin(units, slice + 1);
    Stream<Form, FRAGMENTS, AHEAD> weights(p, blockIdx.x * FRAGMENTS, begin, end);
    // Nothing but weights is read before this.
    ptx::dependents_wait();
    ptx::dependents_launch();

    // Rows beyond the last repeat it: nothing is made of their sums.
    const u8* rows[TILES];
#pragma unroll
    for (int j = 0; j < TILES; j++) rows[j] = p.row(min(j * TILE + threadIdx.x % WARP / 4, p.rows - 1));
    float sums[FRAGMENTS][TILES][4] = {};
    auto add_unit = [&](u32 at, int place) {
        typename Form::Unit unit[FRAGMENTS];
        weights.take(unit, at, place);
#pragma unroll
        for (int i = 0; i < Form::GROUPS; i++) {
            u32 byte = group_at<Form>(p, at * Form::GROUPS + i);
            add_group<Form>(sums, unit, i, [&](int j) { return rows[j] + byte; });
        }
    };
    u32 at = begin;
    for (; at + AHEAD <= end; at += AHEAD)
#pragma unroll
        for (int u = 0; u < AHEAD; u++) add_unit(at + u, u);
#pragma unroll
    for (int u = 0; u < AHEAD - 1; u++)
        if (at + u < end) add_unit(at + u, u);

    lay_sums(slices + slice * Out::PART, Out::STRIDE, sums);
    __syncthreads();
    Out{p, slices, 0, blockIdx.x * OUTPUTS}.write();
}

// Copies of activations that are under way in the kernels for more rows.
constexpr int STAGES = 4;

// 17 rows and more, up to about 128. A block has 64 outputs and TILES * 8 rows; two warps are a slice, each with half
// of the outputs. Weights go into registers, activations through shared memory. Grid: row blocks, outputs / 64.
template <class Form, int TILES, int AHEAD>
__device__ __forceinline__ void some_rows(const Product& p) {
    constexpr int FRAGMENTS = 2, ROWS = TILES * TILE, OUTPUTS = 64, THREADS = 256;
    constexpr int STAGE = SLICES * ROWS * GROUP_BYTES, COPIES = STAGE / 16 / THREADS;
    typedef Writer<SLICES, ROWS, OUTPUTS, THREADS> Out;
    u8* shared = shared_memory();
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, slice = warp % SLICES, half = warp / SLICES;
    u32 units = units_of<Form>(p), first_row = blockIdx.x * ROWS, fragment = (blockIdx.y * 2 + half) * FRAGMENTS;
    u32 begin = slice_begin(units, slice), end = slice_begin(units, slice + 1);
    Stream<Form, FRAGMENTS, AHEAD> weights(p, fragment, begin, end);
    ptx::dependents_wait();
    ptx::dependents_launch();

    // Copies the activations of all slices for a step, which is a group of each.
    auto copy = [&](u32 step) {
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            u32 chunk = i * THREADS + threadIdx.x, row = first_row + chunk / 4 % ROWS, from = chunk / 4 / ROWS;
            u32 group = slice_begin(units, from) * Form::GROUPS + step;
            bool is_there = row < p.rows && group < slice_begin(units, from + 1) * Form::GROUPS;
            const u8* source = is_there ? p.row(row) + group_at<Form>(p, group) + chunk % 4 * 16 : (const u8*)p.x;
            ptx::copy_async16(ptx::shared(shared + step % STAGES * STAGE + chunk * 16), source, is_there);
        }
        ptx::copy_commit();
    };
#pragma unroll
    for (int step = 0; step < STAGES - 1; step++) copy(step);
    float sums[FRAGMENTS][TILES][4] = {};
    u32 own = slice * ROWS * GROUP_BYTES + lane / 4 * GROUP_BYTES, units_max = slice_units_max(units);
    for (u32 base = 0; base < units_max; base += AHEAD)
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            u32 at = base + u;
            if (at >= units_max) break;
            typename Form::Unit unit[FRAGMENTS];
            weights.take(unit, begin + at, u);
#pragma unroll
            for (int i = 0; i < Form::GROUPS; i++) {
                u32 step = at * Form::GROUPS + i;
                ptx::copy_wait<STAGES - 2>();
                __syncthreads();
                copy(step + STAGES - 1);
                const u8* stage = shared + step % STAGES * STAGE + own;
                if (begin + at < end)
                    add_group<Form>(sums, unit, i, [&](int j) { return stage + j * TILE * GROUP_BYTES; });
            }
        }
    ptx::copy_wait<0>();
    __syncthreads();
    float* slices = (float*)shared;
    lay_sums(slices + slice * Out::PART + half * (OUTPUTS / 2), Out::STRIDE, sums);
    __syncthreads();
    Out{p, slices, first_row, blockIdx.y * OUTPUTS}.write();
}

// Outputs of a block of the kernels for many rows.
constexpr int SIDE = 128;

// Which block of outputs and of rows a block takes. Sixteen blocks of rows are a band: its blocks run side by side, and
// what they read stays in the second-level cache.
template <int ROWS>
__device__ __forceinline__ uint2 block_of(const Product& p) {
    constexpr u32 BAND = 16;
    u32 outputs = (p.outputs + SIDE - 1) / SIDE, rows = (p.rows + ROWS - 1) / ROWS;
    u32 band = blockIdx.x / (outputs * BAND), in_band = blockIdx.x % (outputs * BAND);
    u32 height = min(rows - band * BAND, BAND);
    return make_uint2(in_band / height, band * BAND + in_band % height);
}

// Ends a slice: adds its sums to those of the slices before it, and begins at zero again.
template <int FRAGMENTS, int TILES>
__device__ __forceinline__ void end_slice(float (&totals)[FRAGMENTS][TILES][4], float (&sums)[FRAGMENTS][TILES][4]) {
#pragma unroll
    for (int f = 0; f < FRAGMENTS; f++)
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                totals[f][j][i] += sums[f][j][i];
                sums[f][j][i] = 0.0f;
            }
}
