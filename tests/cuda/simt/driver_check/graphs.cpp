// Tests of stream capture and graphs.
#include <thread>

#include "device.h"

using namespace check;

namespace {

/// Begins a capture.
void begin(void* stream, CaptureMode mode = CAPTURE_THREAD_LOCAL) {
    OK(cuStreamBeginCapture_v2(stream, mode));
}

/// Ends a capture that has to succeed. Returns its graph.
void* end(void* stream) {
    void* graph = nullptr;
    OK(cuStreamEndCapture(stream, &graph));
    return graph;
}

/// Makes a graph ready to run.
void* instantiate(void* graph) {
    void* made = nullptr;
    OK(cuGraphInstantiateWithFlags(&made, graph, 0));
    return made;
}

/// Returns the number of nodes of a graph.
size_t node_count(void* graph) {
    size_t count = 0;
    OK(cuGraphGetNodes(graph, nullptr, &count));
    return count;
}

/// Returns the number of edges of a graph.
size_t edge_count(void* graph) {
    size_t count = 0;
    OK(cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count));
    return count;
}

/// Ends a capture, and returns the code. There is a graph only after success.
CUresult end_code(void* stream) {
    void* graph = nullptr;
    const CUresult code = cuStreamEndCapture(stream, &graph);
    REQUIRE((graph == nullptr) == (code != CUDA_SUCCESS));
    return code;
}

}  // namespace

TEST(replay, "graphs: a capture runs nothing; each launch runs all of it") {
    use_device();
    void* work = stream();
    const CUdeviceptr sum = ints(4), one = ints(4);
    OK(launch(kernel("fill"), 4, work, sum, 0, 4));
    OK(launch(kernel("fill"), 4, work, one, 1, 4));
    OK(cuStreamSynchronize(work));
    begin(work);
    CaptureStatus status = CAPTURE_NONE;
    OK(cuStreamIsCapturing(work, &status));
    REQUIRE(status == CAPTURE_ACTIVE);
    for (int i = 0; i < 3; i++) OK(launch(kernel("add"), 4, work, sum, one, 4));
    void* graph = end(work);
    REQUIRE(node_count(graph) == 3 && edge_count(graph) == 2);
    REQUIRE(value_at(sum) == 0);
    void* exec = instantiate(graph);
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < 5; i++) OK(cuGraphLaunch(exec, work));
    OK(cuStreamSynchronize(work));
    REQUIRE(value_at(sum) == 15);
    REQUIRE(simt_launches("add") == 15 && simt_graph_launches() == 5);
    OK(cuGraphExecDestroy(exec));
}

TEST(joined, "capture: two streams that events join become one graph with a fork and a join", "SIMT_CHECK=1") {
    use_device();
    void* first = stream();
    void* second = stream();
    void* fork = event();
    void* join = event();
    const CUdeviceptr a = ints(4), b = ints(4), c = ints(1);
    void* fill = kernel("fill");
    void* add = kernel("add");
    void* read = kernel("read");
    begin(first);
    OK(launch(fill, 4, first, a, 1, 4));
    OK(cuEventRecord(fork, first));
    OK(cuStreamWaitEvent(second, fork, 0));
    OK(launch(fill, 4, second, b, 2, 4));
    OK(launch(add, 4, second, b, a, 4));
    OK(cuEventRecord(join, second));
    OK(launch(read, 1, first, c, a, 0));
    OK(cuStreamWaitEvent(first, join, 0));
    OK(launch(add, 4, first, a, b, 4));
    void* graph = end(first);
    REQUIRE(node_count(graph) == 5 && edge_count(graph) == 5);
    void* exec = instantiate(graph);
    for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, first));
    OK(cuCtxSynchronize());
    REQUIRE(value_at(a) == 4 && value_at(b) == 3);
}

TEST(graph_race, "capture: branches of a graph that touch the same words are found", "SIMT_CHECK=1") {
    use_device();
    void* first = stream();
    void* second = stream();
    void* fork = event();
    void* join = event();
    const CUdeviceptr a = ints(4);
    void* fill = kernel("fill");
    begin(first);
    OK(cuEventRecord(fork, first));
    OK(cuStreamWaitEvent(second, fork, 0));
    OK(launch(fill, 4, first, a, 1, 4));
    OK(launch(fill, 4, second, a, 2, 4));
    OK(cuEventRecord(join, second));
    OK(cuStreamWaitEvent(first, join, 0));
    void* exec = instantiate(end(first));
    OK(cuGraphLaunch(exec, first));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
}

TEST(unjoined, "capture: work of a forked stream that is not joined is error 904") {
    use_device();
    void* first = stream();
    void* second = stream();
    void* fork = event();
    const CUdeviceptr a = ints(4);
    void* fill = kernel("fill");
    begin(first);
    OK(cuEventRecord(fork, first));
    OK(cuStreamWaitEvent(second, fork, 0));
    OK(launch(fill, 4, second, a, 2, 4));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, end_code(first));
    OK(launch(fill, 4, second, a, 2, 4));
    OK(cuCtxSynchronize());
}

TEST(isolation, "capture: a wait for an event from outside is error 905") {
    use_device();
    void* first = stream();
    void* outside = event();
    OK(cuEventRecord(outside, stream()));
    begin(first);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(first, outside, 0));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_code(first));
}

TEST(merge, "capture: a wait that would merge two captures is error 902") {
    use_device();
    void* first = stream();
    void* second = stream();
    void* point = event();
    begin(first);
    begin(second);
    OK(cuEventRecord(point, first));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(second, point, 0));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_code(first));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_code(second));
}

TEST(synchronise, "capture: a synchronisation inside is error 900, and ends it") {
    use_device();
    void* first = stream();
    begin(first);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(first));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_code(first));
    begin(first, CAPTURE_RELAXED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_code(first));
}

TEST(captured_event, "capture: a query of an event that was recorded inside is error 907") {
    use_device();
    void* first = stream();
    void* point = event();
    begin(first);
    OK(cuEventRecord(point, first));
    EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(point));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_code(first));
}

TEST(implicit, "capture: use of the legacy stream while a blocking stream captures is error 906") {
    use_device();
    void* blocking = stream(0);
    begin(blocking, CAPTURE_RELAXED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, launch(kernel("fill"), 4, nullptr, ints(4), 2, 4));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_code(blocking));
    void* free_stream = stream();
    begin(free_stream, CAPTURE_RELAXED);
    OK(launch(kernel("fill"), 4, nullptr, ints(4), 2, 4));
    end(free_stream);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(nullptr, CAPTURE_RELAXED));
}

TEST(modes, "capture: cuMemAlloc is refused by the mode of the capture and of the thread") {
    use_device();
    void* context = nullptr;
    OK(cuCtxGetCurrent(&context));
    void* work = stream();
    CUdeviceptr memory = 0;
    auto elsewhere = [&](CUresult wanted) {
        std::thread([&] {
            OK(cuCtxSetCurrent(context));
            EXPECT(wanted, cuMemAlloc_v2(&memory, 4));
        }).join();
    };
    begin(work, CAPTURE_RELAXED);
    OK(cuMemAlloc_v2(&memory, 4));
    end(work);
    begin(work, CAPTURE_THREAD_LOCAL);
    elsewhere(CUDA_SUCCESS);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&memory, 4));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_code(work));
    begin(work, CAPTURE_GLOBAL);
    elsewhere(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_code(work));
    CaptureMode mode = CAPTURE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    REQUIRE(mode == CAPTURE_GLOBAL);
    begin(work, CAPTURE_GLOBAL);
    OK(cuMemAlloc_v2(&memory, 4));
    end(work);
}

TEST(ends, "capture: it ends in its own stream and thread only") {
    use_device();
    void* first = stream();
    void* second = stream();
    void* fork = event();
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, end_code(first));
    begin(first);
    OK(cuEventRecord(fork, first));
    OK(cuStreamWaitEvent(second, fork, 0));
    std::thread([&] {
        void* context = nullptr;
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxSetCurrent(context));
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, end_code(first));
    }).join();
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, end_code(second));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_code(first));
}

TEST(async_allocation, "capture: cuMemAllocAsync is refused inside") {
    use_device();
    void* work = stream();
    CUdeviceptr memory = 0;
    begin(work);
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemAllocAsync(&memory, 4, work));
    end(work);
}

TEST(update, "graphs: the launch of a kernel node can be changed") {
    use_device();
    void* work = stream();
    CUdeviceptr memory = ints(4);
    void* fill = kernel("fill");
    begin(work);
    OK(launch(fill, 4, work, memory, 1, 4));
    void* graph = end(work);
    void* exec = instantiate(graph);
    void* node = nullptr;
    size_t count = 1;
    OK(cuGraphGetNodes(graph, &node, &count));
    int value = 8, length = 4;
    void* arguments[] = {&memory, &value, &length};
    CUDA_KERNEL_NODE_PARAMS parameters{fill, 1, 1, 1, 4, 1, 1, 0, arguments, nullptr, nullptr, nullptr};
    OK(cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters));
    OK(cuGraphLaunch(exec, work));
    OK(cuStreamSynchronize(work));
    REQUIRE(value_at(memory) == 8);
    parameters.func = kernel("diverge");
    EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters));
}
