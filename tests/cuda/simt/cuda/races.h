// Finds accesses of streams that nothing orders: two operations touch the same memory, one of them writes, and neither
// happens before the other. Active with SIMT_CHECK=1.
#pragma once
#include <vector>

#include "driver.h"

namespace driver {

/// Notes what an operation touches. Returns an error, after a message, if an unordered operation touched it too.
CUresult check_order(const Running& running, const std::vector<Access>& accesses);

/// Forgets who touched a range: its memory is new.
void forget_accesses(CUdeviceptr address, size_t bytes);

/// Returns all that happens before the last writes of a range, as a reader needs that polls a word.
Clock writers_of(CUdeviceptr address, size_t bytes);

}  // namespace driver
