// BROKEN: lane 15 reads lane 16, which does not take part. Found in every module, as a source lane outside of the
// mask.
extern "C" __global__ void __launch_bounds__(64) exchange(float* out, const float* in) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    const int lane = threadIdx.x % 32;
    float value = in[i];
    if (lane < 16) value = __shfl_sync(0x0000ffffu, value, (lane + 1) % 32);
    out[i] = value;
}
