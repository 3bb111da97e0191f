// BROKEN: lane 3 returns, and its warp waits for it in a shuffle. Found in every module, as a mask with a lane that
// has exited or as a lane that exits while others wait.
extern "C" __global__ void __launch_bounds__(64) exchange(float* out, const float* in) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    const int lane = threadIdx.x % 32;
    if (lane == 3) return;
    float value = in[i];
    if (lane < 16) value = __shfl_sync(0x0000ffffu, value, (lane + 1) % 16);
    out[i] = value;
}
