// BROKEN: no __syncwarp lies between the lanes that write and those that read. Found in a checked module as a race or
// an unwritten read.
extern "C" __global__ void __launch_bounds__(64) reverse(float* out, const float* in) {
    DYNAMIC_SHARED(float, values);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* own = values + warp * 32;
    own[lane] = in[blockIdx.x * 64 + threadIdx.x];
    out[blockIdx.x * 64 + threadIdx.x] = own[31 - lane];
}
