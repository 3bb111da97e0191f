// The checks' life within a launch, and the choice of the check for an access.
#include "checks.h"

#include "checks_state.h"

namespace simt {

Checks* new_checks() { return new Checks; }

void checks_begin_launch(const Module& module) {
    Checks& c = *machine->checks;
    c.tickets.begin_launch();
    c.traffic.watched = watched_ranges();
    c.pages.clear();
    c.last_page = nullptr;
    c.global_splits.clear();
    c.global_moments.assign(1, Moment{});
    c.allocations.clear();
    for (const Interval& segment : module.segments) c.allocations.push_back({segment.begin, segment.end, true});
    c.static_shared.name = "static";
    c.static_shared.begin = reinterpret_cast<uintptr_t>(module.shared);
    c.static_shared.bytes = module.shared_bytes;
    c.dynamic_shared.name = "dynamic";
    c.dynamic_shared.begin = reinterpret_cast<uintptr_t>(machine->dynamic_shared);
    c.dynamic_shared.bytes = machine->launch->dynamic_shared_bytes;
}

void checks_begin_block(unsigned number) {
    Machine& m = *machine;
    Checks& c = *m.checks;
    c.block = number;
    c.waited_epoch = 0;
    c.clocks.begin_block();
    c.tickets.begin_block(number);
    c.traffic.begin_block(m.threads_in_block);
    c.shared_splits.clear();
    c.shared_moments.assign(1, Moment{});
    for (SharedRegion* region : {&c.static_shared, &c.dynamic_shared}) {
        region->words.assign(region->bytes / WORD_BYTES + 2, ShadowWord{});
    }
    for (unsigned i = 0; i < m.threads_in_block; i++) {
        ThreadClock& clock = m.threads[i].clock;
        const uint32_t ticks = clock.ticks;
        clock = {};
        clock.ticks = ticks;
    }
}

void checks_end_block() { machine->checks->traffic.end_block(machine->counts); }

void checks_end_launch(Result& result) {
    Checks& c = *machine->checks;
    list_touched(c, machine->launch->list_touched, result, machine->counts);
    for (Watched& watched : c.traffic.watched) count_unique(c, watched);
    add_watched(c.traffic.watched);
}

void check_access(const void* memory, size_t bytes, Access access, const void* code) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(memory);
    if (is_own_memory(memory)) return;
    Checks& c = *machine->checks;
    if (SharedRegion* region = find_shared(address, bytes, code)) {
        check_shared(*region, address, bytes, access, 0, code);
        c.traffic.record(Space::Shared, address, bytes, code, machine->counts);
        return;
    }
    check_global(address, bytes, access, code);
    c.traffic.record(Space::Global, address, bytes, code, machine->counts);
}

void check_copy_issued(const void* to, const void* from, bool wanted, size_t bytes, const void* code) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(to);
    SharedRegion* region = find_shared(address, bytes, code);
    if (region == nullptr) {
        fail(Outcome::IllegalAddress, format("cp.async writes %p, which is not shared memory", to), code);
    }
    if (wanted) check_access(from, bytes, Access::Read, code);
    check_shared(*region, address, bytes, Access::Write, IN_FLIGHT, code);
    machine->checks->traffic.record(Space::Shared, address, bytes, code, machine->counts);
}

void check_copy_landed(const void* to, size_t bytes) {
    Checks& c = *machine->checks;
    const uintptr_t address = reinterpret_cast<uintptr_t>(to);
    SharedRegion& region = *find_shared(address, bytes, nullptr);
    const Stamp stamp = c.clocks.stamp(c.shared_moments, current->clock.shared_moment, c.block);
    const auto find = [&](uintptr_t at) -> ShadowWord& { return region.words[(at - region.begin) / WORD_BYTES]; };
    visit_cells(c.shared_splits, address, bytes, find, [&](ShadowWord&, Cell& cell, uintptr_t) { cell.write = stamp; });
}

void check_matrix_row(const void* row, size_t bytes, const void* code) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(row);
    if (find_shared(address, bytes, code) == nullptr) {
        fail(Outcome::IllegalAddress, format("ldmatrix reads %p, which is not shared memory", row), code);
    }
    machine->checks->traffic.record(Space::Shared, address, bytes, code, machine->counts);
}

void check_matrix_element(const void* element, size_t bytes, const void* code) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(element);
    check_shared(*find_shared(address, bytes, code), address, bytes, Access::Read, 0, code);
}

void clock_barrier(Thread* const* threads, size_t count) {
    Clocks& clocks = machine->checks->clocks;
    if (count < machine->live_threads) {
        clocks.order(threads, count, false);
        return;
    }
    clocks.order_block();
    for (size_t i = 0; i < count; i++) end_moment(*threads[i]);
}

void clock_warp(unsigned warp, unsigned lanes) {
    Thread* threads[LANES];
    size_t count = 0;
    for (unsigned lane = 0; lane < LANES; lane++) {
        if (lanes >> lane & 1) threads[count++] = &machine->threads[warp * LANES + lane];
    }
    machine->checks->clocks.order(threads, count, true);
}

void clock_fence() { machine->checks->tickets.fence(machine->checks->clocks); }

void clock_dependents_wait() {
    Checks& c = *machine->checks;
    current->clock.waited = true;
    if (c.waited_epoch == 0) c.waited_epoch = c.clocks.epoch();
}

const char* access_name(Access access) {
    switch (access) {
        case Access::Read: return "reads";
        case Access::Write: return "writes";
        case Access::Atomic: return "changes atomically";
        case Access::AtomicRead: return "reads atomically";
    }
    return "touches";
}

const char* access_name(bool write, Stamp stamp) {
    if (stamp & IN_FLIGHT) return "has a copy in flight to it";
    if (stamp & ATOMIC) return write ? "changed it atomically" : "read it atomically";
    return write ? "wrote it" : "read it";
}

// Says how far apart two threads are: in another block, warp, lane, or nowhere.
static unsigned distance(const Moment& a, const Moment& b) {
    if (a.block != b.block) return 3;
    if (a.thread / LANES != b.thread / LANES) return 2;
    return a.thread != b.thread ? 1 : 0;
}

void remember_read(Cell& cell, Stamp stamp, const std::vector<Moment>& moments) {
    const Moment& now = moments[stamp & MOMENT];
    const Moment& last = moments[cell.reads[0] & MOMENT];
    if (cell.reads[0] != 0 && distance(now, last) > 0) {
        // The last read moves to the second place, unless the one there is farther away from this one.
        const Moment& other = moments[cell.reads[1] & MOMENT];
        const bool farther = cell.reads[1] != 0 && distance(now, other) > distance(now, last);
        if (!farther) cell.reads[1] = cell.reads[0];
    }
    cell.reads[0] = stamp;
}

}  // namespace simt
