// The public face of libsimt, which runs CUDA kernels that g++ compiled, on the CPU and without a GPU.
//
// The look-alike of libcuda fills a `Launch` and calls `run_grid`. A kernel's module is a shared library that was built
// with `-include device/simt.h`. It exports for each kernel K two C functions: `simt_thunk_K`, which calls the kernel
// with pointers to its arguments, and `simt_args_K`, which gives the number and the sizes of the arguments.
// `SIMT_KERNEL(K, expression)` of simt.h writes both.
//
// A module may be built plainly, or checked: with -fsanitize=thread but not linked with libtsan. Then g++ calls a hook
// for each access to memory. libsimt has these hooks; with them it finds races, overruns and reads of unwritten memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace simt {

// The extent of a grid or a block, as CUDA's `dim3`. With its own name, the look-alikes need no device header.
struct Extent {
    unsigned x = 1;
    unsigned y = 1;
    unsigned z = 1;
};

// Addresses from `begin` to before `end`.
struct Interval {
    uintptr_t begin;
    uintptr_t end;
};

// What went wrong with a launch. The comments name the error of the driver that a real device would give or, for
// mistakes that a real device does not notice, the one that comes nearest.
enum class Outcome {
    Ok,
    InvalidConfiguration,  // too many threads, or too much shared memory: CUDA_ERROR_INVALID_VALUE
    IllegalAddress,        // out of bounds, freed or never allocated: CUDA_ERROR_ILLEGAL_ADDRESS
    MisalignedAddress,     // CUDA_ERROR_MISALIGNED_ADDRESS
    LaunchFailed,          // divergent barrier, wrong mask, deadlock, early exit: CUDA_ERROR_LAUNCH_FAILED
    Race,                  // two accesses that nothing orders; only checked modules: CUDA_ERROR_LAUNCH_FAILED
    Unwritten,             // read of shared memory that was never written; only checked modules: as Race
};

// One line of text for an outcome, for messages.
const char* outcome_name(Outcome outcome);

// Where the counters of a launch stand in the array that `simt_counts` fills.
enum Count : unsigned {
    COUNT_BYTES_READ,         // bytes of global memory that the threads read, repeats included
    COUNT_BYTES_WRITTEN,      // bytes of global memory that the threads wrote, repeats included
    COUNT_UNIQUE_READ,        // bytes of 4-byte words that were read at least once by the launch
    COUNT_UNIQUE_WRITTEN,     // bytes of 4-byte words that were written at least once by the launch
    COUNT_SECTORS,            // 32-byte sectors of global memory, summed over the instructions of warps
    COUNT_BANK_CONFLICTS,     // extra rounds of shared memory, summed over the instructions of warps
    COUNT_BARRIERS,           // arrivals of threads at barriers of a block
    COUNT_SHUFFLES,           // arrivals of lanes at operations of a warp, ldmatrix and mma included
    COUNT_LENGTH,
};

struct Counts {
    uint64_t values[COUNT_LENGTH] = {};
};

// What launches did with a range of global memory.
struct WatchedCounts {
    uint64_t bytes = 0;           // that warps read and wrote: what lanes of an instruction share counts once
    uint64_t sectors = 0;         // of 32 bytes, summed over the instructions of warps
    uint64_t unique_bytes = 0;    // of 4-byte words that were touched at least once by a launch, summed over launches
    uint64_t unique_sectors = 0;  // of 32 bytes that were touched at least once by a launch, summed over launches
};

// What a launch did. `reads` and `writes` are sorted, do not overlap, and are rounded to words of 4 bytes. They list
// the global memory that the launch touched, and are empty for plain modules and without `Launch::list_touched`.
struct Result {
    Outcome outcome = Outcome::Ok;
    std::string what;  // empty if all is well, else a sentence with block, thread, address and line of the source
    Counts counts;
    std::vector<Interval> reads;
    std::vector<Interval> writes;

    bool ok() const { return outcome == Outcome::Ok; }
};

// One launch of a kernel.
struct Launch {
    const char* name = "kernel";       // for messages, and the key of the counts
    void (*thunk)(void**) = nullptr;   // `simt_thunk_K` of the module
    void** arguments = nullptr;        // a pointer to each argument
    Extent grid;
    Extent block;
    size_t dynamic_shared_bytes = 0;
    void* module = nullptr;            // the dlopen handle of the module
    bool list_touched = false;         // fill `Result::reads` and `Result::writes`
    // For a dependent (programmatic) launch: true, and in `pending` what the kernels before it write. That memory is
    // poisoned until `ptx::dependents_wait`; reading it before, or writing anything before, is a race.
    bool dependent = false;
    std::vector<Interval> pending;
};

// Runs every block of a grid on the calling thread, one after another. Never throws. Faults (SIGSEGV, SIGBUS, SIGFPE)
// of the kernel end in `Result::outcome`. Grids may run on several threads at once, each thread one grid.
Result run_grid(const Launch& launch);

// An allocation of global memory: device memory, or host memory that the device may reach.
struct Allocation {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    bool writable = true;
};

// Says whether `address` lies in an allocation that a kernel may use, and which. If it does not, `found` becomes the
// allocation that ends nearest below it (`begin` = `end` = 0: none), for the message. Called from checked modules; the
// answers are kept until the launch ends. The exact length that was asked for counts, without rounding.
using FindAllocation = bool (*)(uintptr_t address, Allocation* found);

// Registers the allocation table. Without one, checked modules may read and write any address.
void set_find_allocation(FindAllocation find);

// How the bytes of cp.async land: when the thread waits for them, when it issues the copy, or either by seed.
enum class Copies { Late, Early, Random };

// In which order ready blocks, warps and lanes run.
enum class Order { Rising, Random };

// Settings. They are read once from the environment: SIMT_SEED=number, SIMT_COPIES=late|early|random,
// SIMT_ORDER=rising|random, SIMT_CHECKS=on|off (off: hooks of checked modules return at once).
struct Options {
    uint64_t seed = 1;
    Copies copies = Copies::Late;
    Order order = Order::Rising;
    bool checks = true;
};

// The settings that the next launches use. Tests may change them; not while a grid runs.
Options& options();

}  // namespace simt

// Sums of the counters of all launches of a kernel, by `Launch::name`, since the start or the last reset. Null as name:
// of all kernels. Returns the number of launches. `out` is indexed by `simt::Count`.
extern "C" uint64_t simt_counts(const char* kernel, uint64_t out[8]);

// Forgets all sums.
extern "C" void simt_counts_reset();

// Watches a range of global memory: its traffic counts by itself. Not while a grid runs. Only checked modules count it.
extern "C" void simt_watch(const void* memory, size_t bytes);

// Returns the counts of the range that begins there. Not 0: none does.
extern "C" int simt_watched(const void* memory, simt::WatchedCounts* out);

// Forgets all ranges.
extern "C" void simt_watch_nothing();
