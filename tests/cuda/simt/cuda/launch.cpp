// Launches of kernels: what a real driver checks, the run in libsimt, and the counts of launches.
#include "call.h"
#include "executor.h"
#include "failures.h"
#include "kernels.h"
#include "device_limits.h"
#include "memory.h"
#include "races.h"
#include "settings.h"
#include "simt_runtime.h"

#include <cstring>

using namespace driver;

namespace driver {

namespace {

/// Counts of launches that ran, by kernel.
std::map<std::string, unsigned long long>& launch_counts() {
    static auto& counts = *new std::map<std::string, unsigned long long>;
    return counts;
}

/// Says whether a launch is within the limits of the device.
bool within_limits(const LaunchShape& shape) {
    const auto& [grid, block, dynamic, dependent] = shape;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0) return false;
    if (grid.x > GRID_X_MAX || grid.y > GRID_Y_MAX || grid.z > GRID_Z_MAX) return false;
    if (block.x > BLOCK_X_MAX || block.y > BLOCK_Y_MAX || block.z > BLOCK_Z_MAX) return false;
    return uint64_t(block.x) * block.y * block.z <= THREADS_PER_BLOCK_MAX;
}

/// Returns the driver's error for an outcome of libsimt.
CUresult error_of(simt::Outcome outcome) {
    switch (outcome) {
        case simt::Outcome::Ok: return CUDA_SUCCESS;
        case simt::Outcome::InvalidConfiguration: return CUDA_ERROR_INVALID_VALUE;
        case simt::Outcome::IllegalAddress: return CUDA_ERROR_ILLEGAL_ADDRESS;
        case simt::Outcome::MisalignedAddress: return CUDA_ERROR_MISALIGNED_ADDRESS;
        case simt::Outcome::LaunchFailed:
        case simt::Outcome::Race:
        case simt::Outcome::Unwritten: return CUDA_ERROR_LAUNCH_FAILED;
    }
    return CUDA_ERROR_UNKNOWN;
}

/// Returns what a launch touched, as the detector of races takes it.
std::vector<Access> touched_by(const simt::Result& result) {
    std::vector<Access> touched;
    for (const simt::Interval& range : result.writes) touched.push_back({range.begin, range.end - range.begin, true});
    for (const simt::Interval& range : result.reads) touched.push_back({range.begin, range.end - range.begin, false});
    return touched;
}

/// A launch with its arguments.
struct Prepared {
    Function function;
    LaunchShape shape;
    std::vector<std::vector<char>> arguments;
};

/// The context whose kernel the calling thread runs.
thread_local const Context* executing = nullptr;

/// Returns what the kernel before wrote, and a dependent launch must not read yet. Memory that was freed since is not
/// part of it.
std::vector<simt::Interval> pending_of(const Stream& stream) {
    const std::lock_guard lock(state().mutex);
    std::vector<simt::Interval> pending;
    for (const Access& write : stream.last_writes) {
        Work as_write;
        as_write.accesses = {write};
        if (!may_touch(as_write, *stream.context)) continue;
        pending.push_back({write.address, write.address + write.bytes});
    }
    return pending;
}

/// Runs a prepared launch.
CUresult run_launch(const Prepared& prepared, Running& running) {
    if (CUresult injected = fail_launch()) return injected;
    std::vector<void*> pointers;
    for (const std::vector<char>& argument : prepared.arguments) {
        pointers.push_back(const_cast<char*>(argument.data()));
    }
    Stream& stream = *running.stream;
    const auto& [grid, block, dynamic, dependent] = prepared.shape;
    simt::Launch launch;
    launch.name = prepared.function.name.c_str();
    launch.thunk = prepared.function.thunk;
    launch.arguments = pointers.data();
    launch.grid = {grid.x, grid.y, grid.z};
    launch.block = {block.x, block.y, block.z};
    launch.dynamic_shared_bytes = dynamic;
    launch.module = prepared.function.module;
    launch.list_touched = settings().check;
    launch.dependent = dependent && stream.last_was_kernel;
    if (launch.dependent) launch.pending = pending_of(stream);
    executing = stream.context;
    const simt::Result result = simt::run_grid(launch);
    const std::lock_guard lock(state().mutex);
    launch_counts()[prepared.function.name]++;
    if (!result.ok()) {
        complain("%s failed: %s", running.name.c_str(), result.what.c_str());
        return error_of(result.outcome);
    }
    const std::vector<Access> touched = touched_by(result);
    stream.last_writes.clear();
    for (const Access& access : touched) {
        if (access.write) stream.last_writes.push_back(access);
    }
    return check_order(running, touched);
}

/// Answers libsimt's question whether a kernel may touch an address.
bool find_allocation(uintptr_t address, simt::Allocation* found) {
    const std::lock_guard lock(state().mutex);
    if (const Region* region = find_region(address)) {
        const unsigned rights = rights_to(*region, *executing);
        *found = {region->address, region->end(), rights == CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        return rights != 0;
    }
    auto next = regions().upper_bound(address);
    *found = {};
    if (next != regions().begin()) {
        const Region& below = std::prev(next)->second;
        *found = {below.address, below.end(), true};
    }
    return false;
}

}  // namespace

void register_memory_table() {
    simt::set_find_allocation(find_allocation);
}

int blocks_per_multiprocessor(unsigned threads, size_t dynamic_shared_bytes) {
    const unsigned warps = (threads + WARP - 1) / WARP;
    const unsigned by_threads = THREADS_PER_MULTIPROCESSOR / (warps * WARP);
    const size_t by_shared = SHARED_PER_MULTIPROCESSOR / (dynamic_shared_bytes + SHARED_RESERVED);
    return int(std::min<size_t>({by_threads, by_shared, BLOCKS_PER_MULTIPROCESSOR}));
}

CUresult make_launch(const Function& function, const LaunchShape& shape, void** arguments, Work& work) {
    if (!within_limits(shape)) return CUDA_ERROR_INVALID_VALUE;
    if (shape.dynamic_shared_bytes > unsigned(function.dynamic_shared_max)) return CUDA_ERROR_INVALID_VALUE;
    if (!arguments && !function.sizes.empty()) return CUDA_ERROR_INVALID_VALUE;
    auto prepared = std::make_shared<Prepared>(Prepared{function, shape, {}});
    for (size_t i = 0; i < function.sizes.size(); i++) {
        const char* bytes = static_cast<const char*>(arguments[i]);
        prepared->arguments.emplace_back(bytes, bytes + function.sizes[i]);
    }
    work.kind = OpKind::kernel;
    work.name = "kernel " + function.name;
    work.run = [prepared](Running& running) { return run_launch(*prepared, running); };
    return CUDA_SUCCESS;
}

}  // namespace driver

namespace {

/// Enqueues a launch.
CUresult launch(void* function, const LaunchShape& shape, void* handle, void** arguments, void** extra) {
    const Call call;
    if (call.refused()) return call.error();
    Stream* stream = stream_of(handle, call.context());
    if (!stream || !function) return CUDA_ERROR_INVALID_HANDLE;
    if (extra) return CUDA_ERROR_NOT_SUPPORTED;
    Work work;
    if (CUresult error = make_launch(*static_cast<Function*>(function), shape, arguments, work)) return error;
    return enqueue(*stream, std::move(work), NODE_KERNEL);
}

/// Applies a launch attribute. Attributes that only change the speed have no effect.
CUresult apply_attribute(const CUlaunchAttribute& attribute, LaunchShape& shape) {
    switch (attribute.id) {
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            shape.dependent = attribute.value.number != 0;
            return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
            const auto& cluster = attribute.value.clusterDim;
            return cluster.x == 1 && cluster.y == 1 && cluster.z == 1 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
        }
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            return attribute.value.number == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

/// Launches a kernel.
API CUresult cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned dynamic_shared, void* stream,
                            void** arguments, void** extra) {
    const LaunchShape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared};
    return launch(function, shape, stream, arguments, extra);
}

/// Launches a kernel with attributes.
API CUresult cuLaunchKernelEx(const CUlaunchConfig* config, void* function, void** arguments, void** extra) {
    LaunchShape shape{
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .dynamic_shared_bytes = config->sharedMemBytes,
    };
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (CUresult error = apply_attribute(config->attrs[i], shape)) return error;
    }
    return launch(function, shape, config->hStream, arguments, extra);
}

/// Returns how often a kernel ran in this process, graphs included; null: all kernels together.
API unsigned long long simt_launches(const char* kernel) {
    const std::lock_guard lock(state().mutex);
    unsigned long long sum = 0;
    for (const auto& [name, count] : launch_counts()) {
        if (!kernel || name == kernel) sum += count;
    }
    return sum;
}

/// Returns the name of a kernel that ran in this process, by its place among their names; null: there are not as many.
API const char* simt_kernel(size_t index) {
    const std::lock_guard lock(state().mutex);
    for (const auto& [name, count] : launch_counts()) {
        if (index-- == 0) return name.c_str();
    }
    return nullptr;
}

/// Enqueues a host function that stands for a kernel of a library, with the ranges that it touches.
API CUresult simt_enqueue(void* handle, const char* name, void (*function)(void*), void (*drop)(void*), void* data,
                          const Access* accesses, size_t count) {
    const Call call;
    if (call.refused()) return call.error();
    Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    const std::shared_ptr<void> owned(data, drop);
    Work work{.kind = OpKind::kernel, .name = std::string("kernel ") + name};
    work.accesses.assign(accesses, accesses + count);
    work.run = [=, counted = std::string(name)](Running&) {
        if (CUresult injected = fail_launch()) return injected;
        function(owned.get());
        const std::lock_guard lock(state().mutex);
        launch_counts()[counted]++;
        return CUDA_SUCCESS;
    };
    return enqueue(*stream, std::move(work), NODE_KERNEL);
}
