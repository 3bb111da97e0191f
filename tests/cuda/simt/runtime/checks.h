// Checks of modules with hooks: bounds, unwritten shared memory, and races. All functions act for the running thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "module.h"
#include "simt_runtime.h"

namespace simt {

struct Thread;

// How a thread touches memory. The atomic ones do not race with each other.
enum class Access { Read, Write, Atomic, AtomicRead };

struct ThreadClock {};
struct Checks {};

inline void check_access(const void*, size_t, Access, const void*) {}
inline void check_copy_issued(const void*, const void*, bool, size_t, const void*) {}
inline void check_copy_landed(const void*, size_t) {}
inline void check_matrix_row(const void*, size_t, const void*) {}
inline void check_matrix_element(const void*, size_t, const void*) {}
inline void clock_barrier(Thread* const*, size_t) {}
inline void clock_warp(unsigned, unsigned) {}
inline void clock_fence() {}
inline void clock_dependents_wait() {}
inline void checks_begin_launch(const Module&) {}
inline void checks_begin_block(unsigned) {}
inline void checks_end_block() {}
inline void checks_end_launch(Result&) {}

}  // namespace simt
