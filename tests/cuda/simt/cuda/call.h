// What each entry point does first: it takes the lock and checks whether the call is allowed now.
#pragma once
#include "driver.h"

namespace driver {

/// What a call needs; the values are combined by `|`.
enum Needs : unsigned {
    NEEDS_INIT = 1,
    NEEDS_CONTEXT = 2,
    REFUSED_IN_CAPTURE = 4,  // "unsafe" calls, as cuMemAlloc, end a capture that does not allow them
    NEEDS_DRIVER = NEEDS_INIT | NEEDS_CONTEXT,
};

/// An entry point while it runs: holds the lock, and the error if the call is refused.
class Call {
public:
    explicit Call(unsigned needs = NEEDS_DRIVER);

    /// Says whether the entry point has to return `error()` at once.
    bool refused() const { return error_ != CUDA_SUCCESS; }
    CUresult error() const { return error_; }

    /// Returns the context of the calling thread.
    Context& context() const { return *context_; }
    std::unique_lock<std::mutex>& lock() { return lock_; }

private:
    std::unique_lock<std::mutex> lock_;
    Context* context_ = nullptr;
    CUresult error_ = CUDA_SUCCESS;
};

/// Returns the context of the calling thread, or null.
Context* current_context();

/// Sets the context of the calling thread.
void set_current_context(Context* context);

/// Returns the stream of a handle, which may be one of the special values; null for a handle that is not valid.
Stream* stream_of(void* handle, Context& context);

}  // namespace driver
