// Products with quantised weights. The line before these defines WEIGHTS: one of the forms of `quantised.cuh`.
#include "quantised.cuh"

typedef WEIGHTS Weights;

extern "C" __global__ void __launch_bounds__(128, Weights::BLOCKS_8)
    few_rows_8(void* out, const u8* weights, const bf16* x, const float* bias, u32 rows, u32 outputs, u32 inputs,
               u32 finish, u32 stride) {
    few_rows<Weights, 1, 1, Weights::AHEAD_8>(Product{out, weights, x, bias, rows, outputs, inputs, finish, stride});
}

extern "C" __global__ void __launch_bounds__(128, Weights::BLOCKS_16)
    few_rows_16(void* out, const u8* weights, const bf16* x, const float* bias, u32 rows, u32 outputs, u32 inputs,
                u32 finish, u32 stride) {
    few_rows<Weights, 1, 2, Weights::AHEAD_16>(Product{out, weights, x, bias, rows, outputs, inputs, finish, stride});
}

extern "C" __global__ void __launch_bounds__(256, 1)
    some_rows_32(void* out, const u8* weights, const bf16* x, const float* bias, u32 rows, u32 outputs, u32 inputs,
                 u32 finish, u32 stride) {
    some_rows<Weights, 4, 1>(Product{out, weights, x, bias, rows, outputs, inputs, finish, stride});
}

extern "C" __global__ void __launch_bounds__(256, 1)
    many_rows(void* out, const u8* weights, const bf16* x, const float* bias, u32 rows, u32 outputs, u32 inputs,
              u32 finish, u32 stride) {
    many_rows_packed<Weights>(Product{out, weights, x, bias, rows, outputs, inputs, finish, stride});
}
