// Tests of the look-alike of cublasLt: products against a plain sum, algorithms, and the order of its sums.
#include <cmath>
#include <cstring>
#include <random>

#include "device.h"

using namespace check;

extern "C" {
int cublasLtCreate(void**);
int cublasLtMatrixLayoutCreate(void**, int, uint64_t, uint64_t, int64_t);
int cublasLtMatmulDescCreate(void**, int, int);
int cublasLtMatmulDescSetAttribute(void*, int, const void*, size_t);
int cublasLtMatmulPreferenceCreate(void**);
int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t);
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void*, int*);
int cublasLtMatmulAlgoConfigGetAttribute(const void*, int, void*, size_t, size_t*);
int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*,
                   void*, void*, const void*, void*, size_t, void*);
}

namespace {

constexpr int F32 = 0;
constexpr int BF16 = 14;
constexpr int COMPUTE_32F = 68;
constexpr int TRANSA = 3;
constexpr int EPILOGUE = 7;
constexpr int BIAS_POINTER = 8;
constexpr int WORKSPACE_MAX = 1;
constexpr int NOT_SUPPORTED = 15;

struct Heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

using Values = std::vector<uint16_t>;

/// Returns a bf16 as a float.
float to_float(uint16_t value) {
    const uint32_t bits = uint32_t(value) << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/// Returns random bf16 numbers between -1 and 1, of several magnitudes, so that sums are rounded.
Values random_values(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    Values values;
    for (size_t i = 0; i < count; i++) {
        const uint32_t magnitude = 0x3a00 + random() % (0x3f80 - 0x3a00);
        values.push_back(uint16_t(magnitude | (random() % 2 ? 0x8000 : 0)));
    }
    return values;
}

/// Copies values to new device memory.
CUdeviceptr upload(const Values& values) {
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, values.size() * 2));
    OK(cuMemcpyHtoD_v2(address, values.data(), values.size() * 2));
    return address;
}

/// Returns an address as the pointer that the library takes.
void* pointer(CUdeviceptr address) {
    return reinterpret_cast<void*>(address);
}

/// A product of a weight and the rows of a batch: D = W^T X, with f32 results.
struct Product {
    uint64_t rows, columns, depth;
    void* handle = nullptr;
    void* description = nullptr;
    void* weight = nullptr;
    void* input = nullptr;
    void* output = nullptr;

    Product(uint64_t r, uint64_t c, uint64_t d) : rows(r), columns(c), depth(d) {
        const int transposed = 1;
        cublasLtCreate(&handle);
        cublasLtMatmulDescCreate(&description, COMPUTE_32F, F32);
        cublasLtMatmulDescSetAttribute(description, TRANSA, &transposed, sizeof transposed);
        cublasLtMatrixLayoutCreate(&weight, BF16, depth, rows, int64_t(depth));
        cublasLtMatrixLayoutCreate(&input, BF16, depth, columns, int64_t(depth));
        cublasLtMatrixLayoutCreate(&output, F32, rows, columns, int64_t(rows));
    }

    /// Returns the algorithms that a workspace of this size allows.
    std::vector<Heuristic> algorithms(uint64_t workspace) const {
        void* preference = nullptr;
        cublasLtMatmulPreferenceCreate(&preference);
        cublasLtMatmulPreferenceSetAttribute(preference, WORKSPACE_MAX, &workspace, sizeof workspace);
        std::vector<Heuristic> found(8);
        int count = 0;
        REQUIRE(cublasLtMatmulAlgoGetHeuristic(handle, description, weight, input, output, output, preference, 8,
                                               found.data(), &count) == 0);
        found.resize(size_t(count));
        return found;
    }

    /// Enqueues the product.
    int run(CUdeviceptr w, CUdeviceptr x, CUdeviceptr to, const Heuristic* algorithm, CUdeviceptr workspace,
            void* stream) const {
        const float one = 1, zero = 0;
        return cublasLtMatmul(handle, description, &one, pointer(w), weight, pointer(x), input, &zero, pointer(to),
                              output, pointer(to), output, algorithm, pointer(workspace),
                              algorithm ? algorithm->workspace : 0, stream);
    }
};

/// Returns results that were computed on the device.
std::vector<float> download(CUdeviceptr address, size_t count) {
    std::vector<float> values(count);
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(values.data(), address, count * sizeof(float)));
    return values;
}

}  // namespace

TEST(product, "cublasLt: a product and its bias agree with a plain sum") {
    use_device();
    const Product product(24, 5, 256);
    const Values w = random_values(24 * 256, 1), x = random_values(5 * 256, 2);
    const CUdeviceptr to = ints(24 * 5), bias = ints(24);
    OK(launch(kernel("fill"), 32, nullptr, bias, 0x40000000, 24));  // 2.0
    const int epilogue = 4;
    const void* bias_pointer = pointer(bias);
    cublasLtMatmulDescSetAttribute(product.description, EPILOGUE, &epilogue, sizeof epilogue);
    cublasLtMatmulDescSetAttribute(product.description, BIAS_POINTER, &bias_pointer, sizeof bias_pointer);
    REQUIRE(product.run(upload(w), upload(x), to, nullptr, 0, nullptr) == 0);
    const std::vector<float> got = download(to, 24 * 5);
    for (int column = 0; column < 5; column++) {
        for (int row = 0; row < 24; row++) {
            double sum = 2;
            for (int k = 0; k < 256; k++) sum += double(to_float(w[row * 256 + k])) * to_float(x[column * 256 + k]);
            REQUIRE(std::abs(got[column * 24 + row] - sum) < 1e-4);
        }
    }
    REQUIRE(simt_launches("cublasLtMatmul") == 1);
}

TEST(algorithms, "cublasLt: algorithms fit into the workspace, and the shape chooses the order of sums") {
    use_device();
    const Product product(64, 8, 512);
    REQUIRE(product.algorithms(0).size() == 1);
    const std::vector<Heuristic> all = product.algorithms(1 << 20);
    REQUIRE(all.size() == 4 && all[0].workspace == 3 * 64 * 8 * 4);
    const Values w = random_values(64 * 512, 1), x = random_values(128 * 512, 2);
    const CUdeviceptr weight = upload(w), input = upload(x), few = ints(64 * 8), many = ints(64 * 128);
    const CUdeviceptr workspace = ints(all[0].workspace / 4);
    REQUIRE(product.run(weight, input, few, &all[0], workspace, nullptr) == 0);
    const Product large(64, 128, 512);
    REQUIRE(large.run(weight, input, many, nullptr, 0, nullptr) == 0);
    REQUIRE(download(few, 64 * 8) != download(many, 64 * 8));
    REQUIRE(product.run(weight, input, few, nullptr, 0, nullptr) == 0);  // without workspace: in one part, too
    REQUIRE(download(few, 64 * 8) == download(many, 64 * 8));
}

TEST(captured, "cublasLt: a product can be captured; its race with a copy is found", "SIMT_CHECK=1") {
    use_device();
    const Product product(8, 8, 64);
    const CUdeviceptr w = upload(random_values(8 * 64, 1)), x = upload(random_values(8 * 64, 2)), to = ints(64);
    OK(cuCtxSynchronize());
    void* work = stream();
    void* graph = nullptr;
    void* exec = nullptr;
    OK(cuStreamBeginCapture_v2(work, CAPTURE_THREAD_LOCAL));
    REQUIRE(product.run(w, x, to, nullptr, 0, work) == 0);
    OK(cuStreamEndCapture(work, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, work));
    OK(cuStreamSynchronize(work));
    OK(cuGraphLaunch(exec, work));
    OK(cuMemsetD32Async(x, 0, 8, stream()));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
}

TEST(unsupported, "cublasLt: operands that are not aligned to 16 bytes are refused") {
    use_device();
    const Product product(8, 8, 64);
    const CUdeviceptr w = upload(random_values(8 * 64 + 8, 1)), x = upload(random_values(8 * 64, 2));
    REQUIRE(product.run(w + 2, x, ints(64), nullptr, 0, nullptr) == NOT_SUPPORTED);
}
