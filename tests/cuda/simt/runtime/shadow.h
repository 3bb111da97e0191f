// Shadows of memory: for each word of 4 bytes, which moments last wrote and read it. A word whose bytes are touched
// separately is split in four.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace simt {

// A moment's number in its table, with flags. 0 means never.
using Stamp = uint32_t;
constexpr Stamp ATOMIC = 1u << 31;       // the access was atomic
constexpr Stamp IN_FLIGHT = 1u << 30;    // a copy that its thread has not waited for
constexpr Stamp MOMENT = IN_FLIGHT - 1;  // the bits of the number

constexpr size_t WORD_BYTES = 4;

// The last write of some bytes, and two reads since: the last one, and one by another thread, if possible of another
// warp or block. With both, a write that is not ordered after all readers is found also if its own thread read last.
struct Cell {
    Stamp write = 0;
    Stamp reads[2] = {};
};

struct ShadowWord {
    Cell cell;
    uint32_t split : 29 = 0;  // number of the four cells in the pool, or 0: not split
    uint32_t read_ever : 1 = 0;
    uint32_t written_ever : 1 = 0;
};

struct SplitCells {
    Cell bytes[WORD_BYTES];
};

// Cells of split words.
class SplitPool {
   public:
    SplitPool() { clear(); }

    // Number 0 stays unused.
    void clear() { cells_.resize(1); }

    // Returns the cells of the word's bytes, and splits it if it is not.
    SplitCells& split(ShadowWord& word) {
        if (word.split == 0) {
            word.split = static_cast<uint32_t>(cells_.size());
            cells_.push_back({{word.cell, word.cell, word.cell, word.cell}});
        }
        return cells_[word.split];
    }

   private:
    std::deque<SplitCells> cells_;
};

// Calls `visit(cell, address)` for the cells of an access of `bytes` bytes from `begin`. `find(address)` returns the
// shadow of the word that holds the address.
template <class Find, class Visit>
void visit_cells(SplitPool& pool, uintptr_t begin, size_t bytes, Find find, Visit visit) {
    const uintptr_t end = begin + bytes;
    for (uintptr_t at = begin; at < end;) {
        ShadowWord& word = find(at);
        const uintptr_t word_end = (at / WORD_BYTES + 1) * WORD_BYTES;
        const uintptr_t stop = word_end < end ? word_end : end;
        if (stop - at == WORD_BYTES && word.split == 0) {
            visit(word, word.cell, at);
            at = stop;
            continue;
        }
        SplitCells& cells = pool.split(word);
        for (; at < stop; at++) visit(word, cells.bytes[at % WORD_BYTES], at);
    }
}

}  // namespace simt
