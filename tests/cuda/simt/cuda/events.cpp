// Events: a point in a stream that others wait for. An event keeps the record of the last time it was recorded.
#include "call.h"
#include "capture.h"
#include "executor.h"

using namespace driver;

namespace {

constexpr double MILLISECONDS = 1e3;

/// Returns the event of a handle, or null for a handle that is not valid.
Event* event_of(void* handle) {
    auto* event = static_cast<Event*>(handle);
    return state().events.count(event) ? event : nullptr;
}

}  // namespace

/// Makes an event.
API CUresult cuEventCreate(void** handle, unsigned flags) {
    const Call call;
    if (call.refused()) return call.error();
    auto* event = new Event{.context = &call.context()};
    event->flags = flags;
    state().events.insert(event);
    *handle = event;
    return CUDA_SUCCESS;
}

/// Destroys an event. Work that waits for it still does.
API CUresult cuEventDestroy_v2(void* handle) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    Event* event = event_of(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    state().events.erase(event);
    delete event;
    return CUDA_SUCCESS;
}

/// Records an event in a stream.
API CUresult cuEventRecord(void* handle, void* stream_handle) {
    const Call call;
    if (call.refused()) return call.error();
    Event* event = event_of(handle);
    Stream* stream = stream_of(stream_handle, call.context());
    if (!event || !stream) return CUDA_ERROR_INVALID_HANDLE;
    if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) {
        if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        record_captured(*stream, *event);
        return CUDA_SUCCESS;
    }
    if (CUresult error = check_implicit(*stream)) return error;
    event->captured = false;
    event->record = append(*stream, std::make_shared<Work>(Work{.name = "event"}), {});
    return CUDA_SUCCESS;
}

/// Records an event with flags, which have no effect.
API CUresult cuEventRecordWithFlags(void* handle, void* stream, unsigned) {
    return cuEventRecord(handle, stream);
}

/// Makes a stream wait for an event, as it was last recorded. An event that never was is no wait.
API CUresult cuStreamWaitEvent(void* stream_handle, void* handle, unsigned) {
    const Call call;
    if (call.refused()) return call.error();
    Event* event = event_of(handle);
    Stream* stream = stream_of(stream_handle, call.context());
    if (!event || !stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture && stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!event->captured && !event->record) return CUDA_SUCCESS;
    if (stream->capture || event->captured) return wait_captured(*stream, *event);
    if (CUresult error = check_implicit(*stream)) return error;
    append(*stream, std::make_shared<Work>(Work{.name = "wait for an event"}), {event->record});
    return CUDA_SUCCESS;
}

/// Says whether the work before an event is done.
API CUresult cuEventQuery(void* handle) {
    Call call;
    if (call.refused()) return call.error();
    Event* event = event_of(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_event(*event)) return error;
    Context& context = *event->context;
    const bool done = poll(event->record, call.lock());
    if (context.sticky != CUDA_SUCCESS) return context.sticky;
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/// Waits for the work before an event.
API CUresult cuEventSynchronize(void* handle) {
    Call call;
    if (call.refused()) return call.error();
    Event* event = event_of(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_event(*event)) return error;
    Context& context = *event->context;
    if (event->record) wait_for({event->record}, call.lock());
    return context.sticky;
}

/// Returns the time between two events. It is the emulator's time, which says nothing about a GPU.
API CUresult cuEventElapsedTime_v2(float* milliseconds, void* start_handle, void* end_handle) {
    const Call call;
    if (call.refused()) return call.error();
    const Event* start = event_of(start_handle);
    const Event* end = event_of(end_handle);
    if (!start || !end) return CUDA_ERROR_INVALID_HANDLE;
    if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
    if (!start->record || !end->record) return CUDA_ERROR_INVALID_HANDLE;
    if (!start->record->done || !end->record->done) return CUDA_ERROR_NOT_READY;
    *milliseconds = float((end->record->seconds - start->record->seconds) * MILLISECONDS);
    return CUDA_SUCCESS;
}

/// Returns the time between two events; the older form of the call.
API CUresult cuEventElapsedTime(float* milliseconds, void* start, void* end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}
