// The schedule of a block: which fiber runs next.
#pragma once

#include "state.h"

namespace simt {

// Marks the running thread as waiting, and runs others until it is marked as ready again. Fails if no thread can run.
void wait_for_others();

// Marks a thread, or the lanes of a warp, as ready.
void make_ready(const Thread& thread);
void make_ready(unsigned warp, unsigned lanes);

// Ends the running thread and runs others. Does not return.
[[noreturn]] void leave_block();

// Returns the thread that runs first in a block.
Thread& first_thread();

// Says what the threads of the block wait for, for the message about a deadlock.
std::string describe_waits();

}  // namespace simt
