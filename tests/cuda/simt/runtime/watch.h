// Counts of the traffic with single ranges of global memory, for tests that hold kernels to a number of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "simt_runtime.h"

namespace simt {

// A range of memory that a test watches, and what launches did with it.
struct Watched {
    Interval range;
    WatchedCounts counts;

    // Says whether a byte of it is touched.
    bool overlaps(uintptr_t begin, uintptr_t end) const { return begin < range.end && end > range.begin; }
};

// Returns the ranges that are watched, with counts of zero.
std::vector<Watched> watched_ranges();

// Adds the counts of a launch to those of the ranges, which are the same as when it began.
void add_watched(const std::vector<Watched>& watched);

}  // namespace simt
