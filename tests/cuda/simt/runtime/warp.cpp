// Collectives of a warp: the lanes of a mask exchange values. Shuffles, votes, ldmatrix and mma are built on them.
#include <cstring>

#include "schedule.h"

namespace simt {

// Fails if the running lane must not take part with this mask.
static void check_mask(const Warp& warp, unsigned mask, const char* what) {
    const Thread& self = *current;
    if (!(mask >> self.lane & 1)) {
        fail(Outcome::LaunchFailed, format("%s: the calling lane %u is not in its mask %08x", what, self.lane, mask));
    }
    if (mask & ~warp.live) {
        fail(Outcome::LaunchFailed, format("%s: the mask %08x names lanes that have exited or do not exist: %08x", what,
                                           mask, mask & ~warp.live));
    }
}

// Returns the collective in progress for a mask, or a free one.
static Collective& find_collective(Warp& warp, unsigned mask, const char* what) {
    Collective* free = nullptr;
    for (Collective& c : warp.collectives) {
        if (c.mask == mask) return c;
        if (free == nullptr && c.arrived == 0 && c.unread == 0) free = &c;
    }
    if (free == nullptr) fail(Outcome::LaunchFailed, format("%s: too many masks in progress in one warp", what));
    free->mask = mask;
    return *free;
}

// Waits for all lanes of the mask. `value` may be null. With `orders_memory`, the lanes see each other's accesses.
static const Slots& join(unsigned mask, const void* value, size_t bytes, const char* what, void (*finish)(Slots&),
                         bool orders_memory) {
    Machine& m = *machine;
    Thread& self = *current;
    Warp& warp = m.warps[self.warp];
    const unsigned own = 1u << self.lane;
    check_mask(warp, mask, what);
    Collective& c = find_collective(warp, mask, what);
    if (c.arrived != 0 && strcmp(c.what, what) != 0) {
        fail(Outcome::LaunchFailed, format("lanes of one mask are in different operations: %s and %s", c.what, what));
    }
    m.counts.values[COUNT_SHUFFLES]++;
    Slots& slots = c.slots[c.turn];
    c.what = what;
    if (bytes > 0) memcpy(slots.bytes[self.lane], value, bytes);
    c.arrived |= own;
    if (c.arrived != mask) {
        wait_for_others();
    } else {
        if (finish != nullptr) finish(slots);
        if (orders_memory && m.checked) clock_warp(self.warp, mask);
        c.arrived = 0;
        c.unread = mask;
        c.turn ^= 1;
        make_ready(self.warp, mask);
    }
    c.unread &= ~own;
    return slots;
}

const Slots& collective(unsigned mask, const void* value, size_t bytes, const char* what, void (*finish)(Slots&)) {
    return join(mask, value, bytes, what, finish, false);
}

void sync_warp(unsigned mask) { join(mask, nullptr, 0, "__syncwarp", nullptr, true); }

void check_source_lane(unsigned mask, unsigned source, const char* what) {
    if (source < LANES && (mask >> source & 1)) return;
    fail(Outcome::LaunchFailed, format("%s: reads lane %u, which is not in the mask %08x", what, source, mask));
}

unsigned live_lanes() { return machine->warps[current->warp].live; }

}  // namespace simt
