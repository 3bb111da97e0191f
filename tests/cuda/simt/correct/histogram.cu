// Counts numbers below 16 with atomics: in shared memory first, then in global memory.
extern "C" __global__ void __launch_bounds__(64) histogram(unsigned* counts, const unsigned* in) {
    __shared__ unsigned bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[in[blockIdx.x * 64 + threadIdx.x] % 16], 1u);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&counts[threadIdx.x], bins[threadIdx.x]);
}
