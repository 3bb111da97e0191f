// The functions between the two products of a feed-forward layer.
#pragma once

#include "device.cuh"

constexpr float LOG2_E = 1.44269504088896341f;

// x / (1 + e^-x).
__device__ __forceinline__ float silu(float x) { return x / (1.0f + ptx::exp2_approx(-LOG2_E * x)); }

// x * (1 + tanh(u)) / 2 with u = sqrt(2 / pi) * (x + 0.044715 x^3), as x / (1 + e^-2u): the same without cancellation.
__device__ __forceinline__ float gelu_tanh(float x) {
    constexpr float TWICE_ROOT = 1.59576912160573071f;
    float u = TWICE_ROOT * fmaf(0.044715f * x * x, x, x);
    return x / (1.0f + ptx::exp2_approx(-LOG2_E * u));
}
