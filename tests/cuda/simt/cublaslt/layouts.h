// The descriptors of the look-alike of cublasLt.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lt {

enum Status : int {
    SUCCESS = 0,
    ALLOC_FAILED = 3,
    INVALID_VALUE = 7,
    EXECUTION_FAILED = 13,
    NOT_SUPPORTED = 15,
};

enum Type : int { F32 = 0, F16 = 2, BF16 = 14 };

enum Operation : int { PLAIN = 0, TRANSPOSED = 1 };

enum Epilogue : int { NOTHING = 1, RELU = 2, BIAS = 4, RELU_BIAS = 6 };

constexpr int COMPUTE_32F = 68;
constexpr int COMPUTE_32F_PEDANTIC = 69;

/// A matrix in memory, column by column, or a batch of them.
struct Layout {
    int type;
    uint64_t rows;
    uint64_t columns;
    int64_t leading;   // elements from one column to the next
    int batches = 1;
    int64_t stride = 0;  // elements from one matrix to the next
    int order = 0;       // 0: column by column
};

/// What a product computes, apart from its matrices.
struct Description {
    int compute = COMPUTE_32F;
    int scale_type = F32;
    int a_operation = PLAIN;
    int b_operation = PLAIN;
    int epilogue = NOTHING;
    const void* bias = nullptr;
    int bias_type = -1;  // -1: that of the result
    int64_t bias_stride = 0;
};

struct Preference {
    uint64_t workspace_max = 0;
};

/// An algorithm, in the 64 bytes that the caller keeps.
struct Algorithm {
    int id;
    int split;  // in how many parts it sums
    uint64_t workspace;
    uint64_t unused[6];
};
static_assert(sizeof(Algorithm) == 64);

struct Heuristic {
    Algorithm algorithm;
    size_t workspace;
    Status state;
    float waves;
    int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

/// One product: D = alpha A B + beta C, with an epilogue.
struct Product {
    Description description;
    Layout a, b, c, d;
    const void* a_data;
    const void* b_data;
    const void* c_data;
    void* d_data;
    float alpha;
    float beta;
    int split;

    uint64_t rows() const { return d.rows; }
    uint64_t columns() const { return d.columns; }
    uint64_t depth() const { return description.a_operation == PLAIN ? a.columns : a.rows; }
};

/// Computes a product.
void multiply(const Product& product);

/// Returns the bytes of an element; 0 for a type that is not supported.
size_t element_bytes(int type);

/// Returns in how many parts a product with this many result columns is summed by default.
int split_for(uint64_t columns, uint64_t depth);

}  // namespace lt
