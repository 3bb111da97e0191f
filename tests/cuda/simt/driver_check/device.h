// A device with the kernels of the tests, for tests that need no more than one.
#pragma once
#include "check.h"

namespace check {

/// Initialises the driver and makes a device's context current.
void* use_device(int device = 0);

/// Compiles a source and returns its module. Ends the test with the log if that fails.
void* compile(const std::string& source);

/// Returns a kernel of the tests' own source: fill(int* to, int value, int count), add(int* to, const int* from,
/// int count), read(int* to, const int* from, int at), far(int* to), pause(), store(unsigned long long* to).
void* kernel(const std::string& name);

/// Launches a kernel with one block.
template <class... Arguments>
CUresult launch(void* function, unsigned threads, void* stream, Arguments... arguments) {
    void* pointers[] = {&arguments..., nullptr};
    return cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, pointers, nullptr);
}

/// Allocates device memory for a number of ints.
CUdeviceptr ints(size_t count);

/// Returns an int of device memory, by a copy in the legacy stream.
int value_at(CUdeviceptr address);

/// Makes a stream; it does not wait for the legacy stream unless `flags` is 0.
void* stream(unsigned flags = CU_STREAM_NON_BLOCKING);

/// Makes an event.
void* event();

}  // namespace check
