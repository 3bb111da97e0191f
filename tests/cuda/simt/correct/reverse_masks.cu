// As reverse.cu, but the two halves of a warp first exchange within themselves by masks of 16 lanes.
extern "C" __global__ void __launch_bounds__(64) reverse(float* out, const float* in) {
    DYNAMIC_SHARED(float, values);
    const int lane = threadIdx.x % 32, half = lane / 16, warp = threadIdx.x / 32;
    const unsigned mask = half == 0 ? 0x0000ffffu : 0xffff0000u;
    float* own = values + warp * 32;
    own[lane] = in[blockIdx.x * 64 + threadIdx.x];
    __syncwarp(mask);
    // Lane l of a half takes number 15 - l of its half, then the halves swap.
    const float reversed = own[half * 16 + 15 - lane % 16];
    float result = 0.0f;
    for (int repeat = 0; repeat < 3; repeat++) result = __shfl_sync(mask, reversed, lane);
    out[blockIdx.x * 64 + threadIdx.x] = __shfl_xor_sync(0xffffffffu, result, 16);
}
