// Asynchronous copies. A copy lands when its thread waits for it (late), when it is issued (early), or by seed. A
// missing wait shows only in late copies, a missing barrier before the buffer is used again only in early ones.
#include <cstring>

#include "state.h"

namespace simt {

constexpr size_t COPY_BYTES = 16;

// Performs a copy. An unwanted one writes zeros.
static void land(Copy& copy) {
    if (copy.landed) return;
    copy.landed = true;
    if (copy.wanted) {
        memcpy(copy.to, copy.from, COPY_BYTES);
    } else {
        memset(copy.to, 0, COPY_BYTES);
    }
}

// Says whether a copy lands when it is issued.
static bool lands_early() {
    switch (machine->copies) {
        case Copies::Early: return true;
        case Copies::Late: return false;
        case Copies::Random: return machine->random.below(2) == 0;
    }
    return false;
}

void copy_async16(void* to, const void* from, bool wanted) {
    const void* code = __builtin_return_address(0);
    if (reinterpret_cast<uintptr_t>(to) % COPY_BYTES != 0 || reinterpret_cast<uintptr_t>(from) % COPY_BYTES != 0) {
        fail(Outcome::MisalignedAddress, format("cp.async from %p to %p: not aligned to 16 bytes", from, to), code);
    }
    if (machine->checked) check_copy_issued(to, from, wanted, COPY_BYTES, code);
    Copy copy = {to, from, wanted, false};
    if (lands_early()) land(copy);
    current->copies.copies.push_back(copy);
}

void copy_commit() {
    CopyQueue& queue = current->copies;
    queue.group_ends.push_back(queue.copies.size());
}

void copy_wait(unsigned groups_left) {
    CopyQueue& queue = current->copies;
    while (queue.group_ends.size() - queue.first_group > groups_left) {
        const size_t end = queue.group_ends[queue.first_group++];
        for (; queue.first_copy < end; queue.first_copy++) {
            Copy& copy = queue.copies[queue.first_copy];
            land(copy);
            if (machine->checked) check_copy_landed(copy.to, COPY_BYTES);
        }
    }
    const bool all_groups_done = queue.first_group == queue.group_ends.size();
    if (all_groups_done && queue.first_copy == queue.copies.size()) queue.clear();
}

}  // namespace simt
