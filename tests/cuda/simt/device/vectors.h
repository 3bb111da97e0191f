// CUDA's built-in vector types, for sources that g++ compiles. Sizes and alignments are those of CUDA.
#pragma once

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// Defines the types NAME1 to NAME4 over a scalar, and their make_ functions. NAME3 has the alignment of its scalar.
#define SIMT_VECTORS(NAME, SCALAR, ALIGN2, ALIGN4)                                                       \
    struct NAME##1 {                                                                                     \
        SCALAR x;                                                                                        \
    };                                                                                                   \
    struct alignas(ALIGN2) NAME##2 {                                                                     \
        SCALAR x, y;                                                                                     \
    };                                                                                                   \
    struct alignas(ALIGN4) NAME##4 {                                                                     \
        SCALAR x, y, z, w;                                                                               \
    };                                                                                                   \
    inline NAME##1 make_##NAME##1(SCALAR x) { return {x}; }                                              \
    inline NAME##2 make_##NAME##2(SCALAR x, SCALAR y) { return {x, y}; }                                 \
    inline NAME##4 make_##NAME##4(SCALAR x, SCALAR y, SCALAR z, SCALAR w) { return {x, y, z, w}; }

#define SIMT_VECTOR3(NAME, SCALAR)                                                                       \
    struct NAME##3 {                                                                                     \
        SCALAR x, y, z;                                                                                  \
    };                                                                                                   \
    inline NAME##3 make_##NAME##3(SCALAR x, SCALAR y, SCALAR z) { return {x, y, z}; }

SIMT_VECTORS(char, signed char, 2, 4)
SIMT_VECTORS(uchar, unsigned char, 2, 4)
SIMT_VECTORS(short, short, 4, 8)
SIMT_VECTORS(ushort, unsigned short, 4, 8)
SIMT_VECTORS(int, int, 8, 16)
SIMT_VECTORS(uint, unsigned, 8, 16)
SIMT_VECTORS(float, float, 8, 16)
SIMT_VECTORS(long, long, 16, 16)
SIMT_VECTORS(ulong, unsigned long, 16, 16)
SIMT_VECTORS(longlong, long long, 16, 16)
SIMT_VECTORS(ulonglong, unsigned long long, 16, 16)
SIMT_VECTORS(double, double, 16, 16)

SIMT_VECTOR3(char, signed char)
SIMT_VECTOR3(uchar, unsigned char)
SIMT_VECTOR3(short, short)
SIMT_VECTOR3(ushort, unsigned short)
SIMT_VECTOR3(int, int)
SIMT_VECTOR3(float, float)
SIMT_VECTOR3(double, double)

inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

#undef SIMT_VECTORS
#undef SIMT_VECTOR3
