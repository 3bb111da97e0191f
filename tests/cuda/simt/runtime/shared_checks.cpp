// Checks of shared memory: bounds, bytes that were never written, copies in flight, and races within the block.
#include "checks_state.h"

namespace simt {

// A wider access may be a copy of a structure, and structures have padding that no thread writes.
constexpr size_t WIDEST_NUMBER = 4;

SharedRegion* find_shared(uintptr_t address, size_t bytes, const void* code) {
    Checks& c = *machine->checks;
    for (SharedRegion* region : {&c.static_shared, &c.dynamic_shared}) {
        const uintptr_t offset = address - region->begin;
        const bool dynamic = region == &c.dynamic_shared;
        // The whole buffer of dynamic shared memory is reserved, whatever the launch asked for.
        const size_t reach = dynamic ? MAX_DYNAMIC_SHARED : region->bytes;
        if (region->begin == 0 || offset >= reach) continue;
        if (offset + bytes <= region->bytes) return region;
        fail(Outcome::IllegalAddress,
             format("%zu bytes at byte %zu of %s shared memory, which has %zu bytes", bytes,
                    static_cast<size_t>(offset), region->name, region->bytes),
             code);
    }
    return nullptr;
}

// Describes the place of an access for messages.
static std::string describe(const SharedRegion& region, uintptr_t address) {
    return format("byte %zu of %s shared memory", static_cast<size_t>(address - region.begin), region.name);
}

// Fails because a read finds nothing that was written.
[[noreturn]] static void fail_unwritten(const SharedRegion& region, uintptr_t address, Access access,
                                        const void* code) {
    fail(Outcome::Unwritten,
         format("the thread %s %s, which was never written", access_name(access), describe(region, address).c_str()),
         code);
}

// Fails because two accesses are not ordered.
[[noreturn]] static void fail_race(const SharedRegion& region, uintptr_t address, Access access, bool other_writes,
                                   Stamp other, const void* code) {
    const Moment& moment = machine->checks->shared_moments[other & MOMENT];
    const Thread& thread = machine->threads[moment.thread];
    fail(Outcome::Race,
         format("race: the thread %s %s, and thread (%u,%u,%u) %s with no barrier between", access_name(access),
                describe(region, address).c_str(), thread.index.x, thread.index.y, thread.index.z,
                access_name(other_writes, other)),
         code);
}

void check_shared(SharedRegion& region, uintptr_t address, size_t bytes, Access access, Stamp stamp_flags,
                  const void* code) {
    Checks& c = *machine->checks;
    const Thread& self = *current;
    const Stamp atomic = is_atomic(access) ? ATOMIC : 0;
    const Stamp stamp =
        c.clocks.stamp(c.shared_moments, current->clock.shared_moment, c.block) | atomic | stamp_flags;
    const auto ordered = [&](Stamp other) {
        if (other == 0 || (other & stamp & ATOMIC)) return true;
        if (other & IN_FLIGHT) return false;
        return c.clocks.before(c.shared_moments[other & MOMENT], self);
    };
    const auto find = [&](uintptr_t at) -> ShadowWord& { return region.words[(at - region.begin) / WORD_BYTES]; };
    bool any_written = false;
    visit_cells(c.shared_splits, address, bytes, find, [&](ShadowWord&, Cell& cell, uintptr_t at) {
        if (cell.write != 0) {
            any_written = true;
        } else if (access != Access::Write && bytes <= WIDEST_NUMBER) {
            fail_unwritten(region, at, access, code);
        }
        if (!ordered(cell.write)) fail_race(region, at, access, true, cell.write, code);
        if (!writes(access)) {
            remember_read(cell, stamp, c.shared_moments);
            return;
        }
        for (const Stamp read : cell.reads) {
            if (!ordered(read)) fail_race(region, at, access, false, read, code);
        }
        cell.write = stamp;
        cell.reads[0] = cell.reads[1] = 0;
    });
    if (!any_written && access != Access::Write) fail_unwritten(region, address, access, code);
}

}  // namespace simt
