// As total.cu, but every thread leaves a number in global memory and fences, before the ticket and after it.
extern "C" __global__ void __launch_bounds__(64) total(float* out, float* partial, unsigned* ticket, const float* in) {
    __shared__ bool last;
    float sum = in[blockIdx.x * 64 + threadIdx.x];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) partial[blockIdx.x * 2 + threadIdx.x / 32] = sum;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!last || threadIdx.x > 0) return;
    __threadfence();
    sum = 0.0f;
    for (unsigned i = 0; i < gridDim.x * 2; i++) sum += partial[i];
    *out = sum;
}
