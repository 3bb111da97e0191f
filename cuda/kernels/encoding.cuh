// The encodings of domain, of a pool of bf16: bit for bit what its encoding.rs does, which says what they are.
#pragma once

#include "device.cuh"

// Which encoding; the host has the same numbers.
constexpr u32 EXACT = 0;
constexpr u32 INT8 = 1;
constexpr u32 FP8 = 2;

// Groups without a number as large as 2^-100 are taken for zeros.
constexpr u32 LEAST = (127 - 100) << 23;
// Bits that a scale drops, so that its product with any code is exact.
constexpr u32 SCALE_DROPPED = 0x7f;
// The magnitude of infinity in bf16, and what is no number there and in f32.
constexpr u32 INFINITE = 0x7f80;
constexpr u32 NOT_A_NUMBER = 0x7fc0;
constexpr u32 NOT_A_SCALE = 0x7fc00000;

struct Int8Code {
    static constexpr float LARGEST = 127.0f;

    // The last bit of a float of this size is worth 1, so adding rounds.
    __device__ static u32 of(float number) { return __float_as_uint(number + 12582912.0f) & 0xff; }
    __device__ static float value(u32 code) { return (float)(int)(signed char)code; }
};

// E4M3 without infinities. Without branches; callers have finite numbers that it can hold, except for rounding.
struct Fp8Code {
    static constexpr float LARGEST = 448.0f;
    static constexpr u32 MANTISSA = 3;
    // Mantissa bits of a float that are dropped, how much larger its bias is, and the smallest normal number's bits.
    static constexpr u32 DROPPED = 23 - MANTISSA;
    static constexpr u32 LIFT = 127 - 7;
    static constexpr u32 LEAST_NORMAL = (LIFT + 1) << 23;

    __device__ static u32 of(float number) {
        u32 bits = __float_as_uint(number);
        u32 magnitude = bits & 0x7fffffff;
        u32 rounded = magnitude + ((1u << (DROPPED - 1)) - 1) + (magnitude >> DROPPED & 1);
        u32 normal = (rounded >> DROPPED) - (LIFT << MANTISSA);
        // The last bit of this number is worth the smallest subnormal, so adding rounds to a count of those.
        constexpr u32 COUNTER = (LIFT + 1 + DROPPED) << 23;
        u32 subnormal = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(COUNTER)) - COUNTER;
        return (magnitude < LEAST_NORMAL ? subnormal : normal) | bits >> 31 << 7;
    }

    __device__ static float value(u32 code) {
        u32 magnitude = code & 0x7f;
        u32 normal = (magnitude << DROPPED) + (LIFT << 23);
        // With the exponent of the smallest normal number, which is taken off again.
        float subnormal = __uint_as_float((magnitude << DROPPED) + LEAST_NORMAL) - __uint_as_float(LEAST_NORMAL);
        u32 value = magnitude < 1 << MANTISSA ? __float_as_uint(subnormal) : normal;
        return __uint_as_float(value | (code & 0x80) << 24);
    }
};

// Returns the scale of a group, of which the largest number has this magnitude in bf16.
template <class Code>
__device__ __forceinline__ float scale_of(u32 largest) {
    if (largest >= INFINITE) return __uint_as_float(NOT_A_SCALE);
    float value = __uint_as_float(largest << 16);
    if (value < __uint_as_float(LEAST)) return 0.0f;
    return __uint_as_float(__float_as_uint(value / Code::LARGEST) & ~SCALE_DROPPED);
}

// Returns what numbers of a group with this scale are multiplied by.
__device__ __forceinline__ float inverse_of(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

__device__ __forceinline__ bool is_number(float scale) { return scale == scale; }

// Returns the codes of two numbers: the first in the lowest byte.
template <class Code>
__device__ __forceinline__ u32 encode_pair(u32 pair, float scale, float inverse) {
    if (!is_number(scale)) return 0;
    return Code::of(low(pair) * inverse) | Code::of(high(pair) * inverse) << 8;
}

// Returns the bits of the bf16 that is nearest, ties to even, to the product of a code's value and its scale.
template <class Code>
__device__ __forceinline__ u32 decode_number(u32 code, float scale) {
    if (!is_number(scale)) return NOT_A_NUMBER;
    u32 bits = __float_as_uint(Code::value(code) * scale);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16 & 0xffff;
}

// Returns two numbers of the two lowest bytes.
template <class Code>
__device__ __forceinline__ u32 decode_pair(u32 codes, float scale) {
    return decode_number<Code>(codes & 0xff, scale) | decode_number<Code>(codes >> 8 & 0xff, scale) << 16;
}
