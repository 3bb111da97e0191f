// Order of accesses within a block: vector clocks, restricted to one warp where that is enough.
#include "clocks.h"

#include <algorithm>

namespace simt {

void Clocks::order(Thread* const* threads, size_t count, bool one_warp) {
    if (!one_warp) whole_rows_ = true;
    const unsigned first = whole_rows_ ? 0 : threads[0]->warp * LANES;
    const unsigned end = whole_rows_ ? MAX_THREADS : first + LANES;
    uint32_t joined[MAX_THREADS];
    std::fill(joined + first, joined + end, 0u);
    for (size_t i = 0; i < count; i++) {
        const uint32_t* known = row(threads[i]->number);
        for (unsigned t = first; t < end; t++) joined[t] = std::max(joined[t], known[t]);
    }
    for (size_t i = 0; i < count; i++) {
        ThreadClock& clock = threads[i]->clock;
        joined[threads[i]->number] = ++clock.ticks;
        end_moment(*threads[i]);
    }
    for (size_t i = 0; i < count; i++) std::copy(joined + first, joined + end, row(threads[i]->number) + first);
}

uint32_t Clocks::stamp(std::vector<Moment>& table, uint32_t& own, uint32_t block) const {
    if (own == 0) {
        own = static_cast<uint32_t>(table.size());
        table.push_back({block, epoch_, current->clock.ticks, current->clock.fences, current->number});
    }
    return own;
}

}  // namespace simt
