// The product itself, in f32. The order of its sums depends on the number of columns of the result, which is the number
// of tokens of a batch: the real library picks its kernel by the shape, so that a token's result may differ between
// batches. Code that needs equal results must not rely on this library for that; here it shows.
#include <cstring>
#include <vector>

#include "layouts.h"

namespace lt {

namespace {

// Batches up to these sizes are summed in 4, 2 and 1 parts.
constexpr uint64_t COLUMNS_SUMMED_IN_4 = 16;
constexpr uint64_t COLUMNS_SUMMED_IN_2 = 64;
constexpr uint64_t DEPTH_PER_PART_MIN = 64;

/// Returns an element as f32.
float load(const void* data, int type, int64_t at) {
    if (type == F32) return static_cast<const float*>(data)[at];
    if (type == F16) return static_cast<float>(static_cast<const _Float16*>(data)[at]);
    const uint32_t bits = uint32_t(static_cast<const uint16_t*>(data)[at]) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/// Stores an f32 as an element, rounded to the nearest, ties to even.
void store(void* data, int type, int64_t at, float value) {
    if (type == F32) {
        static_cast<float*>(data)[at] = value;
    } else if (type == F16) {
        static_cast<_Float16*>(data)[at] = static_cast<_Float16>(value);
    } else {
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        const bool nan = (bits & 0x7fffffff) > 0x7f800000;
        const uint32_t rounded = nan ? 0x7fff0000 : bits + 0x7fff + (bits >> 16 & 1);
        static_cast<uint16_t*>(data)[at] = uint16_t(rounded >> 16);
    }
}

/// Copies an operand to f32, so that the elements of one sum are adjacent.
std::vector<float> gather(const void* data, const Layout& layout, bool depth_in_column, uint64_t outer, uint64_t depth,
                          int batch) {
    std::vector<float> values(outer * depth);
    for (uint64_t i = 0; i < outer; i++) {
        for (uint64_t k = 0; k < depth; k++) {
            const int64_t at = depth_in_column ? int64_t(i) * layout.leading + k : int64_t(k) * layout.leading + i;
            values[i * depth + k] = load(data, layout.type, batch * layout.stride + at);
        }
    }
    return values;
}

/// Returns the scalar product of two vectors, as the sum of `parts` sums.
float dot(const float* x, const float* y, uint64_t depth, int parts) {
    float total = 0;
    for (int part = 0; part < parts; part++) {
        const uint64_t end = depth * (part + 1) / parts;
        float sum = 0;
        for (uint64_t k = depth * part / parts; k < end; k++) sum += x[k] * y[k];
        total += sum;
    }
    return total;
}

/// Applies the epilogue to an element of the result.
float finish(const Product& product, float value, uint64_t row, int batch) {
    const Description& description = product.description;
    if (description.epilogue & BIAS) {
        const int type = description.bias_type < 0 ? product.d.type : description.bias_type;
        value += load(description.bias, type, batch * description.bias_stride + int64_t(row));
    }
    if ((description.epilogue & RELU) && value < 0) value = 0;
    return value;
}

}  // namespace

size_t element_bytes(int type) {
    switch (type) {
        case F32: return 4;
        case F16:
        case BF16: return 2;
        default: return 0;
    }
}

int split_for(uint64_t columns, uint64_t depth) {
    const int wanted = columns <= COLUMNS_SUMMED_IN_4 ? 4 : columns <= COLUMNS_SUMMED_IN_2 ? 2 : 1;
    return depth >= wanted * DEPTH_PER_PART_MIN ? wanted : 1;
}

void multiply(const Product& product) {
    const uint64_t rows = product.rows();
    const uint64_t columns = product.columns();
    const uint64_t depth = product.depth();
    const bool a_in_column = product.description.a_operation == TRANSPOSED;
    const bool b_in_column = product.description.b_operation == PLAIN;
    for (int batch = 0; batch < product.d.batches; batch++) {
        const std::vector<float> a = gather(product.a_data, product.a, a_in_column, rows, depth, batch);
        const std::vector<float> b = gather(product.b_data, product.b, b_in_column, columns, depth, batch);
        for (uint64_t column = 0; column < columns; column++) {
            for (uint64_t row = 0; row < rows; row++) {
                float value = product.alpha * dot(&a[row * depth], &b[column * depth], depth, product.split);
                if (product.beta != 0) {
                    const int64_t at = batch * product.c.stride + int64_t(column) * product.c.leading + int64_t(row);
                    value += product.beta * load(product.c_data, product.c.type, at);
                }
                const int64_t at = batch * product.d.stride + int64_t(column) * product.d.leading + int64_t(row);
                store(product.d_data, product.d.type, at, finish(product, value, row, batch));
            }
        }
    }
}

}  // namespace lt
