// Products with weights in bf16, row after row: [outputs][inputs].
#include "product.cuh"

// 16 rows of weights. A lane reads 16 bytes of rows g and g + 8: with the activations' permutation of a group's inputs
// they are the operands of two matrix instructions as they are.
struct Bf16 {
    static constexpr int GROUPS = 1;
    static constexpr bool IS_PADDED = false;
    struct Unit {
        uint4 upper, lower;
    };
    typedef Unit Group;
    struct RowSums {};

    const u8* upper;
    const u8* lower;

    Bf16() = default;

    // Rows beyond the last repeat it: nothing is made of their sums.
    __device__ __forceinline__ Bf16(const Product& p, u32 fragment) {
        u32 row = fragment * FRAGMENT + threadIdx.x % WARP / 4;
        upper = of_row(p, row);
        lower = of_row(p, row + FRAGMENT / 2);
    }

    static __device__ __forceinline__ const u8* of_row(const Product& p, u32 row) {
        return p.weights + (size_t)min(row, p.outputs - 1) * p.inputs * sizeof(bf16) + threadIdx.x % 4 * 16;
    }

    __device__ __forceinline__ Unit load(u32 unit) const {
        size_t at = (size_t)unit * GROUP_BYTES;
        return Unit{ptx::load_streamed(upper + at), ptx::load_streamed(lower + at)};
    }

    static __device__ __forceinline__ Group group(const Unit& unit, int) { return unit; }

    static __device__ __forceinline__ uint4 activations(const u8* row, u32 t) { return *(const uint4*)(row + t * 16); }

    static __device__ __forceinline__ RowSums row_sums(uint4) { return RowSums{}; }

    static __device__ __forceinline__ void multiply(float (&sums)[4], const Group& w, uint4 x, RowSums) {
        ptx::multiply_bf16(sums, w.upper.x, w.lower.x, w.upper.y, w.lower.y, x.x, x.y);
        ptx::multiply_bf16(sums, w.upper.z, w.lower.z, w.upper.w, w.lower.w, x.z, x.w);
    }
};

extern "C" __global__ void __launch_bounds__(128, 3)
    few_rows_8(void* out, const u8* weights, const bf16* x, const float* bias, u32 rows, u32 outputs, u32 inputs,
               u32 finish, u32 stride) {
    few_rows<Bf16, 1, 1, 8>(Product{out, weights, x, bias, rows, outputs, inputs, finish, stride});
}

extern "C" __global__ void __launch_bounds__(128, 3)
    few_rows_16(void* out, const u8* weights, const bf16* x, const float* bias, u32 rows, u32 outputs, u32 inputs,
                u32 finish, u32 stride) {
    few_rows<Bf16, 1, 2, 7>(Product{out, weights, x, bias, rows, outputs, inputs, finish, stride});
}

// For activations that do not fit into the first-level cache: they are read half as often.
extern "C" __global__ void __launch_bounds__(128, 2)
    few_rows_16_wide(void* out, const u8* weights, const bf16* x, const float* bias, u32 rows, u32 outputs, u32 inputs,
                     u32 finish, u32 stride) {
    few_rows<Bf16, 2, 2, 6>(Product{out, weights, x, bias, rows, outputs, inputs, finish, stride});
}

extern "C" __global__ void __launch_bounds__(256, 1)
    some_rows_32(void* out, const u8* weights, const bf16* x, const float* bias, u32 rows, u32 outputs, u32 inputs,
                 u32 finish, u32 stride) {
    some_rows<Bf16, 4, 4>(Product{out, weights, x, bias, rows, outputs, inputs, finish, stride});
}

extern "C" __global__ void __launch_bounds__(256, 1)
    some_rows_64(void* out, const u8* weights, const bf16* x, const float* bias, u32 rows, u32 outputs, u32 inputs,
                 u32 finish, u32 stride) {
    some_rows<Bf16, 8, 4>(Product{out, weights, x, bias, rows, outputs, inputs, finish, stride});
}

// A block has 128 outputs and 128 rows, a warp 64 outputs and 32 rows. Both operands go through shared memory, a group
// at a time; rows of 64 bytes there need no swizzle, since a quarter of a warp reads 128 bytes in a row. Slices follow
// one another, and are added to a second sum. Grid: output blocks * row blocks.
extern "C" __global__ void __launch_bounds__(256, 1)
    many_rows(void* out, const u8* weights, const bf16* x, const float* bias, u32 rows, u32 outputs, u32 inputs,
              u32 finish, u32 stride) {
    constexpr int FRAGMENTS = 4, TILES = 4, THREADS = 256;
    constexpr int STAGE = 2 * SIDE * GROUP_BYTES, COPIES = STAGE / 16 / THREADS;
    typedef Writer<1, SIDE, SIDE, THREADS> Out;
    Product p{out, weights, x, bias, rows, outputs, inputs, finish, stride};
    u8* shared = shared_memory();
    uint2 block = block_of<SIDE>(p);
    u32 first_output = block.x * SIDE, first_row = block.y * SIDE, groups = p.groups();
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    u32 own_output = warp % 2 * FRAGMENTS * FRAGMENT, own_row = warp / 2 * TILES * TILE;
    ptx::dependents_wait();
    ptx::dependents_launch();

    // The first half of a thread's copies are weights, the others activations.
    const u8* sources[COPIES];
    bool is_there[COPIES];
#pragma unroll
    for (int i = 0; i < COPIES; i++) {
        bool is_weight = i < COPIES / 2;
        u32 row = (is_weight ? first_output : first_row) + (i * THREADS + threadIdx.x) / 4 % SIDE;
        is_there[i] = row < (is_weight ? outputs : rows);
        const u8* matrix = is_weight ? weights : (const u8*)x;
        sources[i] = matrix + (size_t)(is_there[i] ? row : 0) * inputs * sizeof(bf16) + threadIdx.x % 4 * 16;
    }
    auto copy = [&](u32 group) {
        u8* stage = shared + group % STAGES * STAGE;
        if (group < groups) {
#pragma unroll
            for (int i = 0; i < COPIES; i++) {
                ptx::shared_t to = ptx::shared(stage + (i * THREADS + threadIdx.x) * 16);
                ptx::copy_async16(to, sources[i] + (size_t)group * GROUP_BYTES, is_there[i]);
            }
        }
        ptx::copy_commit();
    };
#pragma unroll
    for (int group = 0; group < STAGES - 1; group++) copy(group);

    float sums[FRAGMENTS][TILES][4] = {}, totals[FRAGMENTS][TILES][4] = {};
    u32 lane_at = lane / 4 * GROUP_BYTES, t = lane % 4;
    for (u32 slice = 0; slice < SLICES; slice++) {
        u32 end = slice_begin(groups, slice + 1);
        for (u32 group = slice_begin(groups, slice); group < end; group++) {
            ptx::copy_wait<STAGES - 2>();
            __syncthreads();
            copy(group + STAGES - 1);
            const u8* w = shared + group % STAGES * STAGE + own_output * GROUP_BYTES + lane_at;
            const u8* rows_at = shared + group % STAGES * STAGE + (SIDE + own_row) * GROUP_BYTES + lane_at;
            Bf16::Unit unit[FRAGMENTS];
#pragma unroll
            for (int f = 0; f < FRAGMENTS; f++) {
                const u8* upper = w + f * FRAGMENT * GROUP_BYTES + t * 16;
                unit[f] = Bf16::Unit{*(const uint4*)upper, *(const uint4*)(upper + FRAGMENT / 2 * GROUP_BYTES)};
            }
            add_group<Bf16>(sums, unit, 0, [&](int j) { return rows_at + j * TILE * GROUP_BYTES; });
        }
        end_slice(totals, sums);
    }
    ptx::copy_wait<0>();
    __syncthreads();
    float* all = (float*)shared;
    lay_sums(all + own_row * Out::STRIDE + own_output, Out::STRIDE, totals);
    __syncthreads();
    Out{p, all, first_row, first_output}.write();
}
