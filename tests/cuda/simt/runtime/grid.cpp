// Runs a grid: sets up each block, runs its fibers, and reports what went wrong.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "counts.h"
#include "dependents.h"
#include "faults.h"
#include "fibers.h"
#include "module.h"
#include "report.h"
#include "schedule.h"
#include "state.h"

namespace simt {

thread_local Machine* machine;
thread_local Thread* current;

// What shared memory holds before a block writes it: NaN in f32, f16 and bf16.
constexpr int UNWRITTEN = 0xff;

// Bytes beyond the dynamic shared memory of a launch that must keep this pattern.
constexpr size_t CANARY_BYTES = 1024;
constexpr size_t SHARED_ALIGNMENT = 1024;

Machine::Machine() : threads(new Thread[MAX_THREADS]()) {
    const size_t warps_offset = (stacks_bytes(MAX_THREADS) + alignof(Warp) - 1) / alignof(Warp) * alignof(Warp);
    own_bytes = warps_offset + MAX_WARPS * sizeof(Warp);
    stacks = allocate_memory(own_bytes);
    warps = reinterpret_cast<Warp*>(stacks + warps_offset);
    const size_t bytes = (MAX_DYNAMIC_SHARED + CANARY_BYTES + SHARED_ALIGNMENT - 1) / SHARED_ALIGNMENT *
                         SHARED_ALIGNMENT;
    dynamic_shared = static_cast<unsigned char*>(aligned_alloc(SHARED_ALIGNMENT, bytes));
    checks = new_checks();
}

// The device headers' view of the running thread.
uint3 thread_index() { return current->index; }
uint3 block_index() { return machine->grid_block; }
dim3 block_size() { return machine->block_size; }
dim3 grid_size() { return machine->grid_size; }
unsigned lane_index() { return current->lane; }
void* dynamic_shared() { return machine->dynamic_shared; }

void trap(const char* what, Site site) {
    fail(Outcome::LaunchFailed, site.line != 0 ? format("%s at %s:%d", what, site.file, site.line) : what,
         __builtin_return_address(0));
}

// Keeps the first failure of a launch.
static void record_failure(Outcome outcome, std::string what, const void* code) {
    if (machine->failure.outcome != Outcome::Ok) return;
    machine->failure.outcome = outcome;
    machine->failure.what = std::move(what);
    machine->failure.code = code;
}

void fail(Outcome outcome, std::string what, const void* code) {
    what += ", in " + describe_thread(*current);
    record_failure(outcome, std::move(what), code);
    // The fiber never continues, so its strings must hold no memory by now: `what` was moved from.
    simt_switch(&current->stack_pointer, machine->scheduler_stack);
    abort();
}

// Fails if other threads of the block wait for the running one, which is about to exit.
static void check_exit(const Thread& self) {
    const Barrier& barrier = machine->barriers[0];
    if (barrier.arrived > 0 && barrier.wanted == 0) {
        fail(Outcome::LaunchFailed, format("the thread exited while %u others wait at the barrier of %s:%d",
                                           barrier.arrived, barrier.site.file, barrier.site.line));
    }
    for (const Collective& c : machine->warps[self.warp].collectives) {
        if (c.arrived == 0 || !(c.mask >> self.lane & 1)) continue;
        fail(Outcome::LaunchFailed, format("lane %u exited while its warp waits for it in %s", self.lane, c.what));
    }
}

// Runs one CUDA thread: the first function of each fiber.
static void run_thread() {
    Thread& self = *current;
    machine->launch->thunk(machine->launch->arguments);
    if (stack_overflowed(machine->stacks, self.number)) {
        fail(Outcome::LaunchFailed, "the thread used more stack than a fiber has");
    }
    self.exited = true;
    check_exit(self);
    machine->live_threads--;
    machine->warps[self.warp].live &= ~(1u << self.lane);
    leave_block();
}

// Makes the threads of a block ready to run from the start of the kernel.
static void set_up_threads(Machine& m) {
    const dim3 size = m.block_size;
    for (unsigned number = 0; number < m.threads_in_block; number++) {
        Thread& thread = m.threads[number];
        thread.index = {number % size.x, number / size.x % size.y, number / size.x / size.y};
        thread.number = number;
        thread.lane = number % LANES;
        thread.warp = number / LANES;
        thread.exited = false;
        thread.copies.clear();
        thread.stack_pointer = prepare_stack(m.stacks, number, run_thread);
    }
    m.live_threads = m.threads_in_block;
    m.ready_warps = 0;
    for (unsigned first = 0; first < m.threads_in_block; first += LANES) {
        Warp& warp = m.warps[first / LANES];
        const unsigned lanes = std::min(LANES, m.threads_in_block - first);
        warp.live = warp.ready = lanes == LANES ? ~0u : (1u << lanes) - 1;
        m.ready_warps |= 1u << first / LANES;
        for (Collective& c : warp.collectives) c.mask = c.arrived = c.unread = c.turn = 0;
    }
    for (Barrier& barrier : m.barriers) {
        barrier.arrived = barrier.turn = barrier.votes[0] = barrier.votes[1] = 0;
        barrier.waiting.clear();
    }
}

// Fails if the block wrote beyond its dynamic shared memory.
static void check_canary(Machine& m) {
    const unsigned char* end = m.dynamic_shared + m.launch->dynamic_shared_bytes;
    for (size_t i = 0; i < CANARY_BYTES; i++) {
        if (end[i] == UNWRITTEN) continue;
        record_failure(Outcome::IllegalAddress,
                       format("block (%u,%u,%u) wrote %zu bytes beyond the %zu bytes of dynamic shared memory",
                              m.grid_block.x, m.grid_block.y, m.grid_block.z, i, m.launch->dynamic_shared_bytes),
                       nullptr);
        return;
    }
}

// Runs one block until all its threads have exited, or until it fails.
static void run_block(Machine& m, unsigned number) {
    const Extent grid = m.launch->grid;
    m.grid_block = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
    set_up_threads(m);
    if (m.static_shared != nullptr) memset(m.static_shared, UNWRITTEN, m.static_shared_bytes);
    memset(m.dynamic_shared, UNWRITTEN, m.launch->dynamic_shared_bytes + CANARY_BYTES);
    if (m.checked) checks_begin_block(number);
    if (m.launch->dependent) poison_pending();
    current = &first_thread();
    simt_switch(&m.scheduler_stack, current->stack_pointer);
    current = nullptr;
    if (m.launch->dependent) restore_pending();
    if (m.checked) checks_end_block();
    if (m.failure.outcome == Outcome::Ok) check_canary(m);
}

// Returns the numbers of all blocks, in rising order or by seed.
static std::vector<unsigned> order_of_blocks(Machine& m) {
    const Extent grid = m.launch->grid;
    std::vector<unsigned> order(static_cast<size_t>(grid.x) * grid.y * grid.z);
    std::iota(order.begin(), order.end(), 0u);
    if (m.random_order) {
        for (unsigned i = static_cast<unsigned>(order.size()); i > 1; i--) {
            std::swap(order[i - 1], order[m.random.below(i)]);
        }
    }
    return order;
}

// Runs all blocks, until one fails.
static void run_blocks(Machine& m, const std::vector<unsigned>& order) {
    // A fault of the kernel returns here: see faults.cpp.
    if (sigsetjmp(m.fault_return, 1) != 0) {
        current = nullptr;
        if (m.launch->dependent) restore_pending();
        return;
    }
    for (const unsigned number : order) {
        run_block(m, number);
        if (m.failure.outcome != Outcome::Ok) return;
    }
}

// Says what is wrong with the shape of a launch, or nothing.
static std::string check_shape(const Launch& launch) {
    const size_t threads = static_cast<size_t>(launch.block.x) * launch.block.y * launch.block.z;
    const size_t blocks = static_cast<size_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
    if (threads == 0 || threads > MAX_THREADS) return format("a block of %zu threads", threads);
    if (blocks == 0 || blocks > UINT32_MAX) return format("a grid of %zu blocks", blocks);
    if (launch.dynamic_shared_bytes > MAX_DYNAMIC_SHARED) {
        return format("%zu bytes of dynamic shared memory", launch.dynamic_shared_bytes);
    }
    return "";
}

Result run_grid(const Launch& launch) {
    if (machine == nullptr) machine = new Machine;
    Machine& m = *machine;
    Result result;
    result.what = check_shape(launch);
    if (!result.what.empty()) {
        result.outcome = Outcome::InvalidConfiguration;
        return result;
    }
    const Module module = find_module(launch.module);
    m.launch = &launch;
    m.failure = {};
    m.counts = {};
    m.random_order = options().order == Order::Random;
    m.copies = options().copies;
    m.random.seed(options().seed + launches_so_far());
    m.grid_size = {launch.grid.x, launch.grid.y, launch.grid.z};
    m.block_size = {launch.block.x, launch.block.y, launch.block.z};
    m.threads_in_block = launch.block.x * launch.block.y * launch.block.z;
    m.static_shared = module.shared;
    m.static_shared_bytes = module.shared_bytes;
    m.checked = module.checked && options().checks;
    install_fault_handlers();
    if (m.checked) checks_begin_launch(module);
    run_blocks(m, order_of_blocks(m));
    if (m.checked) checks_end_launch(result);
    m.launch = nullptr;
    result.outcome = m.failure.outcome;
    result.counts = m.counts;
    if (!result.ok()) result.what = describe_failure(launch, m.failure);
    add_counts(launch.name, m.counts);
    return result;
}

}  // namespace simt
