// Barriers of a block: __syncthreads, its voting forms, and numbered barriers for a part of the block.
#include <cstring>

#include "schedule.h"

namespace simt {

// Says whether two places in the source are the same one.
static bool same_site(const Site& a, const Site& b) {
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

// Fails if the running thread must not wait at the barrier.
static void check_arrival(const Barrier& barrier, unsigned number, unsigned threads, const Site& site) {
    Machine& m = *machine;
    if (number >= MAX_BARRIERS || threads % LANES != 0 || threads > m.threads_in_block) {
        fail(Outcome::LaunchFailed, format("barrier %u for %u threads: the number or the count is wrong", number,
                                           threads));
    }
    if (threads == 0 && m.live_threads < m.threads_in_block) {
        fail(Outcome::LaunchFailed, format("%u threads exited before the barrier of %s:%d",
                                           m.threads_in_block - m.live_threads, site.file, site.line));
    }
    if (barrier.arrived == 0) return;
    if (barrier.wanted != threads) {
        fail(Outcome::LaunchFailed, format("barrier %u is waited at for %u and for %u threads", number,
                                           barrier.wanted, threads));
    }
    if (threads == 0 && !same_site(barrier.site, site)) {
        fail(Outcome::LaunchFailed,
             format("divergent barrier: this thread waits at %s:%d, and %u others at %s:%d", site.file, site.line,
                    barrier.arrived, barrier.site.file, barrier.site.line));
    }
}

// Lets the waiting threads run. The running thread is the last one that arrived.
static void release(Barrier& barrier) {
    if (machine->checked) {
        barrier.waiting.push_back(current);
        clock_barrier(barrier.waiting.data(), barrier.waiting.size());
        barrier.waiting.pop_back();
    }
    for (const Thread* thread : barrier.waiting) make_ready(*thread);
    barrier.waiting.clear();
    barrier.arrived = 0;
    barrier.turn ^= 1;
    barrier.votes[barrier.turn] = 0;
}

unsigned barrier(unsigned number, unsigned threads, bool predicate, Site site) {
    Machine& m = *machine;
    Barrier& barrier = m.barriers[number % MAX_BARRIERS];
    check_arrival(barrier, number, threads, site);
    m.counts.values[COUNT_BARRIERS]++;
    const unsigned turn = barrier.turn;
    barrier.wanted = threads;
    barrier.site = site;
    barrier.arrived++;
    barrier.votes[turn] += predicate;
    if (barrier.arrived == (threads != 0 ? threads : m.live_threads)) {
        release(barrier);
    } else {
        barrier.waiting.push_back(current);
        wait_for_others();
    }
    return barrier.votes[turn];
}

}  // namespace simt
