// The ranges that a test watches, and their sums.
#include "watch.h"

#include <mutex>

namespace simt {

// Never destroyed: a detached executor may still run while the process exits.
static std::mutex& lock = *new std::mutex;
static std::vector<Watched>& ranges = *new std::vector<Watched>;

std::vector<Watched> watched_ranges() {
    const std::lock_guard guard(lock);
    std::vector<Watched> watched = ranges;
    for (Watched& range : watched) range.counts = {};
    return watched;
}

void add_watched(const std::vector<Watched>& watched) {
    const std::lock_guard guard(lock);
    for (const Watched& from : watched) {
        for (Watched& to : ranges) {
            if (to.range.begin != from.range.begin || to.range.end != from.range.end) continue;
            to.counts.bytes += from.counts.bytes;
            to.counts.sectors += from.counts.sectors;
            to.counts.unique_bytes += from.counts.unique_bytes;
            to.counts.unique_sectors += from.counts.unique_sectors;
        }
    }
}

}  // namespace simt

extern "C" void simt_watch(const void* memory, size_t bytes) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
    const std::lock_guard guard(simt::lock);
    simt::ranges.push_back({{begin, begin + bytes}, {}});
}

extern "C" int simt_watched(const void* memory, simt::WatchedCounts* out) {
    const std::lock_guard guard(simt::lock);
    for (const simt::Watched& watched : simt::ranges) {
        if (watched.range.begin != reinterpret_cast<uintptr_t>(memory)) continue;
        *out = watched.counts;
        return 0;
    }
    return 1;
}

extern "C" void simt_watch_nothing() {
    const std::lock_guard guard(simt::lock);
    simt::ranges.clear();
}
