// BROKEN: thread 0 adds up what the other threads write, with no barrier between. Found in a checked module as a race
// or an unwritten read.
extern "C" __global__ void __launch_bounds__(64) total(float* out, float* partial, unsigned* ticket, const float* in) {
    __shared__ bool last;
    __shared__ float values[64];
    values[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int i = 0; i < 64; i++) sum += values[i];
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
        if (last) __threadfence();
    }
    __syncthreads();
    if (!last || threadIdx.x >= 32) return;
    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += 32) sum += partial[i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x == 0) {
        *out = sum;
        *ticket = 0;  // for the next launch
    }
}
