// Order between the blocks of a launch: fences and atomic operations.
//
// Blocks run one after another, so a missing fence never shows in the numbers. The rule that is checked: an access of
// block A comes before one of block B if A's access is followed by a fence, that by an atomic operation on an address
// (the release), later B makes an atomic operation on the same address (the acquire), follows it with a fence, and that
// by its access. Barriers may lie between any of them. The fence may be made by the thread of the access or by that of
// the atomic operation.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "clocks.h"

namespace simt {

// A fence or an atomic operation, with what its thread knew then.
struct Point {
    uint32_t block;
    uint32_t epoch;
    uint32_t ticks;
    uint32_t fences;  // fences of the thread before this point
    uint32_t thread;
    std::array<uint32_t, LANES> known;
};

class Tickets {
   public:
    void begin_launch();
    void begin_block(uint32_t block);

    // Notes a fence of the running thread.
    void fence(const Clocks& clocks);

    // Notes an atomic operation of the running thread. Reads acquire, writes release.
    void atomic(const Clocks& clocks, uintptr_t address, bool writes);

    // Says whether a moment of another block comes before what `thread` does now with the word at `address`. An atomic
    // moment also does if the running block made an atomic operation on that word before.
    bool before(const Clocks& clocks, const Moment& moment, bool atomic, uintptr_t address, const Thread& thread) const;

   private:
    // The atomic writes of one address.
    struct Location {
        std::vector<Point> releases;
        std::unordered_map<uint32_t, std::vector<uint32_t>> by_block;
    };

    // An atomic operation of the running block, which read what the first `seen` releases left.
    struct Acquisition {
        const Location* location;
        uintptr_t address;
        size_t seen;
        Point point;
    };

    Point point_now(const Clocks& clocks) const;
    const std::vector<Point>& fences_of(uint32_t block, uint32_t thread) const;
    bool released(const Moment& moment, const Point& release) const;
    bool reaches(const Clocks& clocks, const Point& point, const Thread& thread) const;
    bool acquired(const Clocks& clocks, const Acquisition& acquisition, const Thread& thread) const;
    void forward(const Clocks& clocks, Location& to, const Location& except);

    uint32_t block_ = 0;
    std::unordered_map<uint64_t, std::vector<Point>> fences_;  // by block and thread
    std::unordered_map<uintptr_t, Location> locations_;
    std::vector<Acquisition> acquisitions_;
};

}  // namespace simt
