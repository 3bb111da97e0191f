// BROKEN: an index is multiplied by the wrong stride. Found in every module, as an illegal address.
extern "C" __global__ void __launch_bounds__(64) neighbours(float* out, const float* in, int count) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= count) return;
    out[static_cast<size_t>(i) << 32] = in[i] + (i + 1 < count ? in[i + 1] : 0.0f);
}
