// Reverses each warp's 32 numbers through dynamic shared memory. The lanes of a warp share only with each other, so
// __syncwarp is enough.
extern "C" __global__ void __launch_bounds__(64) reverse(float* out, const float* in) {
    DYNAMIC_SHARED(float, values);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* own = values + warp * 32;
    own[lane] = in[blockIdx.x * 64 + threadIdx.x];
    __syncwarp();
    out[blockIdx.x * 64 + threadIdx.x] = own[31 - lane];
}
