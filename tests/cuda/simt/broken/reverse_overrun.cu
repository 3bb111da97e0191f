// BROKEN: the second warp begins one number too far, beyond the end of dynamic shared memory. Found in a checked
// module at the access, and in a plain one after the block.
extern "C" __global__ void __launch_bounds__(64) reverse(float* out, const float* in) {
    DYNAMIC_SHARED(float, values);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* own = values + warp * 33;
    own[lane] = in[blockIdx.x * 64 + threadIdx.x];
    __syncwarp();
    out[blockIdx.x * 64 + threadIdx.x] = own[31 - lane];
}
