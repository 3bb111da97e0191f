// Copies a structure with padding, which no thread writes, through shared memory.
struct Padded {
    unsigned number;
    unsigned long long wide;
};

extern "C" __global__ void __launch_bounds__(32) padding(unsigned long long* out) {
    __shared__ Padded shared;
    if (threadIdx.x == 0) {
        shared.number = 5;
        shared.wide = 7;
    }
    __syncthreads();
    const Padded copy = shared;
    out[threadIdx.x] = copy.number + copy.wide;
}
