// Adds to each number the next one; the last one gets zero.
extern "C" __global__ void __launch_bounds__(64) neighbours(float* out, const float* in, int count) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= count) return;
    out[i] = in[i] + (i + 1 < count ? in[i + 1] : 0.0f);
}
