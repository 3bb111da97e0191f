// A small generator of random numbers (SplitMix64). The same seed gives the same numbers everywhere.
#pragma once

#include <cstdint>

namespace simt {

class Random {
   public:
    void seed(uint64_t seed) { state_ = seed; }

    uint64_t next() {
        state_ += 0x9e3779b97f4a7c15ull;
        uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }

    // Returns a number below `bound`.
    unsigned below(unsigned bound) { return static_cast<unsigned>((next() >> 32) * bound >> 32); }

    // Returns the number of one of the set bits. At least one is set.
    unsigned pick_bit(unsigned bits) {
        for (unsigned skip = below(static_cast<unsigned>(__builtin_popcount(bits))); skip > 0; skip--) bits &= bits - 1;
        return static_cast<unsigned>(__builtin_ctz(bits));
    }

   private:
    uint64_t state_ = 1;
};

}  // namespace simt
