// Virtual memory management: addresses, physical memory and the mappings between them. Physical memory is a memfd, so
// that another process can map it too.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "call.h"
#include "executor.h"
#include "failures.h"
#include "guard.h"
#include "memory.h"
#include "races.h"
#include "settings.h"

using namespace driver;

namespace {

constexpr size_t GRANULARITY = size_t(2) << 20;

// New physical memory is filled with 0xFF up to this size. Larger memory starts with zeros, so that it costs nothing.
constexpr size_t FILLED_MAX = size_t(256) << 20;

struct Physical {
    int file;
    size_t bytes;
    CUmemAllocationProp properties;
    int references = 1;  // of the handle
    int mappings = 0;
    bool imported = false;
};

// Never destroyed, as threads may still call while the process exits.
auto& handles = *new std::map<CUmemGenericAllocationHandle, Physical>;
auto& reservations = *new std::map<CUdeviceptr, size_t>;
CUmemGenericAllocationHandle next_handle = 1;

/// Says whether a value is a multiple of the granularity, and not 0.
bool granular(size_t value) {
    return value != 0 && value % GRANULARITY == 0;
}

/// Says whether a range lies in one reservation.
bool reserved(CUdeviceptr address, size_t bytes) {
    auto next = reservations.upper_bound(address);
    if (next == reservations.begin()) return false;
    const auto& [start, length] = *std::prev(next);
    return address + bytes <= start + length;
}

/// Frees physical memory that has neither a handle nor a mapping.
void collect(CUmemGenericAllocationHandle handle) {
    const Physical& physical = handles.at(handle);
    if (physical.references > 0 || physical.mappings > 0) return;
    close(physical.file);
    if (!physical.imported) state().contexts[physical.properties.location.id]->used -= physical.bytes;
    handles.erase(handle);
}

/// Replaces pages by addresses that fault.
bool unmap_pages(CUdeviceptr address, size_t bytes) {
    constexpr int FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    return mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, FLAGS, -1, 0) != MAP_FAILED;
}

/// Returns the mappings that make up a range exactly; empty if there are none.
std::vector<Region*> mappings_of(CUdeviceptr address, size_t bytes) {
    std::vector<Region*> found;
    const CUdeviceptr end = address + bytes;
    while (address < end) {
        Region* region = find_region(address);
        const bool mapped = region && region->kind == MemoryKind::mapped;
        if (!mapped || region->address != address || region->end() > end) return {};
        found.push_back(region);
        address = region->end();
    }
    return found;
}

/// Sets the protection of a mapping's pages to the widest right that a device has.
bool apply_access(const Region& region) {
    int protection = PROT_NONE;
    for (const auto& [device, rights] : region.access) {
        if (rights == CU_MEM_ACCESS_FLAGS_PROT_READ) protection |= PROT_READ;
        if (rights == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) protection |= PROT_READ | PROT_WRITE;
    }
    const int owner = region.access.size() == 1 ? region.access.begin()->first : ALL_DEVICES;
    return protect(reinterpret_cast<void*>(region.address), region.bytes, protection, owner);
}

}  // namespace

/// Returns the unit of sizes and addresses.
API CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*, int) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

/// Reserves addresses without memory. A wish for an address is ignored.
API CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                                 unsigned long long) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    const bool power_of_two = (alignment & (alignment - 1)) == 0;
    if (!granular(bytes) || !power_of_two) return CUDA_ERROR_INVALID_VALUE;
    *address = take_addresses(bytes, std::max(alignment, GRANULARITY));
    if (*address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    reservations[*address] = bytes;
    return CUDA_SUCCESS;
}

/// Gives reserved addresses back; nothing may be mapped there.
API CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    auto found = reservations.find(address);
    if (found == reservations.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
    auto mapped = regions().lower_bound(address);
    if (mapped != regions().end() && mapped->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
    reservations.erase(found);
    return CUDA_SUCCESS;
}

/// Allocates physical memory of a device.
API CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                         unsigned long long flags) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    const int device = properties->location.id;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (device < 0 || device >= settings().devices) return CUDA_ERROR_INVALID_DEVICE;
    if (!granular(bytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    Context& context = *state().contexts[device];
    if (fail_allocation() || context.used + bytes > settings().memory) return CUDA_ERROR_OUT_OF_MEMORY;
    const int file = memfd_create("simt-device-memory", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, bytes) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes <= FILLED_MAX) {
        void* view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (view == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
        memset(view, 0xFF, bytes);
        munmap(view, bytes);
    }
    *handle = next_handle++;
    handles[*handle] = Physical{.file = file, .bytes = bytes, .properties = *properties};
    context.used += bytes;
    return CUDA_SUCCESS;
}

/// Releases a handle. The memory lives on while it is mapped.
API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    auto found = handles.find(handle);
    if (found == handles.end() || found->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
    found->second.references--;
    collect(handle);
    return CUDA_SUCCESS;
}

/// Maps the whole of a physical allocation at reserved addresses. No device may use it before cuMemSetAccess.
API CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                      unsigned long long flags) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    auto found = handles.find(handle);
    if (found == handles.end()) return CUDA_ERROR_INVALID_VALUE;
    Physical& physical = found->second;
    if (flags != 0 || offset != 0 || bytes != physical.bytes || address % GRANULARITY != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!reserved(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    auto next = regions().lower_bound(address);
    const bool taken = find_region(address) || (next != regions().end() && next->first < address + bytes);
    if (taken) return CUDA_ERROR_INVALID_VALUE;
    constexpr int FLAGS = MAP_SHARED | MAP_FIXED;
    void* at = reinterpret_cast<void*>(address);
    if (mmap(at, bytes, PROT_NONE, FLAGS, physical.file, 0) == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    physical.mappings++;
    add_region(address, bytes, MemoryKind::mapped, physical.properties.location.id).handle = handle;
    forget_accesses(address, bytes);
    return CUDA_SUCCESS;
}

/// Unmaps whole mappings, at once: work that still uses them faults.
API CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    wait_until_idle(call.lock());
    const std::vector<Region*> mapped = mappings_of(address, bytes);
    if (mapped.empty() || !unmap_pages(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    for (const Region* region : mapped) {
        const CUmemGenericAllocationHandle handle = region->handle;
        regions().erase(region->address);
        handles.at(handle).mappings--;
        collect(handle);
    }
    return CUDA_SUCCESS;
}

/// Sets which devices may read or write mappings.
API CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* rights, size_t count) {
    Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    wait_until_idle(call.lock());
    const std::vector<Region*> mapped = mappings_of(address, bytes);
    if (mapped.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (rights[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
        const int device = rights[i].location.id;
        if (device < 0 || device >= settings().devices) return CUDA_ERROR_INVALID_DEVICE;
        for (Region* region : mapped) {
            region->access[device] = rights[i].flags;
            if (rights[i].flags == 0) region->access.erase(device);
        }
    }
    for (const Region* region : mapped) {
        if (!apply_access(*region)) return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return CUDA_SUCCESS;
}

/// Returns the rights of a device at an address.
API CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    const Region* region = find_region(address);
    if (!region || region->kind != MemoryKind::mapped) return CUDA_ERROR_INVALID_VALUE;
    auto rights = region->access.find(location->id);
    *flags = rights == region->access.end() ? 0 : rights->second;
    return CUDA_SUCCESS;
}

/// Returns a file descriptor of physical memory, for another process.
API CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle, unsigned type,
                                          unsigned long long) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    auto found = handles.find(handle);
    if (found == handles.end() || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    if (!(found->second.properties.requestedHandleTypes & type)) return CUDA_ERROR_INVALID_VALUE;
    const int file = dup(found->second.file);
    if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(shareable) = file;
    return CUDA_SUCCESS;
}

/// Makes a handle of another process's file descriptor. The caller may close the descriptor afterwards.
API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable, unsigned type) {
    const Call call;
    if (call.refused()) return call.error();
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    struct stat status{};
    const int file = dup(int(reinterpret_cast<uintptr_t>(shareable)));
    if (file < 0 || fstat(file, &status) != 0 || !granular(status.st_size)) return CUDA_ERROR_INVALID_VALUE;
    Physical physical{.file = file, .bytes = size_t(status.st_size), .properties = {}, .imported = true};
    physical.properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    physical.properties.requestedHandleTypes = type;
    physical.properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, call.context().device};
    *handle = next_handle++;
    handles[*handle] = physical;
    return CUDA_SUCCESS;
}

/// Returns how physical memory was made.
API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                    CUmemGenericAllocationHandle handle) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    auto found = handles.find(handle);
    if (found == handles.end()) return CUDA_ERROR_INVALID_VALUE;
    *properties = found->second.properties;
    return CUDA_SUCCESS;
}

/// Returns the handle of the memory that is mapped at an address, with one more reference.
API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    const Region* region = find_region(reinterpret_cast<CUdeviceptr>(address));
    if (!region || region->kind != MemoryKind::mapped) return CUDA_ERROR_INVALID_VALUE;
    handles.at(region->handle).references++;
    *handle = region->handle;
    return CUDA_SUCCESS;
}
