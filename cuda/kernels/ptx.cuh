// All instructions that C++ has no words for. No other file has inline PTX, so that an emulator replaces this one.
#pragma once

namespace ptx {

// An address of shared memory.
typedef unsigned shared_t;

__device__ __forceinline__ shared_t shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// Copies 16 bytes of global memory to shared memory, past the first-level cache, without waiting; zeros if not
// `wanted`.
__device__ __forceinline__ void copy_async16(shared_t to, const void* from, bool wanted) {
    int bytes = wanted ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// Makes a group of the copies that this thread began since the last group.
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most N groups of this thread are under way.
template <int N>
__device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Reads four 8 x 8 matrices of 16-bit numbers; lane i has the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrix_x4(unsigned (&r)[4], shared_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

// As load_matrix_x4, each matrix transposed.
__device__ __forceinline__ void load_matrix_x4_transposed(unsigned (&r)[4], shared_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

// Reads two matrices; lanes 0 to 15 have the addresses of their rows.
__device__ __forceinline__ void load_matrix_x2(unsigned (&r)[2], shared_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row) : "memory");
}

// As load_matrix_x2, each matrix transposed.
__device__ __forceinline__ void load_matrix_x2_transposed(unsigned (&r)[2], shared_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(row)
                 : "memory");
}

// d += a * b, of a 16 x 16 and an 8 x 16 matrix of bf16, on the tensor cores. PTX ISA, "mma.m16n8k16": which lane
// holds what.
__device__ __forceinline__ void multiply_bf16(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                              unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Reads 16 bytes that no other block reads: they leave the first-level cache alone.
__device__ __forceinline__ uint4 load_streamed(const void* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

// Reads 16 bytes that nothing writes while the kernel runs.
__device__ __forceinline__ uint4 load_cached(const void* p) {
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

// Rounds two numbers to bf16, to nearest and ties to even; `low` is in the lower half.
__device__ __forceinline__ unsigned round_bf16x2(float low, float high) {
    unsigned v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}

// a * b + c of each of two bf16, rounded once.
__device__ __forceinline__ unsigned multiply_add_bf16x2(unsigned a, unsigned b, unsigned c) {
    unsigned v;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c));
    return v;
}

// Widens a number of the 16-bit format of IEEE 754, given by its bits.
__device__ __forceinline__ float widen_half(unsigned short bits) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
}

// 2 to the power of x, within 2 units of the last place; results below the normal numbers are zero.
__device__ __forceinline__ float exp2_approx(float x) {
    float v;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(x));
    return v;
}

// Waits until the kernels that this one depends on have ended and what they wrote can be read.
__device__ __forceinline__ void dependents_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the kernel behind this one begin.
__device__ __forceinline__ void dependents_launch() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Writes a word behind all that this thread wrote or has seen, for the host and other devices.
__device__ __forceinline__ void store_release_system(unsigned long long* p, unsigned long long v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

// Reads a word of the host or of another device; what was written before it is seen behind it.
__device__ __forceinline__ unsigned long long load_acquire_system(const unsigned long long* p) {
    unsigned long long v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

// Orders all accesses before it ahead of those behind it, for the host and other devices too.
__device__ __forceinline__ void fence_system() { __threadfence_system(); }

}  // namespace ptx
