// Where device memory comes from: pages between guard pages, filled with 0xFF, with canaries up to the page's ends.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "guard.h"
#include "memory.h"
#include "settings.h"

namespace driver {

namespace {

constexpr size_t PAGE = 4096;
constexpr size_t ALIGNMENT = 256;  // of what cuMemAlloc returns

// Addresses are never used twice in a process, so that each use after free faults. This is how many there are.
constexpr size_t ARENA_BYTES = size_t(8) << 40;

// New memory holds this byte: NaN as f32, bf16 and f16, -1 as an index.
constexpr unsigned char UNWRITTEN = 0xFF;
constexpr unsigned char CANARY = 0xCA;

// Memory up to this size is filled by writing; larger memory shares pages of one file until it is written.
constexpr size_t FILL_BY_WRITING = size_t(4) << 20;
constexpr size_t PATTERN_BYTES = size_t(16) << 20;

/// Rounds up to a multiple of a power of two.
size_t round_up(size_t value, size_t multiple) {
    return (value + multiple - 1) & ~(multiple - 1);
}

/// Returns a file of PATTERN_BYTES bytes 0xFF, made on first use; -1 if that fails.
int pattern_file() {
    static const int file = [] {
        const int made = memfd_create("simt-unwritten", MFD_CLOEXEC);
        if (made < 0) return -1;
        const std::vector<unsigned char> bytes(1 << 20, UNWRITTEN);
        for (size_t written = 0; written < PATTERN_BYTES; written += bytes.size()) {
            if (write(made, bytes.data(), bytes.size()) != ssize_t(bytes.size())) return -1;
        }
        return made;
    }();
    return file;
}

/// Says whether all bytes of a range are canaries.
bool intact(const char* from, const char* to) {
    for (; from < to; from++) {
        if (static_cast<unsigned char>(*from) != CANARY) return false;
    }
    return true;
}

/// Returns an error, after a message, if one of a region's canaries was overwritten.
CUresult check_canaries_of(const Region& region) {
    const DeviceAccess access;
    const char* data = reinterpret_cast<const char*>(region.address);
    const bool front = intact(region.pages, data);
    const bool back = intact(data + region.bytes, region.pages + region.page_bytes);
    if (front && back) return CUDA_SUCCESS;
    complain("the bytes %s device memory #%llu (%zu bytes at 0x%llx) were overwritten", front ? "behind" : "before",
             region.id, region.bytes, (unsigned long long)region.address);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

}  // namespace

CUdeviceptr take_addresses(size_t bytes, size_t alignment) {
    static char* next = nullptr;
    static char* end = nullptr;
    if (!next) {
        void* arena = mmap(nullptr, ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED) return 0;
        next = static_cast<char*>(arena);
        end = next + ARENA_BYTES;
    }
    const size_t start = round_up(reinterpret_cast<size_t>(next), alignment);
    if (start + bytes > reinterpret_cast<size_t>(end)) return 0;
    next = reinterpret_cast<char*>(start + bytes);
    return start;
}

bool fill_pages(char* pages, size_t bytes) {
    if (bytes <= FILL_BY_WRITING) {
        memset(pages, UNWRITTEN, bytes);
        return true;
    }
    for (size_t done = 0; done < bytes; done += PATTERN_BYTES) {
        const size_t part = std::min(PATTERN_BYTES, bytes - done);
        const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
        if (mmap(pages + done, part, PROT_READ | PROT_WRITE, flags, pattern_file(), 0) == MAP_FAILED) return false;
    }
    return true;
}

CUresult allocate(Context& context, size_t bytes, CUdeviceptr* address) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const size_t rounded = round_up(bytes, ALIGNMENT);
    if (bytes > settings().memory || context.used + rounded > settings().memory) return CUDA_ERROR_OUT_OF_MEMORY;
    // The data ends where the pages end, rounded to ALIGNMENT, and a page that faults follows.
    const size_t page_bytes = round_up(rounded, PAGE);
    const CUdeviceptr taken = take_addresses(page_bytes + PAGE, PAGE);
    if (!taken) return CUDA_ERROR_OUT_OF_MEMORY;
    char* pages = reinterpret_cast<char*>(taken);
    if (mprotect(pages, page_bytes, PROT_READ | PROT_WRITE) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!fill_pages(pages, page_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    char* data = pages + page_bytes - rounded;
    memset(pages, CANARY, data - pages);
    memset(data + bytes, CANARY, rounded - bytes);
    if (!protect(pages, page_bytes, PROT_READ | PROT_WRITE, context.device)) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = reinterpret_cast<CUdeviceptr>(data);
    Region& region = add_region(*address, bytes, MemoryKind::device, context.device);
    region.pages = pages;
    region.page_bytes = page_bytes;
    context.used += rounded;
    return CUDA_SUCCESS;
}

CUresult release(Region& region) {
    const CUresult result = check_canaries_of(region);
    mmap(region.pages, region.page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    state().contexts[region.device]->used -= round_up(region.bytes, ALIGNMENT);
    regions().erase(region.address);
    return result;
}

void check_canaries(Context& context) {
    for (const auto& [address, region] : regions()) {
        if (region.kind != MemoryKind::device || region.device != context.device) continue;
        const CUresult result = check_canaries_of(region);
        if (result != CUDA_SUCCESS && context.sticky == CUDA_SUCCESS) context.sticky = result;
    }
}

}  // namespace driver
