// Checks of modules with hooks: bounds, unwritten shared memory, and races. All functions act for the running thread,
// and end the launch with a failure if something is wrong. `code` is the instruction that made the access.
#pragma once

#include <cstddef>
#include <cstdint>

#include "module.h"
#include "simt_runtime.h"

namespace simt {

struct Thread;

// How a thread touches memory. The atomic ones do not race with each other.
enum class Access { Read, Write, Atomic, AtomicRead };

// What the checks keep for each thread of a block.
struct ThreadClock {
    uint32_t ticks = 0;          // rises with each operation that orders only a part of the block
    uint32_t fences = 0;         // fences that the thread made in this block
    uint32_t shared_moment = 0;  // the moment of the thread's next access to shared memory, or 0: not yet made
    uint32_t global_moment = 0;  // the same for global memory
    bool waited = false;         // the thread called `ptx::dependents_wait`
};

// All state of the checks: checks_state.h.
struct Checks;
Checks* new_checks();

void checks_begin_launch(const Module& module);
void checks_begin_block(unsigned number);
void checks_end_block();
void checks_end_launch(Result& result);

// Checks an access to any memory, and counts it.
void check_access(const void* address, size_t bytes, Access access, const void* code);

// Checks a copy that is issued: a read of global memory, and a write of shared memory that lands at an unknown time.
void check_copy_issued(const void* to, const void* from, bool wanted, size_t bytes, const void* code);

// Notes that the thread waited for its copy: from now on, barriers order the bytes for others.
void check_copy_landed(const void* to, size_t bytes);

// Checks a row of ldmatrix: that it lies in shared memory. Its elements count as reads of the lanes that receive them.
void check_matrix_row(const void* row, size_t bytes, const void* code);
void check_matrix_element(const void* element, size_t bytes, const void* code);

// Order between threads. A barrier of all live threads begins a new epoch; others order a part of the block.
void clock_barrier(Thread* const* threads, size_t count);
void clock_warp(unsigned warp, unsigned lanes);
void clock_fence();
void clock_dependents_wait();

}  // namespace simt
