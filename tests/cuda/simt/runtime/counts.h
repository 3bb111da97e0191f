// Sums of the counters of launches, by the name of the kernel.
#pragma once

#include <cstdint>

#include "simt_runtime.h"

namespace simt {

// Adds the counters of one launch to the sums.
void add_counts(const char* kernel, const Counts& counts);

// Returns the number of launches since the process started, for seeds.
uint64_t launches_so_far();

}  // namespace simt
