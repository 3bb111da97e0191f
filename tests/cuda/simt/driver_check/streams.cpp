// Tests of the order of streams: events, the legacy stream, host functions, words in memory, and the detector of
// accesses that nothing orders.
#include <cstdint>

#include "device.h"

using namespace check;

namespace {

constexpr int COUNT = 64;

/// Enqueues a fill in one stream and a copy of its result in another. Returns the copy's place.
CUdeviceptr produce_and_copy(void* producer, void* consumer, void* between) {
    const CUdeviceptr memory = ints(COUNT);
    const CUdeviceptr copy = ints(COUNT);
    OK(launch(kernel("fill"), 32, producer, memory, 5, COUNT));
    if (between) {
        OK(cuEventRecord(between, producer));
        OK(cuStreamWaitEvent(consumer, between, 0));
    }
    OK(cuMemcpyDtoDAsync_v2(copy, memory, COUNT * sizeof(int), consumer));
    return copy;
}

}  // namespace

TEST(event_order, "streams: an event orders a copy behind a kernel, 20 times", "SIMT_LAZY=1") {
    use_device();
    for (int i = 0; i < 20; i++) {
        const CUdeviceptr copy = produce_and_copy(stream(), stream(), event());
        OK(cuCtxSynchronize());
        REQUIRE(value_at(copy) == 5);
    }
}

TEST(missing_event, "races: a copy that does not wait for a kernel's result is found", "SIMT_CHECK=1") {
    use_device();
    produce_and_copy(stream(), stream(), nullptr);
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
    REQUIRE(printed("unordered accesses"));
    REQUIRE(printed("kernel fill") && printed("copy device to device"));
}

TEST(event_is_enough, "races: with the event there is none", "SIMT_CHECK=1") {
    use_device();
    produce_and_copy(stream(), stream(), event());
    OK(cuCtxSynchronize());
}

TEST(synchronised, "races: the host's synchronisation orders, too", "SIMT_CHECK=1") {
    use_device();
    const CUdeviceptr memory = ints(COUNT);
    void* first = stream();
    OK(launch(kernel("fill"), 32, first, memory, 1, COUNT));
    OK(cuStreamSynchronize(first));
    OK(launch(kernel("fill"), 32, stream(), memory, 2, COUNT));
    OK(cuCtxSynchronize());
    REQUIRE(value_at(memory) == 2);
}

TEST(write_after_read, "races: a write that does not wait for a reader is found", "SIMT_CHECK=1") {
    use_device();
    const CUdeviceptr memory = ints(COUNT);
    OK(cuMemsetD8_v2(memory, 0, COUNT * sizeof(int)));
    OK(cuCtxSynchronize());
    OK(launch(kernel("add"), 32, stream(), ints(COUNT), memory, COUNT));
    OK(cuMemsetD32Async(memory, 1, COUNT, stream()));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
}

TEST(disjoint, "races: two streams may write to different words of one allocation", "SIMT_CHECK=1") {
    use_device();
    const CUdeviceptr memory = ints(2 * COUNT);
    OK(launch(kernel("fill"), 32, stream(), memory, 1, COUNT));
    OK(launch(kernel("fill"), 32, stream(), memory + COUNT * sizeof(int), 2, COUNT));
    OK(cuCtxSynchronize());
}

TEST(readers, "races: two streams may read the same words", "SIMT_CHECK=1") {
    use_device();
    const CUdeviceptr memory = ints(COUNT);
    OK(cuMemsetD8_v2(memory, 0, COUNT * sizeof(int)));
    OK(cuCtxSynchronize());
    OK(launch(kernel("read"), 32, stream(), ints(1), memory, 3));
    OK(launch(kernel("read"), 32, stream(), ints(1), memory, 3));
    OK(cuCtxSynchronize());
}

TEST(reused_slab, "races: a host write to pinned memory before its copy has ended is found", "SIMT_CHECK=1",
     "SIMT_LAZY=1") {
    use_device();
    void* slab = nullptr;
    OK(cuMemHostAlloc(&slab, COUNT, 0));
    void* copies = stream();
    void* copied = event();
    REQUIRE(simt_host_access(slab, COUNT, 1) == 0);
    OK(cuMemcpyHtoDAsync_v2(ints(COUNT), slab, COUNT, copies));
    OK(cuEventRecord(copied, copies));
    OK(cuEventSynchronize(copied));
    REQUIRE(simt_host_access(slab, COUNT, 1) == 0);
    OK(cuMemcpyHtoDAsync_v2(ints(COUNT), slab, COUNT, copies));
    REQUIRE(simt_host_access(slab, COUNT, 1) == 0);  // too early; the copy finds it when it runs
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(copies));
}

TEST(legacy_waits, "legacy stream: it waits for blocking streams", "SIMT_CHECK=1") {
    use_device();
    produce_and_copy(stream(0), nullptr, nullptr);
    OK(cuCtxSynchronize());
}

TEST(blocking_waits, "legacy stream: blocking streams wait for it", "SIMT_CHECK=1") {
    use_device();
    produce_and_copy(nullptr, stream(0), nullptr);
    OK(cuCtxSynchronize());
}

TEST(non_blocking, "legacy stream: non-blocking streams do not wait for it", "SIMT_CHECK=1") {
    use_device();
    produce_and_copy(nullptr, stream(), nullptr);
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
}

TEST(two_blocking, "legacy stream: two blocking streams do not wait for each other", "SIMT_CHECK=1") {
    use_device();
    produce_and_copy(stream(0), stream(0), nullptr);
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
}

TEST(host_function, "streams: a host function runs in order") {
    use_device();
    static int seen = 0;
    static CUdeviceptr memory = 0;
    static int host = 0;
    memory = ints(1);
    void* work = stream();
    OK(cuMemHostRegister_v2(&host, sizeof host, 0));
    OK(launch(kernel("fill"), 1, work, memory, 3, 1));
    OK(cuMemcpyDtoHAsync_v2(&host, memory, sizeof host, work));
    OK(cuLaunchHostFunc(work, [](void*) { seen = host; }, nullptr));
    OK(cuStreamSynchronize(work));
    REQUIRE(seen == 3);
}

TEST(queries, "streams: a query says whether the work is done", "SIMT_LAZY=1") {
    use_device();
    void* work = stream();
    void* done = event();
    OK(cuStreamQuery(work));
    for (int i = 0; i < 5; i++) OK(launch(kernel("fill"), 1, work, ints(1), 3, 1));
    OK(cuEventRecord(done, work));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(done));
    while (cuStreamQuery(work) == CUDA_ERROR_NOT_READY) {
    }
    OK(cuEventQuery(done));
}

TEST(word, "streams: a wait for a word lets the writer's stream go first", "SIMT_CHECK=1") {
    use_device();
    const CUdeviceptr memory = ints(COUNT);
    const CUdeviceptr copy = ints(COUNT);
    const CUdeviceptr flag = ints(2);
    OK(cuMemsetD8_v2(flag, 0, sizeof(uint64_t)));
    OK(cuCtxSynchronize());
    void* producer = stream();
    void* consumer = stream();
    OK(cuStreamWaitValue64_v2(consumer, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemcpyDtoDAsync_v2(copy, memory, COUNT * sizeof(int), consumer));
    OK(launch(kernel("fill"), 32, producer, memory, 5, COUNT));
    OK(cuStreamWriteValue64_v2(producer, flag, 1, 0));
    OK(cuCtxSynchronize());
    REQUIRE(value_at(copy) == 5);
}

TEST(timing, "events: two of them give a time; without timing they do not") {
    use_device();
    void* start = nullptr;
    void* end = nullptr;
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    void* work = stream();
    OK(cuEventRecord(start, work));
    OK(launch(kernel("fill"), 1, work, ints(1), 3, 1));
    OK(cuEventRecord(end, work));
    OK(cuEventSynchronize(end));
    float milliseconds = -1;
    OK(cuEventElapsedTime_v2(&milliseconds, start, end));
    REQUIRE(milliseconds >= 0);
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&milliseconds, start, event()));
}

TEST(async_free, "streams: memory that is freed in a stream faults in another that was not ordered") {
    use_device();
    CUdeviceptr memory = 0;
    void* first = stream();
    OK(cuMemAllocAsync(&memory, 4, first));
    OK(cuMemFreeAsync(memory, first));
    OK(cuStreamSynchronize(first));
    OK(launch(kernel("fill"), 1, stream(), memory, 1, 1));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST(destroyed, "streams: a handle that was destroyed is refused; its work still runs") {
    use_device();
    const CUdeviceptr memory = ints(1);
    void* work = stream();
    OK(launch(kernel("fill"), 1, work, memory, 6, 1));
    OK(cuStreamDestroy_v2(work));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(work));
    OK(cuCtxSynchronize());
    REQUIRE(value_at(memory) == 6);
}
