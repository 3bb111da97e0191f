// Loops to measure the emulator: shuffles, barriers, or reads and writes of memory.
extern "C" __global__ void __launch_bounds__(128) speed(float* memory, int kind, int repeats) {
    __shared__ float shared[128];
    float value = threadIdx.x;
    shared[threadIdx.x] = value;
    for (int i = 0; i < repeats; i++) {
        switch (kind) {
            case 0: value = __shfl_xor_sync(0xffffffffu, value, 1); break;
            case 1: __syncthreads(); break;
            case 2: shared[threadIdx.x] += 1.0f; break;
            case 3: memory[threadIdx.x] += 1.0f; break;
        }
    }
    memory[threadIdx.x] = value + shared[threadIdx.x];
}
