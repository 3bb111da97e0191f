// Device memory for the check program.
#include "device_memory.h"

#include <cstdlib>
#include <cstring>
#include <map>

namespace check {

// Memory is aligned as a driver's is, and holds NaN at first. Bytes beyond the end belong to the memory, but not to the
// allocation: an access to them is out of bounds and does not fault.
constexpr size_t ALIGNMENT = 256;
constexpr int UNWRITTEN = 0xff;

static std::map<uintptr_t, size_t> allocations;

static bool find_allocation(uintptr_t address, simt::Allocation* found) {
    auto after = allocations.upper_bound(address);
    *found = {};
    if (after == allocations.begin()) return false;
    --after;
    *found = {after->first, after->first + after->second, true};
    return address < found->end;
}

void use_allocation_table() { simt::set_find_allocation(find_allocation); }

void* allocate(size_t bytes) {
    const size_t rounded = (bytes / ALIGNMENT + 2) * ALIGNMENT;
    void* memory = aligned_alloc(ALIGNMENT, rounded);
    memset(memory, UNWRITTEN, rounded);
    allocations[reinterpret_cast<uintptr_t>(memory)] = bytes;
    return memory;
}

void release(void* memory) {
    allocations.erase(reinterpret_cast<uintptr_t>(memory));
    free(memory);
}

}  // namespace check
