// The table of all memory that devices can reach, and where device memory comes from.
#pragma once
#include <vector>

#include "driver.h"

namespace driver {

enum class MemoryKind {
    device,      // cuMemAlloc
    mapped,      // cuMemMap
    pinned,      // cuMemHostAlloc
    registered,  // cuMemHostRegister
};

/// A range of memory that devices can reach.
struct Region {
    CUdeviceptr address;
    size_t bytes;
    MemoryKind kind;
    int device;                        // that owns it; for host memory the one that was current
    unsigned long long id;             // counts up over all regions
    char* pages = nullptr;             // device: the pages around it, which hold its canaries
    size_t page_bytes = 0;
    std::map<int, unsigned> access{};  // mapped: rights by device, as cuMemSetAccess gave them
    CUmemGenericAllocationHandle handle = 0;  // mapped

    CUdeviceptr end() const { return address + bytes; }
    bool on_device() const { return kind == MemoryKind::device || kind == MemoryKind::mapped; }
};

/// Returns all regions by address.
std::map<CUdeviceptr, Region>& regions();

/// Returns the region of an address, or null.
Region* find_region(CUdeviceptr address);

/// Says whether every byte of a range lies in a region; adjacent mappings count as one.
bool covered(CUdeviceptr address, size_t bytes);

/// Adds a region to the table.
Region& add_region(CUdeviceptr address, size_t bytes, MemoryKind kind, int device);

/// Returns an error if an operation of a context must not touch one of its ranges, after a line that says why.
CUresult check_accesses(const Work& work, const Context& context);

/// Says whether an operation of a context may touch all of its ranges.
bool may_touch(const Work& work, const Context& context);

/// Returns the rights of a context's kernels to a region, as the flags of cuMemSetAccess.
unsigned rights_to(const Region& region, const Context& context);

/// Describes an address for messages: the region, the offset, or what is near.
std::string describe(CUdeviceptr address);

/// Takes a range of addresses that no memory of this process had before. Returns 0 if there are no more.
CUdeviceptr take_addresses(size_t bytes, size_t alignment);

/// Allocates device memory, filled with 0xFF, between canaries.
CUresult allocate(Context& context, size_t bytes, CUdeviceptr* address);

/// Frees what `allocate` gave; the addresses fault from then on. Returns an error if a canary was overwritten.
CUresult release(Region& region);

/// Checks the canaries of all device memory of a context; an overwritten one becomes its sticky error.
void check_canaries(Context& context);

/// Fills new pages with 0xFF, without using memory for pages that are only read.
bool fill_pages(char* pages, size_t bytes);

/// Waits until no operation on memory runs. Operations that are queued stay where they are.
void wait_until_idle(std::unique_lock<std::mutex>& lock);

}  // namespace driver
