// The schedule of a block. Lanes of one warp run before other warps, in rising order or by seed.
#include "schedule.h"

#include <cstdlib>

#include "fibers.h"

namespace simt {

// Returns the first set bit above `bit`, or the lowest one if none is above. At least one is set.
static unsigned next_bit(unsigned bits, unsigned bit) {
    const unsigned above = bit + 1 < LANES ? bits & (~0u << (bit + 1)) : 0;
    return static_cast<unsigned>(__builtin_ctz(above != 0 ? above : bits));
}

// Returns the thread that runs after `last`, or null if none is ready.
static Thread* next_thread(const Thread& last) {
    Machine& m = *machine;
    unsigned warp = last.warp;
    if (m.warps[warp].ready == 0) m.ready_warps &= ~(1u << warp);
    if (m.ready_warps == 0) return nullptr;
    if (m.random_order) {
        warp = m.random.pick_bit(m.ready_warps);
    } else if (m.warps[warp].ready == 0) {
        warp = next_bit(m.ready_warps, warp);
    }
    const unsigned ready = m.warps[warp].ready;
    unsigned lane;
    if (m.random_order) {
        lane = m.random.pick_bit(ready);
    } else if (warp == last.warp) {
        lane = next_bit(ready, last.lane);
    } else {
        lane = static_cast<unsigned>(__builtin_ctz(ready));
    }
    return &m.threads[warp * LANES + lane];
}

// Switches to another ready thread, or back to `run_grid` if the block is done.
static void run_next(Thread& last) {
    Machine& m = *machine;
    Thread* next = next_thread(last);
    if (next == nullptr) {
        if (m.live_threads > 0) fail(Outcome::LaunchFailed, "deadlock: " + describe_waits());
        simt_switch(&last.stack_pointer, m.scheduler_stack);
        abort();
    }
    if (next == &last) return;
    current = next;
    simt_switch(&last.stack_pointer, next->stack_pointer);
}

void wait_for_others() {
    Thread& self = *current;
    machine->warps[self.warp].ready &= ~(1u << self.lane);
    run_next(self);
}

void make_ready(unsigned warp, unsigned lanes) {
    machine->warps[warp].ready |= lanes;
    machine->ready_warps |= 1u << warp;
}

void make_ready(const Thread& thread) { make_ready(thread.warp, 1u << thread.lane); }

void leave_block() {
    Thread& self = *current;
    machine->warps[self.warp].ready &= ~(1u << self.lane);
    run_next(self);
    abort();
}

Thread& first_thread() {
    Machine& m = *machine;
    if (!m.random_order) return m.threads[0];
    const unsigned warp = m.random.pick_bit(m.ready_warps);
    return m.threads[warp * LANES + m.random.pick_bit(m.warps[warp].ready)];
}

std::string describe_waits() {
    Machine& m = *machine;
    std::string text;
    for (unsigned number = 0; number < MAX_BARRIERS; number++) {
        const Barrier& barrier = m.barriers[number];
        if (barrier.arrived == 0) continue;
        const unsigned wanted = barrier.wanted != 0 ? barrier.wanted : m.live_threads;
        text += format("%u of %u threads wait at barrier %u of %s:%d; ", barrier.arrived, wanted, number,
                       barrier.site.file, barrier.site.line);
    }
    const unsigned warps = (m.threads_in_block + LANES - 1) / LANES;
    for (unsigned warp = 0; warp < warps; warp++) {
        for (const Collective& c : m.warps[warp].collectives) {
            if (c.arrived == 0) continue;
            text += format("warp %u waits in %s with mask %08x, lanes %08x have arrived; ", warp, c.what, c.mask,
                           c.arrived);
        }
    }
    if (!text.empty()) text.resize(text.size() - 2);
    return text;
}

}  // namespace simt
