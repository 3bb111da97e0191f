// Poison for dependent launches.
#include "dependents.h"

#include <cstring>

#include "state.h"

namespace simt {

// All ones are NaN in f32, f16 and bf16, and an absurd index.
constexpr int POISON = 0xff;

// Returns the memory of an interval.
static unsigned char* memory_of(const Interval& interval) { return reinterpret_cast<unsigned char*>(interval.begin); }

void poison_pending() {
    Machine& m = *machine;
    m.pending_contents.clear();
    for (const Interval& interval : m.launch->pending) {
        unsigned char* memory = memory_of(interval);
        const size_t bytes = interval.end - interval.begin;
        m.pending_contents.insert(m.pending_contents.end(), memory, memory + bytes);
        memset(memory, POISON, bytes);
    }
    m.pending_poisoned = true;
}

void restore_pending() {
    Machine& m = *machine;
    if (!m.pending_poisoned) return;
    m.pending_poisoned = false;
    const unsigned char* saved = m.pending_contents.data();
    for (const Interval& interval : m.launch->pending) {
        const size_t bytes = interval.end - interval.begin;
        memcpy(memory_of(interval), saved, bytes);
        saved += bytes;
    }
}

void dependents_wait() {
    restore_pending();
    if (machine->checked) clock_dependents_wait();
}

void dependents_launch() {}

}  // namespace simt
