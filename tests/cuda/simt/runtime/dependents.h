// Dependent (programmatic) launches. What the kernels before it write is poisoned at the start of each block, until a
// thread of the block calls `ptx::dependents_wait`: a read before the wait then gives NaN, as on a device it may give
// old numbers.
#pragma once

namespace simt {

// Saves and poisons the pending memory. Called before each block.
void poison_pending();

// Restores the pending memory, if it is poisoned.
void restore_pending();

}  // namespace simt
