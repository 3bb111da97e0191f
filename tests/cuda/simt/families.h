// Families of kernels: for each kernel of correct/, how to launch it and what it must compute. The kernels of broken/
// are launched as the correct ones.
#pragma once

#include <string>

#include "runtime/simt_runtime.h"

namespace check {

// A compiled kernel.
struct Kernel {
    std::string name;
    void* module;
    void (*thunk)(void**);
};

// What came of running a kernel. `result` is that of the first launch that failed, or of the last one.
struct Verdict {
    simt::Result result;
    bool numbers_right = false;
};

using Family = Verdict (*)(const Kernel& kernel);

// Returns the family with a name, or null.
Family find_family(const std::string& name);

}  // namespace check
