// Stream capture: a graph of operations, with the edges that streams and events give them.
#include "capture.h"

#include "executor.h"

namespace driver {

namespace {

/// How the calling thread wants to be refused; cuThreadExchangeStreamCaptureMode changes it.
thread_local CaptureMode thread_mode = CAPTURE_GLOBAL;

/// Says whether a capture forbids unsafe calls to the calling thread.
bool forbids(const Capture& capture) {
    const bool mine = capture.thread == std::this_thread::get_id();
    if (thread_mode == CAPTURE_RELAXED || capture.mode == CAPTURE_RELAXED) return false;
    if (mine) return true;
    return thread_mode == CAPTURE_GLOBAL && capture.mode == CAPTURE_GLOBAL;
}

/// Says whether all work of a capture leads to the origin's last nodes.
bool joined(const Capture& capture) {
    const std::vector<Node>& nodes = capture.graph->nodes;
    std::vector<bool> reached(nodes.size(), false);
    std::vector<size_t> todo = capture.origin->frontier;
    while (!todo.empty()) {
        const size_t node = todo.back();
        todo.pop_back();
        if (reached[node]) continue;
        reached[node] = true;
        todo.insert(todo.end(), nodes[node].after.begin(), nodes[node].after.end());
    }
    for (const bool one : reached) {
        if (!one) return false;
    }
    return true;
}

/// Adds nodes to a set without repeats.
void merge(std::vector<size_t>& into, const std::vector<size_t>& from) {
    for (const size_t node : from) {
        if (std::find(into.begin(), into.end(), node) == into.end()) into.push_back(node);
    }
}

}  // namespace

void invalidate(Capture& capture) {
    capture.invalid = true;
}

CUresult add_node(Stream& stream, Work work, GraphNodeType type) {
    Capture& capture = *stream.capture;
    if (capture.invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    std::vector<Node>& nodes = capture.graph->nodes;
    nodes.push_back({std::make_shared<Work>(std::move(work)), stream.frontier, type});
    stream.frontier = {nodes.size() - 1};
    return CUDA_SUCCESS;
}

bool unsafe_call_allowed() {
    bool allowed = true;
    for (Capture* capture : state().captures) {
        if (!forbids(*capture)) continue;
        invalidate(*capture);
        allowed = false;
    }
    return allowed;
}

CUresult check_implicit(Stream& stream) {
    if (&stream != stream.context->legacy.get()) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (Stream* other : state().streams) {
        if (other->context != stream.context || !other->capture || !other->blocking()) continue;
        invalidate(*other->capture);
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return result;
}

CUresult check_wait(Stream& stream) {
    if (!stream.capture) return check_implicit(stream);
    invalidate(*stream.capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult check_wait_all(Context& context) {
    CUresult result = CUDA_SUCCESS;
    for (Stream* stream : state().streams) {
        if (stream->context == &context && stream->capture) result = check_wait(*stream);
    }
    return result;
}

CUresult check_event(Event& event) {
    if (!event.captured) return CUDA_SUCCESS;
    if (auto capture = event.capture.lock()) invalidate(*capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

void abandon(Stream& stream) {
    const std::shared_ptr<Capture> capture = stream.capture;
    invalidate(*capture);
    const bool ends = capture->origin == &stream;
    if (ends) state().captures.erase(capture.get());
    for (Stream* member : std::set<Stream*>(capture->members)) {
        if (member != &stream && !ends) continue;
        member->capture.reset();
        member->frontier.clear();
        capture->members.erase(member);
    }
}

void record_captured(Stream& stream, Event& event) {
    event.captured = true;
    event.capture = stream.capture;
    event.frontier = stream.frontier;
}

CUresult wait_captured(Stream& stream, Event& event) {
    const auto capture = event.captured ? event.capture.lock() : nullptr;
    if (!capture) {
        if (event.captured) return CUDA_ERROR_CAPTURED_EVENT;
        invalidate(*stream.capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (stream.capture && stream.capture != capture) {
        invalidate(*stream.capture);
        invalidate(*capture);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (&stream == stream.context->legacy.get()) {
        invalidate(*capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (!stream.capture) {
        stream.capture = capture;
        stream.frontier.clear();
        capture->members.insert(&stream);
    }
    merge(stream.frontier, event.frontier);
    return CUDA_SUCCESS;
}

}  // namespace driver

using namespace driver;

/// Begins to capture a stream.
API CUresult cuStreamBeginCapture_v2(void* handle, CaptureMode mode) {
    const Call call;
    if (call.refused()) return call.error();
    Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream == call.context().legacy.get()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (mode < CAPTURE_GLOBAL || mode > CAPTURE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->origin = stream;
    capture->thread = std::this_thread::get_id();
    capture->members.insert(stream);
    stream->capture = capture;
    stream->frontier.clear();
    state().captures.insert(capture.get());
    return CUDA_SUCCESS;
}

/// Ends a capture and returns its graph. On an error there is no graph, and the capture has ended too.
API CUresult cuStreamEndCapture(void* handle, void** graph) {
    const Call call;
    if (call.refused()) return call.error();
    *graph = nullptr;
    Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (capture->origin != stream) {
        invalidate(*capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CAPTURE_RELAXED && capture->thread != std::this_thread::get_id()) {
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    const bool complete = joined(*capture);
    state().captures.erase(capture.get());
    for (Stream* member : capture->members) {
        member->capture.reset();
        member->frontier.clear();
    }
    if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!complete) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *graph = new std::shared_ptr<Graph>(capture->graph);
    return CUDA_SUCCESS;
}

/// Says whether a stream captures.
API CUresult cuStreamIsCapturing(void* handle, CaptureStatus* status) {
    const Call call;
    if (call.refused()) return call.error();
    Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_implicit(*stream)) return error;
    *status = !stream->capture ? CAPTURE_NONE : stream->capture->invalid ? CAPTURE_INVALIDATED : CAPTURE_ACTIVE;
    return CUDA_SUCCESS;
}

/// Sets which captures refuse unsafe calls of this thread, and returns what was set before.
API CUresult cuThreadExchangeStreamCaptureMode(CaptureMode* mode) {
    const Call call;
    if (call.refused()) return call.error();
    std::swap(*mode, thread_mode);
    return CUDA_SUCCESS;
}
