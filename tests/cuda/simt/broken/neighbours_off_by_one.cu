// BROKEN: the last thread reads one number beyond the end. Found in a checked module as an illegal address.
extern "C" __global__ void __launch_bounds__(64) neighbours(float* out, const float* in, int count) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= count) return;
    out[i] = in[i] + in[i + 1];
}
