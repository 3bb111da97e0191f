// Counts of memory traffic by instructions of warps. The lanes of a warp do not run together here, so accesses are put
// together afterwards: the n-th access of each lane by one instruction belongs to the n-th execution by the warp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "state.h"
#include "watch.h"

namespace simt {

// The unit in which a device moves global memory.
constexpr uintptr_t SECTOR_BYTES = 32;

enum class Space { Global, Shared };

class Traffic {
   public:
    // Ranges whose traffic counts by itself, too. Set for each launch.
    std::vector<Watched> watched;

    // Forgets what is left, and prepares for blocks of some threads.
    void begin_block(unsigned threads);

    // Notes an access of the running thread. An execution counts when all lanes of the warp took part.
    void record(Space space, uintptr_t address, size_t bytes, const void* code, Counts& counts);

    // Counts the executions in which not all lanes took part.
    void end_block(Counts& counts);

   private:
    // One execution by a warp of an instruction that accesses memory.
    struct Execution {
        unsigned lanes = 0;
        unsigned bytes = 0;
        uintptr_t addresses[LANES];
    };

    // An instruction in a warp. `executions` begins at number `first`; earlier ones are counted.
    struct Instruction {
        Space space;
        uint32_t done[LANES] = {};  // executions by each lane
        uint32_t first = 0;
        std::deque<Execution> executions;
    };

    // The instructions of a warp, with a cache of those that were looked up last.
    struct WarpLog {
        static constexpr size_t CACHE_ENTRIES = 64;
        std::unordered_map<uintptr_t, Instruction> instructions;
        struct {
            uintptr_t key;
            Instruction* instruction;
        } cache[CACHE_ENTRIES];
        unsigned all_lanes;

        void clear();
        Instruction& find(uintptr_t key);
    };

    void count(Space space, const Execution& execution, Counts& counts);
    void count_watched(const Execution& execution);

    std::vector<WarpLog> warps_;
};

}  // namespace simt
