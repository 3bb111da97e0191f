// CUDA's arithmetic, bit and memory intrinsics. Rounding is to nearest, as on a device. The approximate functions are
// the exact ones of libm: their last bits differ from a device's.
// (The file is not named math.h, which would hide the header of libm.)
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "calls.h"

// min and max of mixed types compare in the common type, as CUDA's overloads do.
template <class A, class B>
constexpr auto min(A a, B b) -> std::common_type_t<A, B> {
    using C = std::common_type_t<A, B>;
    return static_cast<C>(b) < static_cast<C>(a) ? static_cast<C>(b) : static_cast<C>(a);
}

template <class A, class B>
constexpr auto max(A a, B b) -> std::common_type_t<A, B> {
    using C = std::common_type_t<A, B>;
    return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(b) : static_cast<C>(a);
}

// Arithmetic that is rounded once and never contracted.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }

// Approximate functions.
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// Bits of numbers.
inline float __uint_as_float(unsigned u) { return __builtin_bit_cast(float, u); }
inline float __int_as_float(int i) { return __builtin_bit_cast(float, i); }
inline unsigned __float_as_uint(float f) { return __builtin_bit_cast(unsigned, f); }
inline int __float_as_int(float f) { return __builtin_bit_cast(int, f); }
inline long long __double_as_longlong(double d) { return __builtin_bit_cast(long long, d); }
inline double __longlong_as_double(long long i) { return __builtin_bit_cast(double, i); }

// Conversions of floats to integers, rounded as the name says. NaN becomes 0, and what is out of range its bound.
template <class I>
inline I simt_to_integer(float rounded, float above) {
    if (rounded != rounded) return 0;
    if (rounded >= above) return std::numeric_limits<I>::max();
    if (rounded <= static_cast<float>(std::numeric_limits<I>::min())) return std::numeric_limits<I>::min();
    return static_cast<I>(rounded);
}
inline int __float2int_rn(float x) { return simt_to_integer<int>(rintf(x), 0x1p31f); }
inline int __float2int_rz(float x) { return simt_to_integer<int>(truncf(x), 0x1p31f); }
inline int __float2int_rd(float x) { return simt_to_integer<int>(floorf(x), 0x1p31f); }
inline int __float2int_ru(float x) { return simt_to_integer<int>(ceilf(x), 0x1p31f); }
inline unsigned __float2uint_rn(float x) { return simt_to_integer<unsigned>(rintf(x), 0x1p32f); }
inline unsigned __float2uint_rz(float x) { return simt_to_integer<unsigned>(truncf(x), 0x1p32f); }
inline unsigned long long __float2ull_rn(float x) { return simt_to_integer<unsigned long long>(rintf(x), 0x1p64f); }
inline unsigned long long __float2ull_rz(float x) { return simt_to_integer<unsigned long long>(truncf(x), 0x1p64f); }
inline float __int2float_rn(int i) { return static_cast<float>(i); }
inline float __uint2float_rn(unsigned u) { return static_cast<float>(u); }
inline float __ull2float_rn(unsigned long long u) { return static_cast<float>(u); }

// Integers.
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>(int64_t{a} * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (unsigned bit = 0; bit < 32; bit++) reversed |= (x >> bit & 1u) << (31 - bit);
    return reversed;
}

// Picks four of the eight bytes of two words. A selector with bit 3 set repeats the byte's sign.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const uint64_t bytes = uint64_t{high} << 32 | low;
    unsigned picked = 0;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned choice = selector >> (4 * i) & 0xf;
        unsigned byte = static_cast<unsigned>(bytes >> (8 * (choice & 7)) & 0xff);
        if (choice & 8) byte = byte & 0x80 ? 0xff : 0;
        picked |= byte << (8 * i);
    }
    return picked;
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (shift & 31));
}

// Loads and stores with cache hints: plain ones here.
template <class T> inline T __ldg(const T* p) { return *p; }
template <class T> inline T __ldca(const T* p) { return *p; }
template <class T> inline T __ldcg(const T* p) { return *p; }
template <class T> inline T __ldcs(const T* p) { return *p; }
template <class T> inline T __ldlu(const T* p) { return *p; }
template <class T> inline void __stcg(T* p, T v) { *p = v; }
template <class T> inline void __stcs(T* p, T v) { *p = v; }
template <class T> inline void __stwb(T* p, T v) { *p = v; }

// Time has no meaning here: a clock that does not move.
inline long long clock64() { return 0; }
inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap() { ::simt::trap("__trap()", {"", 0}); }
