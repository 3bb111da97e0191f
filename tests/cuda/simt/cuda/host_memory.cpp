// Pinned host memory, registered host memory, and questions about pointers.
#include <sys/mman.h>

#include "call.h"
#include "executor.h"
#include "failures.h"
#include "memory.h"
#include "races.h"

using namespace driver;

namespace {

constexpr size_t PAGE = 4096;

/// Returns the region that begins at a host pointer and has the wanted kind, or null.
Region* host_region(void* pointer, MemoryKind kind) {
    Region* region = find_region(reinterpret_cast<CUdeviceptr>(pointer));
    const bool matches = region && region->kind == kind && region->address == reinterpret_cast<CUdeviceptr>(pointer);
    return matches ? region : nullptr;
}

}  // namespace

/// Allocates pinned memory, filled with 0xFF. All flags are accepted: it is portable and mapped in any case.
API CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
    const Call call(NEEDS_DRIVER | REFUSED_IN_CAPTURE);
    if (call.refused()) return call.error();
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (fail_allocation()) return CUDA_ERROR_OUT_OF_MEMORY;
    const size_t rounded = (bytes + PAGE - 1) / PAGE * PAGE;
    void* pages = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!fill_pages(static_cast<char*>(pages), rounded)) return CUDA_ERROR_OUT_OF_MEMORY;
    Region& region = add_region(reinterpret_cast<CUdeviceptr>(pages), bytes, MemoryKind::pinned, call.context().device);
    region.page_bytes = rounded;
    forget_accesses(region.address, bytes);
    *pointer = pages;
    return CUDA_SUCCESS;
}

/// Allocates pinned memory; the older form of the call.
API CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) {
    return cuMemHostAlloc(pointer, bytes, 0);
}

/// Frees pinned memory.
API CUresult cuMemFreeHost(void* pointer) {
    Call call(NEEDS_INIT | REFUSED_IN_CAPTURE);
    if (call.refused()) return call.error();
    wait_until_idle(call.lock());
    const Region* region = host_region(pointer, MemoryKind::pinned);
    if (!region) return CUDA_ERROR_INVALID_VALUE;
    munmap(pointer, region->page_bytes);
    regions().erase(region->address);
    return CUDA_SUCCESS;
}

/// Registers host memory, which makes it pinned.
API CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned) {
    const Call call(NEEDS_DRIVER | REFUSED_IN_CAPTURE);
    if (call.refused()) return call.error();
    if (!pointer || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (fail_registration()) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto address = reinterpret_cast<CUdeviceptr>(pointer);
    auto next = regions().lower_bound(address);
    const bool overlaps = find_region(address) || (next != regions().end() && next->first < address + bytes);
    if (overlaps) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    add_region(address, bytes, MemoryKind::registered, call.context().device);
    forget_accesses(address, bytes);
    return CUDA_SUCCESS;
}

/// Takes the registration of host memory back.
API CUresult cuMemHostUnregister(void* pointer) {
    Call call(NEEDS_INIT | REFUSED_IN_CAPTURE);
    if (call.refused()) return call.error();
    wait_until_idle(call.lock());
    const Region* region = host_region(pointer, MemoryKind::registered);
    if (!region) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    regions().erase(region->address);
    return CUDA_SUCCESS;
}

/// Returns the address under which devices reach pinned memory: it is the same.
API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* pointer, unsigned) {
    const Call call;
    if (call.refused()) return call.error();
    const Region* region = find_region(reinterpret_cast<CUdeviceptr>(pointer));
    if (!region || region->on_device()) return CUDA_ERROR_INVALID_VALUE;
    *address = reinterpret_cast<CUdeviceptr>(pointer);
    return CUDA_SUCCESS;
}

/// Answers one question about a pointer.
API CUresult cuPointerGetAttribute(void* answer, CUpointer_attribute attribute, CUdeviceptr address) {
    const Call call;
    if (call.refused()) return call.error();
    const Region* region = find_region(address);
    if (!region) return CUDA_ERROR_INVALID_VALUE;
    auto put = [answer](auto value) {
        *static_cast<decltype(value)*>(answer) = value;
        return CUDA_SUCCESS;
    };
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: return put(static_cast<void*>(state().contexts[region->device].get()));
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return put(region->on_device() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put(address);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            if (region->on_device()) return CUDA_ERROR_INVALID_VALUE;
            return put(reinterpret_cast<void*>(address));
        case CU_POINTER_ATTRIBUTE_BUFFER_ID: return put(region->id);
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return put(false);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put(region->device);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put(region->address);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put(region->bytes);
        case CU_POINTER_ATTRIBUTE_MAPPED: return put(true);
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return put(0ull);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}
