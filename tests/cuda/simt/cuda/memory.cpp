// Device memory: cuMemAlloc and its relatives.
#include "memory.h"

#include "executor.h"
#include "failures.h"
#include "settings.h"

using namespace driver;

/// Allocates device memory.
API CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
    Call call(NEEDS_DRIVER | REFUSED_IN_CAPTURE);
    if (call.refused()) return call.error();
    if (fail_allocation()) return CUDA_ERROR_OUT_OF_MEMORY;
    return allocate(call.context(), bytes, address);
}

/// Frees device memory after all work of its context.
API CUresult cuMemFree_v2(CUdeviceptr address) {
    if (address == 0) return CUDA_SUCCESS;
    Call call(NEEDS_DRIVER | REFUSED_IN_CAPTURE);
    if (call.refused()) return call.error();
    const Region* before = find_region(address);
    if (!before || before->kind != MemoryKind::device || before->address != address) return CUDA_ERROR_INVALID_VALUE;
    Context& context = *state().contexts[before->device];
    drain(context, call.lock());
    Region* region = find_region(address);  // the lock was away: another thread may have freed it
    if (!region) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = release(*region);
    if (result != CUDA_SUCCESS && context.sticky == CUDA_SUCCESS) context.sticky = result;
    return context.sticky;
}

/// Allocates device memory in the order of a stream. The look-alike allocates at once.
API CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, void* handle) {
    Call call;
    if (call.refused()) return call.error();
    Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return CUDA_ERROR_NOT_SUPPORTED;
    if (fail_allocation()) return CUDA_ERROR_OUT_OF_MEMORY;
    return allocate(*stream->context, bytes, address);
}

/// Frees device memory in the order of a stream: work that another stream has not ordered before it faults.
API CUresult cuMemFreeAsync(CUdeviceptr address, void* handle) {
    Call call;
    if (call.refused()) return call.error();
    Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return CUDA_ERROR_NOT_SUPPORTED;
    const Region* region = find_region(address);
    if (!region || region->kind != MemoryKind::device) return CUDA_ERROR_INVALID_VALUE;
    Work work{.kind = OpKind::fill, .name = "free of device memory"};
    work.accesses = {{region->address, region->bytes, true}};
    work.run = [address](Running&) {
        const std::lock_guard lock(state().mutex);
        Region* freed = find_region(address);
        return freed ? release(*freed) : CUDA_ERROR_INVALID_VALUE;
    };
    return enqueue(*stream, std::move(work), NODE_EMPTY);
}

/// Returns the free and the total bytes of the current device.
API CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
    const Call call;
    if (call.refused()) return call.error();
    *total_bytes = settings().memory;
    *free_bytes = settings().memory - call.context().used;
    return CUDA_SUCCESS;
}

/// Returns the start and the length of the region of an address.
API CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
    const Call call;
    if (call.refused()) return call.error();
    const Region* region = find_region(address);
    if (!region) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = region->address;
    if (bytes) *bytes = region->bytes;
    return CUDA_SUCCESS;
}
