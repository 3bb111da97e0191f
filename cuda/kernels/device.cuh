// What all kernels share: number formats, reductions in one order, and shared memory.
//
// Kernels of the `exact` set are compiled without contraction (`--fmad=false`); where a product and a sum are one
// operation, fmaf says so. The bits of a row then do not depend on what else a kernel does.
#pragma once

#include "ptx.cuh"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;

// nvrtc has no INFINITY.
__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

// A number of 16 bits with the exponent of a float.
struct bf16 {
    u16 bits;
};

__device__ __forceinline__ float widen(bf16 v) { return __uint_as_float((u32)v.bits << 16); }

// The lower and the upper number of two.
__device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// Rounds to nearest, ties to even.
__device__ __forceinline__ bf16 round_bf16(float v) { return bf16{(u16)ptx::round_bf16x2(v, 0.0f)}; }

// Whether a number is infinite or none, told by its exponent.
__device__ __forceinline__ bool is_broken(float v) { return (__float_as_uint(v) & 0x7f800000u) == 0x7f800000u; }

// Tells that a row has a number that is infinite or none. Several threads may tell it of one row.
__device__ __forceinline__ void tell_broken(u32* broken, u32 row) { atomicOr(broken + row, 1u); }

// Dynamic shared memory, aligned for every access.
#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(type, name)                                   \
    extern __shared__ __align__(1024) unsigned char dynamic_shared[]; \
    type* name = reinterpret_cast<type*>(dynamic_shared)
#endif

// Sums over a group of lanes, in the order of a tree: all lanes get the same bits.
template <int LANES = WARP>
__device__ __forceinline__ float sum_lanes(float v) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) v += __shfl_xor_sync(ALL_LANES, v, distance);
    return v;
}

// The largest number of a group of lanes; numbers that are none are passed over.
template <int LANES = WARP>
__device__ __forceinline__ float max_lanes(float v) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, distance));
    return v;
}
