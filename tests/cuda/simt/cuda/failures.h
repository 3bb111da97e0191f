// Faults that a test orders, by SIMT_FAIL or by simt_fail. "ecc@3,oom@1" fails the third launch and the first
// allocation.
#pragma once
#include "api.h"

namespace driver {

/// Counts an allocation, and says whether it has to fail.
bool fail_allocation();

/// Counts a registration of host memory, and says whether it has to fail.
bool fail_registration();

/// Counts a launch, and returns the error that it has to end with, or CUDA_SUCCESS.
CUresult fail_launch();

}  // namespace driver
