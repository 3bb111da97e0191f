// The table of all memory that devices can reach, and the checks that use it.
#include <cstdio>

#include "guard.h"
#include "memory.h"

namespace driver {

std::map<CUdeviceptr, Region>& regions() {
    static auto& table = *new std::map<CUdeviceptr, Region>;
    return table;
}

Region* find_region(CUdeviceptr address) {
    auto next = regions().upper_bound(address);
    if (next == regions().begin()) return nullptr;
    Region& region = std::prev(next)->second;
    return address < region.end() ? &region : nullptr;
}

bool covered(CUdeviceptr address, size_t bytes) {
    const CUdeviceptr end = address + bytes;
    do {
        const Region* region = find_region(address);
        if (!region) return false;
        address = region->end();
    } while (address < end);
    return true;
}

Region& add_region(CUdeviceptr address, size_t bytes, MemoryKind kind, int device) {
    static unsigned long long next_id = 1;
    Region region{.address = address, .bytes = bytes, .kind = kind, .device = device, .id = next_id++};
    return regions().insert_or_assign(address, std::move(region)).first->second;
}

std::string describe(CUdeviceptr address) {
    static constexpr const char* KINDS[] = {"device memory", "mapped memory", "pinned memory", "registered memory"};
    char text[200];
    if (const Region* region = find_region(address)) {
        snprintf(text, sizeof text, "0x%llx, which is byte %llu of %s #%llu (%zu bytes)", (unsigned long long)address,
                 (unsigned long long)(address - region->address), KINDS[int(region->kind)], region->id, region->bytes);
        return text;
    }
    auto next = regions().upper_bound(address);
    if (next == regions().begin()) {
        snprintf(text, sizeof text, "0x%llx, which lies in no memory", (unsigned long long)address);
    } else {
        const Region& below = std::prev(next)->second;
        snprintf(text, sizeof text, "0x%llx, which is %llu bytes behind %s #%llu (%zu bytes)",
                 (unsigned long long)address, (unsigned long long)(address - below.end()), KINDS[int(below.kind)],
                 below.id, below.bytes);
    }
    return text;
}

unsigned rights_to(const Region& region, const Context& context) {
    if (region.kind == MemoryKind::mapped) {
        auto rights = region.access.find(context.device);
        return rights == region.access.end() ? 0 : rights->second;
    }
    const bool foreign = region.device != context.device && !context.peers.count(region.device);
    return region.kind == MemoryKind::device && foreign ? 0 : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

namespace {

/// Returns why an operation must not touch a range; null if it may. Copies may use cuMemAlloc's memory of all devices.
const char* refusal(const Access& access, const Context& context, OpKind kind) {
    CUdeviceptr at = access.address;
    const CUdeviceptr end = at + access.bytes;
    while (at < end) {
        const Region* region = find_region(at);
        if (!region) return "touches memory that does not exist (never allocated, freed or unmapped)";
        at = region->end();
        if (region->kind != MemoryKind::mapped && kind != OpKind::kernel) continue;
        const unsigned rights = rights_to(*region, context);
        if (rights == 0) return "touches memory without access (cuMemSetAccess, cuCtxEnablePeerAccess)";
        if (access.write && rights == CU_MEM_ACCESS_FLAGS_PROT_READ) return "writes to a mapping that is read-only";
    }
    return nullptr;
}

}  // namespace

bool may_touch(const Work& work, const Context& context) {
    for (const Access& access : work.accesses) {
        if (refusal(access, context, work.kind)) return false;
    }
    return true;
}

CUresult check_accesses(const Work& work, const Context& context) {
    for (const Access& access : work.accesses) {
        const char* why = refusal(access, context, work.kind);
        if (!why) continue;
        complain("%s %s: %zu bytes at %s", work.name.c_str(), why, access.bytes, describe(access.address).c_str());
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    return CUDA_SUCCESS;
}

}  // namespace driver
