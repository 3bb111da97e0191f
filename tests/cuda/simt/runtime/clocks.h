// Order of accesses within a block.
//
// Each access is stamped with a moment: thread, epoch, ticks, fences. A barrier of the whole block begins a new epoch,
// so that everything before is ordered. Barriers of a part of the block (a warp, a numbered barrier) raise the ticks of
// their threads, and each of them notes the ticks of the others that it now follows: a vector clock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "state.h"

namespace simt {

// When a thread was where. Accesses of a thread between two operations that order memory share a moment.
struct Moment {
    uint32_t block;  // number of the block within the launch
    uint32_t epoch;
    uint32_t ticks;
    uint32_t fences;
    uint32_t thread;
};

class Clocks {
   public:
    Clocks() : known_(new uint32_t[MAX_THREADS * MAX_THREADS]()) {}

    // Starts a block.
    void begin_block() {
        epoch_++;
        whole_rows_ = false;
    }

    uint32_t epoch() const { return epoch_; }

    // Begins a new epoch: all threads of the block are ordered.
    void order_block() { epoch_++; }

    // Orders some threads among each other. `one_warp` says that they are lanes of one warp.
    void order(Thread* const* threads, size_t count, bool one_warp);

    // Says whether a moment of the running block comes before what `thread` does now.
    bool before(const Moment& moment, const Thread& thread) const {
        return moment.thread == thread.number || moment.epoch < epoch_ ||
               moment.ticks < row(thread.number)[moment.thread];
    }

    // Returns what a thread knows of the lanes of its own warp.
    const uint32_t* known_lanes(const Thread& thread) const { return row(thread.number) + thread.warp * LANES; }

    // Returns the running thread's moment in a table, and makes it if an operation came since the last one.
    uint32_t stamp(std::vector<Moment>& table, uint32_t& own, uint32_t block) const;

   private:
    uint32_t* row(unsigned thread) const { return known_.get() + thread * MAX_THREADS; }

    // known[u][t]: what thread t did before this tick is ordered before thread u. Ticks never fall, also from block to
    // block, so the table is never cleared.
    std::unique_ptr<uint32_t[]> known_;
    uint32_t epoch_ = 0;
    bool whole_rows_ = false;  // a numbered barrier ordered threads of several warps in this block
};

// Makes the next access of a thread begin a new moment.
inline void end_moment(Thread& thread) { thread.clock.shared_moment = thread.clock.global_moment = 0; }

}  // namespace simt
