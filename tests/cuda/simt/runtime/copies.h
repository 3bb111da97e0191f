// Asynchronous copies (cp.async) of one thread.
#pragma once

#include <cstddef>
#include <vector>

namespace simt {

// A copy of 16 bytes that the thread has not waited for.
struct Copy {
    void* to;
    const void* from;
    bool wanted;
    bool landed;
};

// The copies of a thread, in order of issue. Groups are numbered from 0; `group_ends` holds the number of copies up to
// the end of each committed group.
struct CopyQueue {
    std::vector<Copy> copies;
    std::vector<size_t> group_ends;
    size_t first_copy = 0;
    size_t first_group = 0;

    // Forgets all copies. A device finishes them before the block ends; no thread of the block can see them any more.
    void clear() {
        copies.clear();
        group_ends.clear();
        first_copy = 0;
        first_group = 0;
    }
};

}  // namespace simt
