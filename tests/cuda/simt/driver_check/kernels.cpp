// Tests of compilation, modules, limits of launches, and errors of devices.
#include <cstring>

#include "device.h"

using namespace check;

namespace {

constexpr int NVRTC_ERROR_COMPILATION = 6;

/// Compiles with options and headers. Returns the result; the log goes to `log`.
int compile_with(const std::string& source, std::vector<const char*> options, std::vector<const char*> headers,
                 std::vector<const char*> names, std::string& log) {
    void* program = nullptr;
    nvrtcCreateProgram(&program, source.c_str(), "k.cu", int(headers.size()), headers.data(), names.data());
    const int result = nvrtcCompileProgram(program, int(options.size()), options.data());
    size_t bytes = 0;
    nvrtcGetProgramLogSize(program, &bytes);
    log.resize(bytes);
    nvrtcGetProgramLog(program, log.data());
    nvrtcDestroyProgram(&program);
    return result;
}

/// Launches a kernel without arguments in a shape.
CUresult launch_shape(unsigned grid_y, unsigned block_x, unsigned block_z, unsigned shared) {
    return cuLaunchKernel(kernel("diverge"), 1, grid_y, 1, block_x, 1, block_z, shared, nullptr, nullptr, nullptr);
}

}  // namespace

TEST(compile_error, "nvrtc: the log has g++'s errors, with the program's name and line") {
    std::string log;
    const char* source = "\nextern \"C\" __global__ void k(int* p) { *p = missing; }\n";
    REQUIRE(compile_with(source, {}, {}, {}, log) == NVRTC_ERROR_COMPILATION);
    REQUIRE(log.find("k.cu:2:") != std::string::npos && log.find("missing") != std::string::npos);
}

TEST(headers, "nvrtc: headers, macros, and the emulator's ptx.cuh in the place of the program's") {
    std::string log;
    const char* source =
        "#include \"part.cuh\"\n#include \"ptx.cuh\"\n"
        "extern \"C\" __global__ void k(float* p) { *p = PART + VALUE + ptx::exp2_approx(1.0f); }\n";
    const int result = compile_with(source, {"--define-macro=VALUE=2", "--gpu-architecture=sm_90a", "--fmad=false"},
                                    {"#define PART 1\n", "#error the program's own ptx.cuh\n"},
                                    {"part.cuh", "ptx.cuh"}, log);
    if (result != 0) fprintf(stderr, "%s\n", log.c_str());
    REQUIRE(result == 0);
}

TEST(bad_option, "nvrtc: an option that does not exist is refused") {
    std::string log;
    REQUIRE(compile_with("", {"--no-such-option"}, {}, {}, log) == 5);
    REQUIRE(log.find("--no-such-option") != std::string::npos);
    REQUIRE(compile_with("", {"--gpu-architecture=sm_91"}, {}, {}, log) == 5);
}

TEST(expressions, "nvrtc: a name expression gives a template's kernel") {
    use_device();
    void* program = nullptr;
    const char* source = "template <class T, int F> __global__ void scale(T* to) { to[threadIdx.x] *= F; }\n";
    nvrtcCreateProgram(&program, source, "k.cu", 0, nullptr, nullptr);
    nvrtcAddNameExpression(program, "scale<int, 3>");
    REQUIRE(nvrtcCompileProgram(program, 0, nullptr) == 0);
    const char* name = nullptr;
    REQUIRE(nvrtcGetLoweredName(program, "scale<int, 3>", &name) == 0);
    char ptx[1024];
    nvrtcGetPTX(program, ptx);
    void* module = nullptr;
    OK(cuModuleLoadData(&module, ptx));
    void* function = nullptr;
    OK(cuModuleGetFunction(&function, module, name));
    const CUdeviceptr memory = ints(1);
    OK(launch(kernel("fill"), 1, nullptr, memory, 5, 1));
    OK(launch(function, 1, nullptr, memory));
    REQUIRE(value_at(memory) == 15);
}

TEST(bad_module, "modules: an image that is not one, and a kernel that is not there") {
    use_device();
    void* module = nullptr;
    EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n"));
    module = compile("extern \"C\" __global__ void k() {}\n");
    void* function = nullptr;
    EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "other"));
}

TEST(limits, "launches: the limits of blocks, grids and shared memory") {
    use_device();
    EXPECT(CUDA_ERROR_INVALID_VALUE, launch_shape(1, 1025, 1, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, launch_shape(1, 1, 65, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, launch_shape(65536, 1, 1, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, launch_shape(0, 1, 1, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, launch_shape(1, 32, 1, 49153));
    constexpr int SHARED_MAX = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(kernel("diverge"), SHARED_MAX, 232449));
    OK(cuFuncSetAttribute(kernel("diverge"), SHARED_MAX, 232448));
    OK(launch_shape(1, 32, 1, 232448));
    OK(cuCtxSynchronize());
}

TEST(attributes, "launches: attributes; a cluster of more than one block is refused") {
    use_device();
    CUlaunchAttribute attributes[3] = {};
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[0].value.number = 1;
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    attributes[2].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[2].value.clusterDim = {1, 1, 1};
    CUlaunchConfig config{1, 1, 1, 32, 1, 1, 0, stream(), attributes, 3};
    OK(cuLaunchKernelEx(&config, kernel("diverge"), nullptr, nullptr));
    OK(cuCtxSynchronize());
    attributes[2].value.clusterDim = {2, 1, 1};
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuLaunchKernelEx(&config, kernel("diverge"), nullptr, nullptr));
}

TEST(divergence, "errors: a divergent barrier is error 719, which stays") {
    use_device();
    OK(launch(kernel("diverge"), 64, nullptr));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(nullptr));
}

TEST(outside, "errors: a write far outside of all memory is error 700") {
    use_device();
    OK(launch(kernel("far"), 1, nullptr, ints(4)));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    REQUIRE(printed("kernel far failed"));
}

TEST(ecc, "failures: SIMT_FAIL fails the second launch with an ECC error", "SIMT_FAIL=ecc@2") {
    use_device();
    void* work = stream();
    OK(launch(kernel("fill"), 1, work, ints(1), 1, 1));
    OK(cuStreamSynchronize(work));
    OK(launch(kernel("fill"), 1, work, ints(1), 1, 1));
    EXPECT(CUDA_ERROR_ECC_UNCORRECTABLE, cuStreamSynchronize(work));
}

TEST(failures, "failures: simt_fail orders them from a test") {
    use_device();
    simt_fail("oom@2");
    ints(1);
    CUdeviceptr memory = 0;
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&memory, 4));
    OK(cuMemAlloc_v2(&memory, 4));
    simt_fail("lost@1");
    OK(launch(kernel("fill"), 1, nullptr, memory, 1, 1));
    EXPECT(CUDA_ERROR_DEVICE_UNAVAILABLE, cuCtxSynchronize());
}

TEST(calls, "calls: without cuInit, a context or a device they are refused") {
    CUdeviceptr memory = 0;
    void* context = nullptr;
    int count = 0;
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&memory, 4));
    OK(cuInit(0));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&memory, 4));
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&context, 1));
    const char* name = nullptr;
    OK(cuGetErrorName(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, &name));
    REQUIRE(strcmp(name, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION") == 0);
}

TEST(device, "devices: an H100, and the name says that there is none") {
    use_device();
    char name[64];
    OK(cuDeviceGetName(name, sizeof name, 0));
    REQUIRE(strcmp(name, "Emulated H100 (no GPU)") == 0);
    int processors = 0, shared = 0;
    OK(cuDeviceGetAttribute(&processors, 16, 0));
    OK(cuDeviceGetAttribute(&shared, 97, 0));
    REQUIRE(processors == 132 && shared == 227 * 1024);
}
