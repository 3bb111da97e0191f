// What the device headers call in libsimt. A compiled kernel and libsimt meet only here and in the hooks of
// -fsanitize=thread. All functions are out of line, so that no hook counts them as accesses of the kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vectors.h"

namespace simt {

// A place in the source, for messages and to find divergent barriers.
struct Site {
    const char* file;
    int line;
};

// Return who runs. A fiber is one thread of one block for its whole life, so the compiler may keep the answers.
__attribute__((const)) uint3 thread_index();
__attribute__((const)) uint3 block_index();
__attribute__((const)) dim3 block_size();
__attribute__((const)) dim3 grid_size();
__attribute__((const)) unsigned lane_index();

// Returns the lanes of the calling warp that have not exited.
unsigned live_lanes();

// Returns the bytes of dynamic shared memory of the calling block.
void* dynamic_shared();

// The largest value that a lane can give to a collective.
constexpr size_t SLOT_BYTES = 32;

// What the lanes of a warp gave to a collective, by lane.
struct alignas(32) Slots {
    unsigned char bytes[32][SLOT_BYTES];
};

// Deposits `bytes` bytes and waits for every lane of the mask. Returns what all of them gave. `finish`, if any, runs
// once, when the last lane arrives, and may rewrite the slots. The answer holds until the lane's next collective.
const Slots& collective(unsigned mask, const void* value, size_t bytes, const char* what,
                        void (*finish)(Slots&) = nullptr);

// Fails the launch if a lane reads a lane that does not take part: its value is undefined on a device.
void check_source_lane(unsigned mask, unsigned source, const char* what);

// Waits for the lanes of the mask, and orders their accesses to memory.
void sync_warp(unsigned mask);

// Waits at a barrier of the block: for `threads` threads, or for all live ones if 0. Returns how many of them came with
// a true predicate.
unsigned barrier(unsigned number, unsigned threads, bool predicate, Site site);

// Orders the thread's accesses to global memory for other blocks (and the host).
void fence();

// Asynchronous copies of 16 bytes to shared memory, in groups. `from` is not read if `wanted` is false.
void copy_async16(void* to, const void* from, bool wanted);
void copy_commit();
void copy_wait(unsigned groups_left);

// ldmatrix: `count` matrices of 8 x 8 numbers of 16 bits.
void load_matrix(unsigned* registers, unsigned count, const void* row, bool transposed);

// mma.sync m16n8k16, bf16: adds the product to `d`.
void multiply_bf16(float* d, const unsigned* a, const unsigned* b);

// Loads 16 bytes of global memory.
uint4 load16(const void* from);

// griddepcontrol.wait and .launch_dependents.
void dependents_wait();
void dependents_launch();

// Store and load of 8 bytes with release and acquire order, for the whole system.
void store_release(unsigned long long* to, unsigned long long value);
unsigned long long load_acquire(const unsigned long long* from);

// Copy and fill memory, and report it as one access. They stand for memcpy and memset of kernels.
void* copy_bytes(void* to, const void* from, size_t bytes);
void* fill_bytes(void* to, int value, size_t bytes);

// Ends the launch: __trap() and failed assertions.
[[noreturn]] void trap(const char* what, Site site);

}  // namespace simt
