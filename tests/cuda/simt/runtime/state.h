// The state of an emulated device: one `Machine` for each thread of the system that runs grids. A grid's blocks run one
// after another. The threads of a block are fibers, which switch only where a kernel waits.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../device/calls.h"
#include "checks.h"
#include "copies.h"
#include "random.h"
#include "simt_runtime.h"

namespace simt {

constexpr unsigned LANES = 32;
constexpr unsigned MAX_THREADS = 1024;
constexpr unsigned MAX_WARPS = MAX_THREADS / LANES;
constexpr unsigned MAX_BARRIERS = 16;
constexpr size_t MAX_DYNAMIC_SHARED = 227 << 10;

// One CUDA thread, and the fiber that runs it.
struct Thread {
    void* stack_pointer;
    uint3 index;
    unsigned number;  // within the block, x fastest
    unsigned lane;
    unsigned warp;
    bool exited;
    CopyQueue copies;
    ThreadClock clock;
};

// A collective in progress. Its slots are used in turn, so that lanes may give values for the next one while others
// still read those of the last one.
struct Collective {
    unsigned mask;
    unsigned arrived;
    unsigned unread;  // lanes that have not yet taken the last answer
    unsigned turn;
    const char* what;
    Slots slots[2];
};

// At most 16 disjoint masks of two lanes or more can be in progress.
constexpr unsigned MAX_COLLECTIVES = 16;

struct Warp {
    unsigned ready;  // lanes that can run
    unsigned live;   // lanes that have not exited
    Collective collectives[MAX_COLLECTIVES];
};

struct Barrier {
    unsigned arrived;
    unsigned wanted;  // threads, or 0 for all live ones
    unsigned turn;
    unsigned votes[2];
    Site site;
    std::vector<Thread*> waiting;
};

// Why a launch failed. `address` is the code that was running, or null.
struct Failure {
    Outcome outcome = Outcome::Ok;
    std::string what;
    const void* code = nullptr;
};

struct Machine {
    Machine();

    // The launch.
    const Launch* launch = nullptr;
    Failure failure;
    Counts counts;
    Random random;
    bool random_order = false;        // the settings, as they were when the launch began
    Copies copies = Copies::Late;
    void* scheduler_stack = nullptr;  // the stack pointer of `run_grid` while fibers run
    uint3 grid_block = {};            // the index of the running block
    dim3 grid_size;
    dim3 block_size;

    // The block.
    unsigned threads_in_block = 0;
    unsigned live_threads = 0;
    unsigned ready_warps = 0;
    std::unique_ptr<Thread[]> threads;
    Warp* warps = nullptr;
    Barrier barriers[MAX_BARRIERS] = {};

    // Memory. The stacks and the warps lie in one piece: one comparison recognises what is not memory of the kernel.
    unsigned char* stacks = nullptr;
    size_t own_bytes = 0;
    unsigned char* dynamic_shared = nullptr;
    unsigned char* static_shared = nullptr;
    size_t static_shared_bytes = 0;

    // What only dependent launches use.
    std::vector<unsigned char> pending_contents;
    bool pending_poisoned = false;

    // Checks of modules with hooks. `checked` is false for plain modules.
    bool checked = false;
    Checks* checks = nullptr;

    // Where a fault of the kernel returns to.
    sigjmp_buf fault_return;
};

// The machine of this thread of the system, and the CUDA thread that it runs (null outside of kernels).
extern thread_local Machine* machine __attribute__((tls_model("initial-exec")));
extern thread_local Thread* current __attribute__((tls_model("initial-exec")));

// Says whether an address belongs to the runtime or to the stack of a thread, and not to memory of the device.
inline bool is_own_memory(const void* address) {
    return static_cast<size_t>(static_cast<const unsigned char*>(address) - machine->stacks) < machine->own_bytes;
}

// Ends the launch with a failure and does not return. The text names block and thread of the caller.
[[noreturn]] void fail(Outcome outcome, std::string what, const void* code = nullptr);

// The block and the thread that runs, for messages: "thread (1,0,0) of block (2,0,0)".
std::string describe_thread(const Thread& thread);

// Formats text as printf does.
__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...);

}  // namespace simt
