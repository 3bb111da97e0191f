// BROKEN: a warp reads the numbers of the other one, and only __syncwarp lies between. Found in a checked module as a
// race, or as an unwritten read if the other warp has not run.
extern "C" __global__ void __launch_bounds__(64) reverse(float* out, const float* in) {
    DYNAMIC_SHARED(float, values);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* own = values + warp * 32;
    own[lane] = in[blockIdx.x * 64 + threadIdx.x];
    __syncwarp();
    out[blockIdx.x * 64 + threadIdx.x] = values[(1 - warp) * 32 + lane];
}
