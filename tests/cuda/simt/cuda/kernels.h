// Modules, functions, and launches of kernels.
#pragma once
#include <string>
#include <vector>

#include "driver.h"

namespace driver {

/// A kernel of a module.
struct Function {
    std::string name;
    void* module;                   // what dlopen returned
    void (*thunk)(void**);          // calls the kernel with pointers to its arguments
    std::vector<unsigned> sizes;    // of the arguments, in bytes
    int dynamic_shared_max;         // as cuFuncSetAttribute set it
};

struct Extents {
    unsigned x, y, z;
};

/// How a kernel is launched.
struct LaunchShape {
    Extents grid;
    Extents block;
    unsigned dynamic_shared_bytes;
    bool dependent = false;  // may start before the kernel in front of it ends
};

/// Checks a launch and makes its work. The arguments are copied.
CUresult make_launch(const Function& function, const LaunchShape& shape, void** arguments, Work& work);

/// Returns how many blocks of a kernel fit on a multiprocessor.
int blocks_per_multiprocessor(unsigned threads, size_t dynamic_shared_bytes);

/// Lets the checks of kernels see the table of memory.
void register_memory_table();

}  // namespace driver
