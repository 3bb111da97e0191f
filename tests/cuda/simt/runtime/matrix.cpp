// Matrix operations of a warp: ldmatrix and mma.sync, with the layouts of fragments of the PTX manual.
#include <cstring>
#include <utility>

#include "state.h"

namespace simt {

constexpr unsigned ALL_LANES = ~0u;
constexpr size_t ROW_BYTES = 16;
constexpr unsigned LANES_PER_ROW = 4;  // a lane holds two numbers of 16 bits of each matrix

void load_matrix(unsigned* registers, unsigned count, const void* row, bool transposed) {
    const void* code = __builtin_return_address(0);
    const unsigned lane = current->lane;
    // Lanes beyond the first 8 * count give addresses that are not used.
    const bool used = lane < 8 * count;
    if (used && reinterpret_cast<uintptr_t>(row) % ROW_BYTES != 0) {
        fail(Outcome::MisalignedAddress, format("ldmatrix: the row at %p is not aligned to 16 bytes", row), code);
    }
    if (used && machine->checked) check_matrix_row(row, ROW_BYTES, code);
    const Slots& rows = collective(ALL_LANES, &row, sizeof row, "ldmatrix");
    for (unsigned matrix = 0; matrix < count; matrix++) {
        uint16_t pair[2];
        for (unsigned half = 0; half < 2; half++) {
            unsigned r = lane / LANES_PER_ROW;
            unsigned column = lane % LANES_PER_ROW * 2 + half;
            if (transposed) std::swap(r, column);
            const uint16_t* numbers;
            memcpy(&numbers, rows.bytes[matrix * 8 + r], sizeof numbers);
            if (machine->checked) check_matrix_element(numbers + column, sizeof *numbers, code);
            pair[half] = numbers[column];
        }
        registers[matrix] = pair[0] | static_cast<unsigned>(pair[1]) << 16;
    }
}

// Shape of one mma.
constexpr unsigned M = 16;
constexpr unsigned N = 8;
constexpr unsigned K = 16;

// Returns one of the two bf16 numbers of a register.
static float bf16_half(unsigned pair, unsigned half) {
    const unsigned bits = half != 0 ? pair & 0xffff0000u : pair << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

// Multiplies the fragments of all lanes, and leaves each lane its four sums. Products are summed from zero in rising k.
static void multiply_fragments(Slots& slots) {
    float a[M][K];
    float b[K][N];
    float sums[M][N] = {};
    for (unsigned lane = 0; lane < LANES; lane++) {
        unsigned fragment[6];
        memcpy(fragment, slots.bytes[lane], sizeof fragment);
        const unsigned group = lane / LANES_PER_ROW;
        const unsigned pair = lane % LANES_PER_ROW * 2;
        for (unsigned half = 0; half < 2; half++) {
            a[group][pair + half] = bf16_half(fragment[0], half);
            a[group + 8][pair + half] = bf16_half(fragment[1], half);
            a[group][pair + 8 + half] = bf16_half(fragment[2], half);
            a[group + 8][pair + 8 + half] = bf16_half(fragment[3], half);
            b[pair + half][group] = bf16_half(fragment[4], half);
            b[pair + 8 + half][group] = bf16_half(fragment[5], half);
        }
    }
    for (unsigned m = 0; m < M; m++) {
        for (unsigned k = 0; k < K; k++) {
            for (unsigned n = 0; n < N; n++) sums[m][n] += a[m][k] * b[k][n];
        }
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        const unsigned group = lane / LANES_PER_ROW;
        const unsigned pair = lane % LANES_PER_ROW * 2;
        const float own[4] = {sums[group][pair], sums[group][pair + 1], sums[group + 8][pair],
                              sums[group + 8][pair + 1]};
        memcpy(slots.bytes[lane], own, sizeof own);
    }
}

void multiply_bf16(float* d, const unsigned* a, const unsigned* b) {
    const unsigned fragment[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const Slots& slots = collective(ALL_LANES, fragment, sizeof fragment, "mma", multiply_fragments);
    float sums[4];
    memcpy(sums, slots.bytes[current->lane], sizeof sums);
    for (unsigned i = 0; i < 4; i++) d[i] += sums[i];
}

}  // namespace simt
