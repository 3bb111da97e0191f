// Fibers: stacks of their own for the threads of a block, and the switch between them.
#pragma once

#include <cstddef>

namespace simt {

// Saves the caller's registers and stack pointer in `*save`, and continues where `load` was saved.
extern "C" void simt_switch(void** save, void* load);

// Returns the bytes that `count` stacks need, in one piece.
size_t stacks_bytes(unsigned count);

// Returns zeroed memory, of which only touched pages take space.
unsigned char* allocate_memory(size_t bytes);

// Prepares the stack with a number so that a switch to the result calls `entry`, which must not return.
void* prepare_stack(unsigned char* stacks, unsigned number, void (*entry)());

// Says whether the fiber wrote beyond the end of its stack.
bool stack_overflowed(const unsigned char* stacks, unsigned number);

}  // namespace simt
