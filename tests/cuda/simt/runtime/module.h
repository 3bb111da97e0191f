// What libsimt finds out about the shared library of a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "simt_runtime.h"

namespace simt {

struct Module {
    bool checked = false;               // built with hooks
    unsigned char* shared = nullptr;    // its __shared__ variables, for the calling thread
    size_t shared_bytes = 0;
    std::vector<Interval> segments;     // its code and its other variables
};

// Looks at a module that dlopen returned. Null gives an empty module.
Module find_module(void* handle);

}  // namespace simt
