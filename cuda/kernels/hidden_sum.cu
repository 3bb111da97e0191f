// Sums of normed rows in fixed point, as domain's HiddenSum has them: the order of rows makes no difference.
#include "device.cuh"

typedef long long i64;

constexpr int THREADS = 256;
// Numbers of a 16-byte access.
constexpr int STEP = 8;
// Columns of a block, and the rows that it reads at once.
constexpr int LANES = 16;
constexpr int COLUMNS = LANES * STEP;
constexpr int ROWS = THREADS / LANES;

// Fraction bits of a sum.
constexpr int FRACTION_BITS = 32;
constexpr i64 LARGEST = 0x7fffffffffffffffll;

// Rows that are added up, one behind the other; the host has the same.
struct Rows {
    u32 first;
    u32 count;
    // Which sum they are added to.
    u32 sum;
};

// Beyond the largest number a sum stays there.
__device__ __forceinline__ i64 add(i64 a, i64 b) {
    i64 sum = (i64)((u64)a + (u64)b);
    if (((a ^ sum) & (b ^ sum)) >= 0) return sum;
    return a < 0 ? -LARGEST - 1 : LARGEST;
}

// Returns a number in units of 2^-32, rounded to nearest, ties away from zero. It needs no double, of which small
// cards have few. What is no number is 0; its row is told as broken.
__device__ __forceinline__ i64 fixed(u32 bits) {
    constexpr int MANTISSA_BITS = 7;
    constexpr int BIAS = 127;
    u32 exponent = bits >> MANTISSA_BITS & 0xff;
    u32 mantissa = bits & 0x7f;
    if (exponent == 0xff && mantissa != 0) return 0;
    mantissa |= exponent == 0 ? 0 : 1 << MANTISSA_BITS;
    int shift = (int)(exponent == 0 ? 1 : exponent) - BIAS - MANTISSA_BITS + FRACTION_BITS;
    u64 magnitude;
    if (shift >= 63 - MANTISSA_BITS) {
        magnitude = LARGEST;
    } else if (shift >= 0) {
        magnitude = (u64)mantissa << shift;
    } else {
        // Behind as many places nothing is left, not even of a half.
        magnitude = shift < -MANTISSA_BITS - 2 ? 0 : (mantissa + (1u << (-shift - 1))) >> -shift;
    }
    bool is_negative = (bits & 0x8000) != 0;
    // The least number is one more than the largest, below zero.
    if (is_negative && magnitude == LARGEST) return -LARGEST - 1;
    return is_negative ? -(i64)magnitude : (i64)magnitude;
}

// Adds the rows of a list to their sums, [sums][width]. A block has some columns of an entry, and is the only one that
// writes them.
extern "C" __global__ void __launch_bounds__(THREADS, 3)
    hidden_sum(const bf16* normed, const Rows* lists, const u32* count, i64* sums, u32* broken, u32 width) {
    __shared__ i64 partial[ROWS][COLUMNS];
    ptx::dependents_wait();
    ptx::dependents_launch();
    u32 own_row = threadIdx.x / LANES;
    u32 own_columns = threadIdx.x % LANES * STEP;
    u32 column = blockIdx.x * COLUMNS + own_columns;
    for (u32 list = blockIdx.y; list < *count; list += gridDim.y) {
        Rows rows = lists[list];
        i64 own[STEP] = {};
        for (u32 i = own_row; i < rows.count && column < width; i += ROWS) {
            u32 row = rows.first + i;
            uint4 numbers = *(const uint4*)(normed + (size_t)row * width + column);
            const u32* pairs = (const u32*)&numbers;
            bool is_row_broken = false;
#pragma unroll
            for (int pair = 0; pair < STEP / 2; pair++) {
                is_row_broken |= is_broken(low(pairs[pair])) | is_broken(high(pairs[pair]));
                own[2 * pair] = add(own[2 * pair], fixed(pairs[pair] & 0xffff));
                own[2 * pair + 1] = add(own[2 * pair + 1], fixed(pairs[pair] >> 16));
            }
            if (is_row_broken) tell_broken(broken, row);
        }
#pragma unroll
        for (int i = 0; i < STEP; i++) partial[own_row][own_columns + i] = own[i];
        __syncthreads();
        u32 summed = blockIdx.x * COLUMNS + threadIdx.x;
        if (threadIdx.x < COLUMNS && summed < width) {
            i64* to = sums + (size_t)rows.sum * width + summed;
            i64 sum = *to;
            for (int row = 0; row < ROWS; row++) sum = add(sum, partial[row][threadIdx.x]);
            *to = sum;
        }
        __syncthreads();
    }
}
