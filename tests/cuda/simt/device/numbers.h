// Half-precision conversions, for sources that include <cuda_fp16.h> on a device. Only the conversions exist; kernels
// compute in f32. The product defines its own bf16.
#pragma once

struct __half {
    _Float16 value;
};
typedef __half half;

inline __half __float2half(float f) { return {static_cast<_Float16>(f)}; }
inline __half __float2half_rn(float f) { return {static_cast<_Float16>(f)}; }
inline float __half2float(__half h) { return static_cast<float>(h.value); }
inline __half __ushort_as_half(unsigned short bits) { return __builtin_bit_cast(__half, bits); }
inline unsigned short __half_as_ushort(__half h) { return __builtin_bit_cast(unsigned short, h); }
