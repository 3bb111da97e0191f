// The state of the checks, and what their files share.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "clocks.h"
#include "shadow.h"
#include "state.h"
#include "tickets.h"
#include "traffic.h"

namespace simt {

constexpr size_t PAGE_BYTES = 4096;
constexpr size_t WORDS_PER_PAGE = PAGE_BYTES / WORD_BYTES;

// The shadow of a page of global memory.
struct ShadowPage {
    ShadowWord words[WORDS_PER_PAGE];
};

// A piece of shared memory of the running block.
struct SharedRegion {
    const char* name = "";
    uintptr_t begin = 0;
    size_t bytes = 0;
    std::vector<ShadowWord> words;
};

struct Checks {
    Clocks clocks;
    Tickets tickets;
    Traffic traffic;
    uint32_t block = 0;

    // Shared memory, reset for each block. Moment 0 is not used.
    SharedRegion static_shared;
    SharedRegion dynamic_shared;
    SplitPool shared_splits;
    std::vector<Moment> shared_moments;

    // Global memory, for the launch.
    std::vector<Allocation> allocations;  // those that the launch used, the most frequent ones first
    std::unordered_map<uintptr_t, std::unique_ptr<ShadowPage>> pages;
    uintptr_t last_page_number = 0;
    ShadowPage* last_page = nullptr;
    SplitPool global_splits;
    std::vector<Moment> global_moments;

    // Dependent launches: the epoch in which a thread of the block first waited, or 0.
    uint32_t waited_epoch = 0;
};

// Returns the part of shared memory that holds an address, or null. Fails beyond the end of dynamic shared memory.
SharedRegion* find_shared(uintptr_t address, size_t bytes, const void* code);

// Checks and stamps an access to shared memory. `stamp_flags` is IN_FLIGHT for copies that are issued.
void check_shared(SharedRegion& region, uintptr_t address, size_t bytes, Access access, Stamp stamp_flags,
                  const void* code);

// Checks and stamps an access to global memory.
void check_global(uintptr_t address, size_t bytes, Access access, const void* code);

// Lists the words that the launch touched, and counts them.
void list_touched(Checks& checks, bool list, Result& result, Counts& counts);

// Counts the words and the sectors of a range that the launch touched.
void count_unique(const Checks& checks, Watched& watched);

// Says whether an access writes, and whether it is atomic.
inline bool writes(Access access) { return access == Access::Write || access == Access::Atomic; }
inline bool is_atomic(Access access) { return access == Access::Atomic || access == Access::AtomicRead; }

// Returns the verb for an access, for messages.
const char* access_name(Access access);
const char* access_name(bool write, Stamp stamp);

// Notes a read in a cell. See `Cell` for which two reads are kept.
void remember_read(Cell& cell, Stamp stamp, const std::vector<Moment>& moments);

}  // namespace simt
