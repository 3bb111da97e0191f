// The driver's only instance, the calling thread's context, and what each entry point checks first.
#include "call.h"

#include <cstdarg>
#include <cstdio>

#include "capture.h"

namespace driver {

namespace {
thread_local Context* current = nullptr;
}

State& state() {
    static State& only = *new State;
    return only;
}

Stream* make_stream(Context& context, unsigned flags, int priority, bool branch) {
    State& shared = state();
    auto* stream = new Stream{.context = &context, .component = shared.components++};
    stream->flags = flags;
    stream->priority = priority;
    stream->branch = branch;
    shared.streams.insert(stream);
    return stream;
}

void complain(const char* format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "simt: %s\n", line);
}

Context* current_context() {
    return current;
}

void set_current_context(Context* context) {
    current = context;
}

Call::Call(unsigned needs) : lock_(state().mutex), context_(current) {
    if ((needs & NEEDS_INIT) && !state().initialised) {
        error_ = CUDA_ERROR_NOT_INITIALIZED;
    } else if ((needs & NEEDS_CONTEXT) && !context_) {
        error_ = CUDA_ERROR_INVALID_CONTEXT;
    } else if ((needs & NEEDS_CONTEXT) && context_->sticky != CUDA_SUCCESS) {
        error_ = context_->sticky;
    } else if ((needs & REFUSED_IN_CAPTURE) && !unsafe_call_allowed()) {
        error_ = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
}

Stream* stream_of(void* handle, Context& context) {
    const auto value = reinterpret_cast<uintptr_t>(handle);
    if (value == 0 || value == CU_STREAM_LEGACY) return context.legacy.get();
    if (value == CU_STREAM_PER_THREAD) return context.per_thread.get();
    auto* stream = static_cast<Stream*>(handle);
    const bool valid = state().streams.count(stream) && !stream->destroyed && !stream->branch;
    return valid ? stream : nullptr;
}

}  // namespace driver
