// The entry points of the look-alike of cublasLt: products of matrices, nothing else.
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <iterator>

#include "layouts.h"

#define API extern "C" __attribute__((visibility("default")))

using namespace lt;

/// A range of memory that a product touches; the look-alike of libcuda has the same type.
struct Access {
    uint64_t address;
    size_t bytes;
    bool write;
};

/// Enqueues a host function that stands for a kernel; defined in the look-alike of libcuda.
extern "C" int simt_enqueue(void* stream, const char* name, void (*function)(void*), void (*drop)(void*), void* data,
                            const Access* accesses, size_t count);

namespace {

constexpr size_t VERSION = 130000;
constexpr size_t CUDART_VERSION = 13000;

// Attributes, as the library numbers them.
enum LayoutAttribute { LAYOUT_TYPE, LAYOUT_ORDER, LAYOUT_ROWS, LAYOUT_COLUMNS, LAYOUT_LEADING, LAYOUT_BATCHES,
                       LAYOUT_STRIDE };
enum DescriptionAttribute {
    DESC_COMPUTE_TYPE = 0,
    DESC_SCALE_TYPE = 1,
    DESC_POINTER_MODE = 2,
    DESC_TRANSA = 3,
    DESC_TRANSB = 4,
    DESC_TRANSC = 5,
    DESC_EPILOGUE = 7,
    DESC_BIAS_POINTER = 8,
    DESC_BIAS_BATCH_STRIDE = 10,
    DESC_BIAS_TYPE = 26,
};
constexpr int PREFERENCE_WORKSPACE_MAX = 1;
enum ConfigAttribute { CONFIG_ID = 0, CONFIG_TILE = 1, CONFIG_SPLIT = 2 };
enum CapAttribute { CAP_SPLIT = 0, CAP_ALIGNMENT_A = 16, CAP_ALIGNMENT_D = 19 };

// The algorithms: each sums in another number of parts, and needs workspace for its parts.
constexpr int SPLITS[] = {1, 2, 4, 8};
constexpr int ALGORITHMS = int(std::size(SPLITS));
constexpr size_t ALIGNMENT = 16;

/// Copies an attribute in, if its size is right.
template <class Value>
Status take(Value& to, const void* buffer, size_t bytes) {
    if (bytes < sizeof to) return INVALID_VALUE;
    memcpy(&to, buffer, sizeof to);
    return SUCCESS;
}

/// Copies an attribute out, if there is room for it.
template <class Value>
Status give(const Value& from, void* buffer, size_t bytes, size_t* written) {
    if (written) *written = sizeof from;
    if (!buffer) return SUCCESS;
    if (bytes < sizeof from) return INVALID_VALUE;
    memcpy(buffer, &from, sizeof from);
    return SUCCESS;
}

/// Returns the bytes from the first to the last element of a layout.
size_t span_of(const Layout& layout) {
    if (layout.rows == 0 || layout.columns == 0) return 0;
    const uint64_t one = (layout.columns - 1) * layout.leading + layout.rows;
    return ((layout.batches - 1) * layout.stride + one) * element_bytes(layout.type);
}

/// Says whether the look-alike can compute a product, and whether its shapes fit.
Status check(const Description& description, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
    const bool a_plain = description.a_operation == PLAIN;
    const bool b_plain = description.b_operation == PLAIN;
    for (const Layout* layout : {&a, &b, &c, &d}) {
        if (element_bytes(layout->type) == 0 || layout->order != 0) return NOT_SUPPORTED;
        if (layout->leading < int64_t(layout->rows)) return INVALID_VALUE;
        if (layout->batches != d.batches) return INVALID_VALUE;
    }
    if (description.compute != COMPUTE_32F && description.compute != COMPUTE_32F_PEDANTIC) return NOT_SUPPORTED;
    if (a.type != b.type) return NOT_SUPPORTED;
    if ((a_plain ? a.rows : a.columns) != d.rows || (b_plain ? b.columns : b.rows) != d.columns) return INVALID_VALUE;
    if ((a_plain ? a.columns : a.rows) != (b_plain ? b.rows : b.columns)) return INVALID_VALUE;
    if (c.rows != d.rows || c.columns != d.columns) return INVALID_VALUE;
    const int epilogue = description.epilogue;
    if (epilogue != NOTHING && epilogue != RELU && epilogue != BIAS && epilogue != RELU_BIAS) return NOT_SUPPORTED;
    return SUCCESS;
}

/// Returns the workspace that an algorithm needs: a result in f32 for each of its parts but the first.
size_t workspace_of(int split, const Layout& d) {
    return size_t(split - 1) * d.rows * d.columns * d.batches * sizeof(float);
}

/// Computes a product that was enqueued.
void run_product(void* data) {
    multiply(*static_cast<const Product*>(data));
}

/// Frees a product when neither a stream nor a graph holds it any more.
void drop_product(void* data) {
    delete static_cast<Product*>(data);
}

}  // namespace

/// Makes a handle. It holds nothing.
API Status cublasLtCreate(void** handle) {
    *handle = new char;
    return SUCCESS;
}

/// Destroys a handle.
API Status cublasLtDestroy(void* handle) {
    delete static_cast<char*>(handle);
    return SUCCESS;
}

/// Returns the version of the library.
API size_t cublasLtGetVersion() {
    return VERSION;
}

/// Returns the version of CUDA.
API size_t cublasLtGetCudartVersion() {
    return CUDART_VERSION;
}

/// Returns the name of a status.
API const char* cublasLtGetStatusName(Status status) {
    switch (status) {
        case SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
        case INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
        case NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "CUBLAS_STATUS unknown";
}

/// Returns the name of a status, too: there is no longer text.
API const char* cublasLtGetStatusString(Status status) {
    return cublasLtGetStatusName(status);
}

/// Makes the layout of a matrix, column by column.
API Status cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    *layout = new Layout{.type = type, .rows = rows, .columns = columns, .leading = leading};
    return SUCCESS;
}

/// Destroys a layout.
API Status cublasLtMatrixLayoutDestroy(Layout* layout) {
    delete layout;
    return SUCCESS;
}

/// Sets an attribute of a layout. An order by rows is refused later, by the product.
API Status cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* value, size_t bytes) {
    switch (attribute) {
        case LAYOUT_TYPE: return take(layout->type, value, bytes);
        case LAYOUT_ORDER: return take(layout->order, value, bytes);
        case LAYOUT_ROWS: return take(layout->rows, value, bytes);
        case LAYOUT_COLUMNS: return take(layout->columns, value, bytes);
        case LAYOUT_LEADING: return take(layout->leading, value, bytes);
        case LAYOUT_BATCHES: return take(layout->batches, value, bytes);
        case LAYOUT_STRIDE: return take(layout->stride, value, bytes);
        default: return NOT_SUPPORTED;
    }
}

/// Makes the description of a product. Scalars are f32.
API Status cublasLtMatmulDescCreate(Description** description, int compute, int scale_type) {
    if (scale_type != F32) return NOT_SUPPORTED;
    *description = new Description{.compute = compute, .scale_type = scale_type};
    return SUCCESS;
}

/// Destroys a description.
API Status cublasLtMatmulDescDestroy(Description* description) {
    delete description;
    return SUCCESS;
}

/// Sets an attribute of a description.
API Status cublasLtMatmulDescSetAttribute(Description* description, int attribute, const void* value, size_t bytes) {
    int zero = 0;
    switch (attribute) {
        case DESC_COMPUTE_TYPE: return take(description->compute, value, bytes);
        case DESC_TRANSA: return take(description->a_operation, value, bytes);
        case DESC_TRANSB: return take(description->b_operation, value, bytes);
        case DESC_EPILOGUE: return take(description->epilogue, value, bytes);
        case DESC_BIAS_POINTER: return take(description->bias, value, bytes);
        case DESC_BIAS_BATCH_STRIDE: return take(description->bias_stride, value, bytes);
        case DESC_BIAS_TYPE: return take(description->bias_type, value, bytes);
        case DESC_POINTER_MODE:
        case DESC_TRANSC:  // only the default, which is 0
            if (take(zero, value, bytes) != SUCCESS) return INVALID_VALUE;
            return zero == 0 ? SUCCESS : NOT_SUPPORTED;
        default: return NOT_SUPPORTED;
    }
}

/// Makes a preference, which allows no workspace yet.
API Status cublasLtMatmulPreferenceCreate(Preference** preference) {
    *preference = new Preference;
    return SUCCESS;
}

/// Destroys a preference.
API Status cublasLtMatmulPreferenceDestroy(Preference* preference) {
    delete preference;
    return SUCCESS;
}

/// Sets an attribute of a preference; only the limit of the workspace has an effect.
API Status cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value,
                                                size_t bytes) {
    if (attribute == PREFERENCE_WORKSPACE_MAX) return take(preference->workspace_max, value, bytes);
    return SUCCESS;  // the other wishes only choose among algorithms
}

/// Returns algorithms that fit into the workspace; the one that the shape prefers comes first.
API Status cublasLtMatmulAlgoGetHeuristic(void*, const Description* description, const Layout* a, const Layout* b,
                                          const Layout* c, const Layout* d, const Preference* preference, int wanted,
                                          Heuristic* results, int* found) {
    *found = 0;
    if (const Status error = check(*description, *a, *b, *c, *d)) return error;
    const uint64_t depth = description->a_operation == PLAIN ? a->columns : a->rows;
    const int preferred = split_for(d->columns, depth);
    auto add = [&](int id) {
        const size_t workspace = workspace_of(SPLITS[id], *d);
        if (*found == wanted || workspace > preference->workspace_max) return;
        results[(*found)++] = Heuristic{{id, SPLITS[id], workspace, {}}, workspace, SUCCESS, 1.0f, {}};
    };
    for (int id = 0; id < ALGORITHMS; id++) {
        if (SPLITS[id] == preferred) add(id);
    }
    for (int id = 0; id < ALGORITHMS; id++) {
        if (SPLITS[id] != preferred) add(id);
    }
    return *found > 0 ? SUCCESS : NOT_SUPPORTED;
}

/// Says whether an algorithm can compute a product, and how much workspace it needs.
API Status cublasLtMatmulAlgoCheck(void*, const Description* description, const Layout* a, const Layout* b,
                                   const Layout* c, const Layout* d, const Algorithm* algorithm, Heuristic* result) {
    if (const Status error = check(*description, *a, *b, *c, *d)) return error;
    if (algorithm->id < 0 || algorithm->id >= ALGORITHMS) return INVALID_VALUE;
    const size_t workspace = workspace_of(algorithm->split, *d);
    *result = Heuristic{*algorithm, workspace, SUCCESS, 1.0f, {}};
    return SUCCESS;
}

/// Returns the numbers of the algorithms.
API Status cublasLtMatmulAlgoGetIds(void*, int, int, int, int, int, int, int wanted, int* ids, int* found) {
    for (*found = 0; *found < wanted && *found < ALGORITHMS; (*found)++) ids[*found] = *found;
    return SUCCESS;
}

/// Makes an algorithm of its number.
API Status cublasLtMatmulAlgoInit(void*, int, int, int, int, int, int, int id, Algorithm* algorithm) {
    if (id < 0 || id >= ALGORITHMS) return INVALID_VALUE;
    *algorithm = Algorithm{id, SPLITS[id], 0, {}};
    return SUCCESS;
}

/// Returns the number of an algorithm, or in how many parts it sums.
API Status cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, int attribute, void* value, size_t bytes,
                                                size_t* written) {
    switch (attribute) {
        case CONFIG_ID: return give(algorithm->id, value, bytes, written);
        case CONFIG_SPLIT: return give(algorithm->split, value, bytes, written);
        default: return give(0, value, bytes, written);
    }
}

/// Sets in how many parts an algorithm sums; the other settings have no effect.
API Status cublasLtMatmulAlgoConfigSetAttribute(Algorithm* algorithm, int attribute, const void* value, size_t bytes) {
    if (attribute == CONFIG_ID) return NOT_SUPPORTED;
    return attribute == CONFIG_SPLIT ? take(algorithm->split, value, bytes) : SUCCESS;
}

/// Returns what an algorithm can do: sum in parts, with operands aligned to 16 bytes.
API Status cublasLtMatmulAlgoCapGetAttribute(const Algorithm*, int attribute, void* value, size_t bytes,
                                             size_t* written) {
    if (attribute == CAP_SPLIT) return give(1, value, bytes, written);
    if (attribute >= CAP_ALIGNMENT_A && attribute <= CAP_ALIGNMENT_D) {
        return give(uint32_t(ALIGNMENT), value, bytes, written);
    }
    return NOT_SUPPORTED;
}

/// Enqueues a product.
API Status cublasLtMatmul(void*, const Description* description, const void* alpha, const void* a_data, const Layout* a,
                          const void* b_data, const Layout* b, const void* beta, const void* c_data, const Layout* c,
                          void* d_data, const Layout* d, const Algorithm* algorithm, void* workspace,
                          size_t workspace_bytes, void* stream) {
    if (const Status error = check(*description, *a, *b, *c, *d)) return error;
    for (const void* data : {a_data, b_data, static_cast<const void*>(d_data)}) {
        if (reinterpret_cast<uintptr_t>(data) % ALIGNMENT != 0) return NOT_SUPPORTED;
    }
    auto* product = new Product{*description, *a, *b, *c, *d, a_data, b_data, c_data, d_data,
                                *static_cast<const float*>(alpha), *static_cast<const float*>(beta), 1};
    product->split = algorithm ? algorithm->split : split_for(product->columns(), product->depth());
    const size_t needed = workspace_of(product->split, *d);
    if (!algorithm && needed > workspace_bytes) product->split = 1;
    if (algorithm && needed > workspace_bytes) {
        delete product;
        return INVALID_VALUE;
    }
    auto at = [](const void* data) { return reinterpret_cast<uint64_t>(data); };
    Access accesses[6] = {{at(a_data), span_of(*a), false}, {at(b_data), span_of(*b), false},
                          {at(d_data), span_of(*d), true}};
    size_t count = 3;
    if (product->beta != 0) accesses[count++] = {at(c_data), span_of(*c), false};
    if (product->split > 1) accesses[count++] = {at(workspace), workspace_of(product->split, *d), true};
    if (description->epilogue & BIAS) {
        const int type = description->bias_type < 0 ? d->type : description->bias_type;
        accesses[count++] = {at(description->bias), d->rows * element_bytes(type), false};
    }
    const int error = simt_enqueue(stream, "cublasLtMatmul", run_product, drop_product, product, accesses, count);
    return error == 0 ? SUCCESS : EXECUTION_FAILED;
}

/// Accepts a log file; nothing is logged.
API Status cublasLtLoggerOpenFile(const char*) {
    return SUCCESS;
}

/// Accepts a level; nothing is logged.
API Status cublasLtLoggerSetLevel(int) {
    return SUCCESS;
}
