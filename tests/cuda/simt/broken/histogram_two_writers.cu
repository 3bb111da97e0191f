// BROKEN: threads count in shared memory without atomics. Found in a checked module as a race.
extern "C" __global__ void __launch_bounds__(64) histogram(unsigned* counts, const unsigned* in) {
    __shared__ unsigned bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    bins[in[blockIdx.x * 64 + threadIdx.x] % 16]++;
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&counts[threadIdx.x], bins[threadIdx.x]);
}
