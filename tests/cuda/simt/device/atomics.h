// CUDA's atomic functions, on global and shared memory, and its fences. They are the compiler's atomic operations; in
// a checked module g++ calls the hooks of libsimt for them.
#pragma once

#include "calls.h"

namespace simt {

// Replaces `*p` by `change(*p)` in one step. Returns the old value.
template <class T, class Change>
T atomic_update(T* p, Change change) {
    T old;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    T changed = change(old);
    while (!__atomic_compare_exchange(p, &old, &changed, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
        changed = change(old);
    }
    return old;
}

}  // namespace simt

#define SIMT_ATOMIC_INTEGER(T)                                                                                   \
    inline T atomicAdd(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }                         \
    inline T atomicSub(T* p, T v) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); }                         \
    inline T atomicOr(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }                           \
    inline T atomicAnd(T* p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); }                         \
    inline T atomicXor(T* p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST); }                         \
    inline T atomicExch(T* p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); }                       \
    inline T atomicMin(T* p, T v) {                                                                              \
        return ::simt::atomic_update(p, [v](T old) { return old < v ? old : v; });                               \
    }                                                                                                            \
    inline T atomicMax(T* p, T v) {                                                                              \
        return ::simt::atomic_update(p, [v](T old) { return old < v ? v : old; });                               \
    }                                                                                                            \
    inline T atomicCAS(T* p, T expected, T v) {                                                                  \
        __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                 \
        return expected;                                                                                         \
    }

SIMT_ATOMIC_INTEGER(int)
SIMT_ATOMIC_INTEGER(unsigned)
SIMT_ATOMIC_INTEGER(unsigned long)
SIMT_ATOMIC_INTEGER(unsigned long long)
#undef SIMT_ATOMIC_INTEGER

inline float atomicAdd(float* p, float v) {
    return ::simt::atomic_update(p, [v](float old) { return old + v; });
}

inline double atomicAdd(double* p, double v) {
    return ::simt::atomic_update(p, [v](double old) { return old + v; });
}

inline float atomicExch(float* p, float v) {
    return ::simt::atomic_update(p, [v](float) { return v; });
}

// Adds 1, and starts again at 0 beyond `limit`.
inline unsigned atomicInc(unsigned* p, unsigned limit) {
    return ::simt::atomic_update(p, [limit](unsigned old) { return old >= limit ? 0 : old + 1; });
}

// Takes 1 away, and starts again at `limit` below 0.
inline unsigned atomicDec(unsigned* p, unsigned limit) {
    return ::simt::atomic_update(p, [limit](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}

inline void __threadfence() { ::simt::fence(); }

inline void __threadfence_system() { ::simt::fence(); }

// Does not order anything for other blocks; within a block, only barriers count.
inline void __threadfence_block() {}
