// The emulated version of the product's header of the same name, which is the only one with inline PTX. The functions
// and their meaning are the same; the look-alike of nvrtc puts this file in its place. simt.h comes before it.
#pragma once

namespace ptx {

// An address of shared memory: 32 bits on a device, a pointer to bytes here. Kernels add offsets to it.
typedef unsigned char* shared_t;

inline shared_t shared(const void* p) { return static_cast<shared_t>(const_cast<void*>(p)); }

// cp.async.cg, 16 bytes. An unwanted copy writes zeros and does not read its source.
inline void copy_async16(shared_t to, const void* from, bool wanted) { ::simt::copy_async16(to, from, wanted); }

inline void copy_commit() { ::simt::copy_commit(); }

// Waits until at most N groups of this thread's copies are under way.
template <int N>
inline void copy_wait() {
    ::simt::copy_wait(N);
}

// ldmatrix.m8n8, four and two matrices, plain and transposed.
inline void load_matrix_x4(unsigned (&r)[4], shared_t row) { ::simt::load_matrix(r, 4, row, false); }
inline void load_matrix_x4_transposed(unsigned (&r)[4], shared_t row) { ::simt::load_matrix(r, 4, row, true); }
inline void load_matrix_x2(unsigned (&r)[2], shared_t row) { ::simt::load_matrix(r, 2, row, false); }
inline void load_matrix_x2_transposed(unsigned (&r)[2], shared_t row) { ::simt::load_matrix(r, 2, row, true); }

// mma.sync m16n8k16 row.col, bf16 inputs, f32 sums. The order here: the 16 products of an element are summed from zero
// in rising k, in f32, and the sum is added to d. A device's order inside one mma is not documented.
inline void multiply_bf16(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                          unsigned b1) {
    const unsigned a[4] = {a0, a1, a2, a3};
    const unsigned b[2] = {b0, b1};
    ::simt::multiply_bf16(d, a, b);
}

// Loads of 16 bytes: ld.global.nc with hints on a device.
inline uint4 load_streamed(const void* p) { return ::simt::load16(p); }
inline uint4 load_cached(const void* p) { return ::simt::load16(p); }

// Rounds to the nearest bf16, ties to even. NaN becomes 0x7fff, as cvt.rn does.
inline unsigned round_bf16(float value) {
    const unsigned bits = __builtin_bit_cast(unsigned, value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

// Cuts a number to f32, and sets the last bit if that loses anything. Rounding the result to a shorter format gives
// the same as rounding the number itself.
inline float round_to_odd(double number) {
    float cut = static_cast<float>(number);
    if (static_cast<double>(cut) == number || number != number) return cut;
    unsigned bits = __builtin_bit_cast(unsigned, cut);
    const bool away_from_zero = __builtin_fabs(static_cast<double>(cut)) > __builtin_fabs(number);
    if (away_from_zero) bits--;
    return __builtin_bit_cast(float, bits | 1u);
}

// cvt.rn.bf16x2.f32: `low` goes to the low half.
inline unsigned round_bf16x2(float low, float high) { return round_bf16(high) << 16 | round_bf16(low); }

// fma.rn.bf16x2: a * b + c of each half, rounded once. The sum in f64 is exact unless product and c are more than 37
// binary orders apart. Then a tie may be rounded the other way than on a device.
inline unsigned multiply_add_bf16x2(unsigned a, unsigned b, unsigned c) {
    const auto half = [](unsigned pair, unsigned shift) {
        return static_cast<double>(__builtin_bit_cast(float, (pair >> shift & 0xffffu) << 16));
    };
    unsigned result = 0;
    for (unsigned shift = 0; shift <= 16; shift += 16) {
        const double sum = half(a, shift) * half(b, shift) + half(c, shift);
        result |= round_bf16(round_to_odd(sum)) << shift;
    }
    return result;
}

// cvt.f32.f16, of the bits of the number.
inline float widen_half(unsigned short bits) { return static_cast<float>(__builtin_bit_cast(_Float16, bits)); }

// ex2.approx.ftz: subnormal arguments and results become zero.
inline float exp2_approx(float x) {
    const float smallest = 0x1p-126f;
    const float result = __builtin_exp2f(x);
    return result < smallest ? 0.0f : result;
}

// griddepcontrol.
inline void dependents_wait() { ::simt::dependents_wait(); }
inline void dependents_launch() { ::simt::dependents_launch(); }

// Order for the whole system, for words that the host or another device reads.
inline void store_release_system(unsigned long long* p, unsigned long long v) { ::simt::store_release(p, v); }
inline unsigned long long load_acquire_system(const unsigned long long* p) { return ::simt::load_acquire(p); }
inline void fence_system() { ::simt::fence(); }

// bar.sync with a number, for a part of the block: `threads` is a multiple of 32.
inline void barrier_sync(unsigned number, unsigned threads, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE()) {
    ::simt::barrier(number, threads, false, {file, line});
}

}  // namespace ptx
