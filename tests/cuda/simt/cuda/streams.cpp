// Streams: their life, waits for them, host functions, and operations on words of memory.
#include "call.h"
#include "capture.h"
#include "executor.h"
#include "guard.h"
#include "memory.h"
#include "races.h"

using namespace driver;

namespace {

/// Enqueues a store of a word.
template <class Word>
CUresult write_value(void* handle, CUdeviceptr address, Word value) {
    const Call call;
    if (call.refused()) return call.error();
    Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (address % sizeof(Word) != 0 || !covered(address, sizeof(Word))) return CUDA_ERROR_INVALID_VALUE;
    Work work{.kind = OpKind::fill, .name = "store of a word"};
    work.accesses = {{address, sizeof(Word), true}};
    work.run = [=](Running&) {
        __atomic_store_n(reinterpret_cast<Word*>(address), value, __ATOMIC_RELEASE);
        return CUDA_SUCCESS;
    };
    return enqueue(*stream, std::move(work), NODE_EMPTY);
}

/// Says whether a word in memory ends a wait.
template <class Word>
bool satisfied(Word now, Word value, unsigned flags) {
    switch (flags & 3) {
        case CU_STREAM_WAIT_VALUE_GEQ: return std::make_signed_t<Word>(now - value) >= 0;
        case CU_STREAM_WAIT_VALUE_EQ: return now == value;
        case CU_STREAM_WAIT_VALUE_AND: return (now & value) != 0;
        default: return ~(now | value) != 0;
    }
}

/// Enqueues a wait for a word.
template <class Word>
CUresult wait_value(void* handle, CUdeviceptr address, Word value, unsigned flags) {
    const Call call;
    if (call.refused()) return call.error();
    Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (address % sizeof(Word) != 0 || !covered(address, sizeof(Word))) return CUDA_ERROR_INVALID_VALUE;
    Work work{.name = "wait for a word"};
    work.accesses = {{address, sizeof(Word), false}};
    work.ready = [=] {
        if (!covered(address, sizeof(Word))) return true;  // freed meanwhile: the run reports it
        const DeviceAccess access;
        return satisfied(__atomic_load_n(reinterpret_cast<Word*>(address), __ATOMIC_ACQUIRE), value, flags);
    };
    work.run = [=](Running& running) {
        const std::lock_guard lock(state().mutex);
        running.clock.join(writers_of(address, sizeof(Word)));
        return CUDA_SUCCESS;
    };
    return enqueue(*stream, std::move(work), NODE_EMPTY);
}

}  // namespace

/// Makes a stream with a priority. The executor ignores priorities.
API CUresult cuStreamCreateWithPriority(void** handle, unsigned flags, int priority) {
    const Call call;
    if (call.refused()) return call.error();
    if (flags & ~CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    *handle = make_stream(call.context(), flags, priority, false);
    return CUDA_SUCCESS;
}

/// Makes a stream.
API CUresult cuStreamCreate(void** handle, unsigned flags) {
    return cuStreamCreateWithPriority(handle, flags, 0);
}

/// Destroys a stream. Its pending work still runs.
API CUresult cuStreamDestroy_v2(void* handle) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    auto* stream = static_cast<Stream*>(handle);
    if (!state().streams.count(stream) || stream->destroyed || stream->branch) return CUDA_ERROR_INVALID_HANDLE;
    if (stream == stream->context->legacy.get() || stream == stream->context->per_thread.get()) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (stream->capture) {
        abandon(*stream);
    }
    stream->destroyed = true;
    if (!stream->queue.empty() || stream->running) return CUDA_SUCCESS;  // the executor deletes it
    state().streams.erase(stream);
    delete stream;
    return CUDA_SUCCESS;
}

/// Waits for all work of a stream.
API CUresult cuStreamSynchronize(void* handle) {
    Call call;
    if (call.refused()) return call.error();
    Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_wait(*stream)) return error;
    Context& context = *stream->context;
    wait_for(records_of(*stream), call.lock());
    return context.sticky;
}

/// Says whether all work of a stream is done.
API CUresult cuStreamQuery(void* handle) {
    Call call;
    if (call.refused()) return call.error();
    Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_wait(*stream)) return error;
    Context& context = *stream->context;
    for (const RecordPtr& record : records_of(*stream)) {
        if (!poll(record, call.lock())) return context.sticky != CUDA_SUCCESS ? context.sticky : CUDA_ERROR_NOT_READY;
    }
    return context.sticky;
}

/// Returns the flags of a stream.
API CUresult cuStreamGetFlags(void* handle, unsigned* flags) {
    const Call call;
    if (call.refused()) return call.error();
    const Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

/// Returns the priority of a stream.
API CUresult cuStreamGetPriority(void* handle, int* priority) {
    const Call call;
    if (call.refused()) return call.error();
    const Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

/// Returns the context of a stream.
API CUresult cuStreamGetCtx(void* handle, void** context) {
    const Call call;
    if (call.refused()) return call.error();
    const Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    *context = stream->context;
    return CUDA_SUCCESS;
}

/// Calls a host function in the order of a stream. After an error of the context it is not called.
API CUresult cuLaunchHostFunc(void* handle, CUhostFn function, void* data) {
    const Call call;
    if (call.refused()) return call.error();
    Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    Work work{.kind = OpKind::host, .name = "host function"};
    work.run = [=](Running&) {
        function(data);
        return CUDA_SUCCESS;
    };
    return enqueue(*stream, std::move(work), NODE_HOST);
}

/// Stores a 32-bit word in the order of a stream.
API CUresult cuStreamWriteValue32_v2(void* stream, CUdeviceptr address, uint32_t value, unsigned) {
    return write_value(stream, address, value);
}

/// Stores a 64-bit word in the order of a stream.
API CUresult cuStreamWriteValue64_v2(void* stream, CUdeviceptr address, uint64_t value, unsigned) {
    return write_value(stream, address, value);
}

/// Makes a stream wait for a 32-bit word.
API CUresult cuStreamWaitValue32_v2(void* stream, CUdeviceptr address, uint32_t value, unsigned flags) {
    return wait_value(stream, address, value, flags);
}

/// Makes a stream wait for a 64-bit word.
API CUresult cuStreamWaitValue64_v2(void* stream, CUdeviceptr address, uint64_t value, unsigned flags) {
    return wait_value(stream, address, value, flags);
}
