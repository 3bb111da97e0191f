// What a .cu source sees when g++ compiles it: included before it with -include. It stands for the headers that nvrtc
// has built in. The kernel becomes a plain function that a fiber of libsimt runs, one fiber for each CUDA thread.
#pragma once
#define BATON_SIMT 1

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

#include "calls.h"
#include "vectors.h"

// Function and variable qualifiers. A kernel is never inlined in its thunk: the thunk has no hooks.
#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __restrict__ __restrict

// Shared memory is thread-local: a block runs on one thread of the system, and libsimt fills the module's thread-local
// memory with a pattern before each block.
#define __shared__ thread_local

// The architecture that kernels are compiled for: sm_90.
#define __CUDA_ARCH__ 900

// Dynamic shared memory of one type and name.
#define DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(::simt::dynamic_shared())

// Built-in variables.
#define threadIdx (::simt::thread_index())
#define blockIdx (::simt::block_index())
#define blockDim (::simt::block_size())
#define gridDim (::simt::grid_size())
#define warpSize 32

#include "atomics.h"
#include "arithmetic.h"
#include "numbers.h"
#include "warp.h"

// In a checked module, whole copies count as accesses of the kernel.
#ifdef __SANITIZE_THREAD__
#define memcpy(to, from, bytes) ::simt::copy_bytes(to, from, bytes)
#define memset(to, value, bytes) ::simt::fill_bytes(to, value, bytes)
#endif

#undef assert
#define assert(condition) \
    ((condition) ? (void)0 : ::simt::trap("assertion failed: " #condition, {__FILE__, __LINE__}))

// Says that the module was built with hooks.
#ifdef __SANITIZE_THREAD__
extern "C" {
__attribute__((visibility("default"))) extern const char simt_checked;
const char simt_checked = 1;
}
#endif

// A thread-local symbol of the module. libsimt looks it up; the loader then sets up the module's thread-local memory.
extern "C" {
__attribute__((visibility("default"))) thread_local char simt_shared_anchor = 0;
}

namespace simt {

// Calls a kernel with pointers to its arguments. It has no hooks: the arguments lie in memory of the host.
template <class... P, size_t... I>
__attribute__((no_sanitize("thread"))) void call_kernel(void (*kernel)(P...), void** arguments,
                                                        std::integer_sequence<size_t, I...>) {
    kernel(*static_cast<std::remove_reference_t<P>*>(arguments[I])...);
}

// Writes the sizes of a kernel's arguments, unless `sizes` is null. Returns their number.
template <class... P>
unsigned kernel_arguments(void (*)(P...), unsigned* sizes) {
    const unsigned all[] = {static_cast<unsigned>(sizeof(P))..., 0};
    for (unsigned i = 0; sizes != nullptr && i < sizeof...(P); i++) sizes[i] = all[i];
    return sizeof...(P);
}

template <class... P>
constexpr std::index_sequence_for<P...> argument_numbers(void (*)(P...)) {
    return {};
}

}  // namespace simt

// Exports the kernel `expression` under the name `symbol`. The look-alike of nvrtc appends one for each kernel.
#define SIMT_KERNEL(symbol, ...)                                                                                      \
    extern "C" __attribute__((visibility("default"), no_sanitize("thread"))) void simt_thunk_##symbol(void** args) { \
        ::simt::call_kernel(&__VA_ARGS__, args, ::simt::argument_numbers(&__VA_ARGS__));                              \
    }                                                                                                                 \
    extern "C" __attribute__((visibility("default"), no_sanitize("thread"))) unsigned simt_args_##symbol(             \
        unsigned* sizes) {                                                                                            \
        return ::simt::kernel_arguments(&__VA_ARGS__, sizes);                                                         \
    }
