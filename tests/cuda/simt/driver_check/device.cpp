// A device with the kernels of the tests.
#include "device.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace check {

namespace {

const char* const SOURCE = R"(
extern "C" __global__ void fill(int* to, int value, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = value;
}
extern "C" __global__ void add(int* to, const int* from, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] += from[i];
}
extern "C" __global__ void __launch_bounds__(32) read(int* to, const int* from, int at) {
    if (threadIdx.x == 0) to[0] = from[at];
}
extern "C" __global__ void far(int* to) {
    to[1 << 28] = 1;
}
extern "C" __global__ void step(int* to, int size) {
    *reinterpret_cast<int*>(reinterpret_cast<char*>(to) + size) = 1;
}
extern "C" __global__ void diverge() {
    if (threadIdx.x < 40) __syncthreads();
}
template <class Value, int Factor>
__global__ void scale(Value* to) {
    to[threadIdx.x] *= Factor;
}
)";

}  // namespace

void* use_device(int device) {
    OK(cuInit(0));
    void* context = nullptr;
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    return context;
}

void* compile(const std::string& source) {
    void* program = nullptr;
    nvrtcCreateProgram(&program, source.c_str(), "test.cu", 0, nullptr, nullptr);
    const int result = nvrtcCompileProgram(program, 0, nullptr);
    if (result != 0) {
        size_t bytes = 0;
        nvrtcGetProgramLogSize(program, &bytes);
        std::string log(bytes, '\0');
        nvrtcGetProgramLog(program, log.data());
        fprintf(stderr, "%s\n", log.c_str());
        _exit(EXIT_FAILURE);
    }
    size_t bytes = 0;
    nvrtcGetCUBINSize(program, &bytes);
    std::string cubin(bytes, '\0');
    nvrtcGetCUBIN(program, cubin.data());
    nvrtcDestroyProgram(&program);
    void* module = nullptr;
    OK(cuModuleLoadData(&module, cubin.data()));
    return module;
}

void* kernel(const std::string& name) {
    static void* module = compile(SOURCE);
    void* function = nullptr;
    OK(cuModuleGetFunction(&function, module, name.c_str()));
    return function;
}

CUdeviceptr ints(size_t count) {
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, count * sizeof(int)));
    return address;
}

int value_at(CUdeviceptr address) {
    int value = 0;
    OK(cuMemcpyDtoH_v2(&value, address, sizeof value));
    return value;
}

void* stream(unsigned flags) {
    void* made = nullptr;
    OK(cuStreamCreate(&made, flags));
    return made;
}

void* event() {
    void* made = nullptr;
    OK(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
    return made;
}

}  // namespace check
