// Tests of what else orders work than streams and events: the host, words that it polls, dependent launches, and seeds.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "device.h"

using namespace check;

namespace {

constexpr int COUNT = 64;

const char* const DEPENDENT_SOURCE = R"(
#include "ptx.cuh"
extern "C" __global__ void early(int* to, const int* from) {
    to[threadIdx.x] = from[threadIdx.x];
    ptx::dependents_wait();
}
extern "C" __global__ void late(int* to, const int* from) {
    ptx::dependents_wait();
    to[threadIdx.x] = from[threadIdx.x];
}
)";

/// Launches a kernel that copies what another one writes, as a dependent launch. Returns the copy's place.
CUdeviceptr launch_dependent(const char* name) {
    void* module = compile(DEPENDENT_SOURCE);
    void* function = nullptr;
    OK(cuModuleGetFunction(&function, module, name));
    void* work = stream();
    CUdeviceptr from = ints(COUNT), to = ints(COUNT);
    OK(launch(kernel("fill"), 32, work, from, 5, COUNT));
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.number = 1;
    const CUlaunchConfig config{1, 1, 1, COUNT, 1, 1, 0, work, &attribute, 1};
    void* arguments[] = {&to, &from};
    OK(cuLaunchKernelEx(&config, function, arguments, nullptr));
    return to;
}

/// Runs host functions in four streams, in a new process with a seed. Returns the order in which they ran.
std::string order_of(const char* seed) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        setenv("SIMT_SEED", seed, 1);
        static int to = ends[1];
        use_device();
        static char names[4] = {'a', 'b', 'c', 'd'};
        void* streams[4];
        for (void*& one : streams) one = stream();
        for (int round = 0; round < 4; round++) {
            for (int i = 0; i < 4; i++) {
                OK(cuLaunchHostFunc(streams[i], [](void* name) { (void)!write(to, name, 1); }, &names[i]));
            }
        }
        OK(cuCtxSynchronize());
        _exit(EXIT_SUCCESS);
    }
    close(ends[1]);
    std::string order;
    char name;
    while (read(ends[0], &name, 1) == 1) order += name;
    close(ends[0]);
    int status = -1;
    waitpid(child, &status, 0);
    REQUIRE(status == 0 && order.size() == 16);
    return order;
}

/// Launches a kernel on the second device that writes to memory of the first.
void use_foreign_memory() {
    use_device(0);
    const CUdeviceptr foreign = ints(COUNT);
    use_device(1);
    OK(launch(kernel("fill"), 32, nullptr, foreign, 1, COUNT));
}

}  // namespace

TEST(seeds, "order: one seed gives one order, and seeds differ", "SIMT_LAZY=1") {
    const std::string first = order_of("1");
    REQUIRE(order_of("1") == first && order_of("1") == first);
    REQUIRE(order_of("2") != first || order_of("3") != first);
}

TEST(told_by_function, "order: work that a host function has announced is ordered", "SIMT_CHECK=1") {
    use_device();
    static std::atomic<bool> announced{false};
    const CUdeviceptr memory = ints(COUNT);
    void* first = stream();
    OK(launch(kernel("fill"), 32, first, memory, 1, COUNT));
    OK(cuLaunchHostFunc(first, [](void*) { announced = true; }, nullptr));
    while (!announced) usleep(100);
    OK(launch(kernel("fill"), 32, stream(), memory, 2, COUNT));
    OK(cuCtxSynchronize());
}

TEST(polled, "order: a word that the host polls orders only after simt_host_acquire", "SIMT_CHECK=1") {
    use_device();
    void* word = nullptr;
    OK(cuMemHostAlloc(&word, sizeof(uint64_t), 0));
    auto* polled = static_cast<std::atomic<uint64_t>*>(word);
    *polled = 0;
    const auto address = reinterpret_cast<CUdeviceptr>(word);
    const CUdeviceptr memory = ints(COUNT);
    void* first = stream();
    OK(launch(kernel("fill"), 32, first, memory, 1, COUNT));
    OK(cuStreamWriteValue64_v2(first, address, 1, 0));
    while (*polled != 1) usleep(100);
    simt_host_acquire(word, sizeof(uint64_t));
    OK(launch(kernel("fill"), 32, stream(), memory, 2, COUNT));
    OK(cuStreamSynchronize(first));
    OK(cuCtxSynchronize());
    OK(cuStreamWriteValue64_v2(first, address, 2, 0));
    OK(launch(kernel("fill"), 32, first, memory, 3, COUNT));
    OK(launch(kernel("fill"), 32, stream(), memory, 4, COUNT));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
}

TEST(dependent, "order: a dependent launch that waits reads what was written", "SIMT_CHECK=1") {
    use_device();
    const CUdeviceptr copy = launch_dependent("late");
    OK(cuCtxSynchronize());
    REQUIRE(value_at(copy) == 5);
}

TEST(dependent_early, "order: a dependent launch that reads before its wait is found", "SIMT_CHECK=1") {
    use_device();
    launch_dependent("early");
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
}

TEST(no_peer_access, "devices: a kernel that uses another device's memory without peer access faults",
     "SIMT_DEVICES=2", "SIMT_CHECK=1") {
    use_foreign_memory();
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST(no_peer_access_plain, "devices: so does a kernel without checks, by the keys of the processor", "SIMT_DEVICES=2",
     "SIMT_CHECK=0") {
    if (pkey_alloc(0, 0) < 0) return;  // a processor without protection keys: it does not
    use_foreign_memory();
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}
