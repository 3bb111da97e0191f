// Tests of the emulator itself: correct kernels must pass in every mode, and each broken kernel must be found in the
// modes that its file names. Prints a line for each kernel, then "N passed, N failed". Usage: check-simt
// FOLDER [--speed], with the compiled kernels in FOLDER (see the script `check`). --speed prints times instead.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "device_memory.h"
#include "families.h"

using simt::Copies;
using simt::Order;
using simt::Outcome;

namespace {

enum class Build { Plain, Checked };

struct Mode {
    Build build;
    Copies copies;
    Order order;
};

// A broken kernel, how it must be found, and in which modes. `found` lists all outcomes that count, and `wrong_numbers`
// says whether those do. Modes that are not listed may find it or not.
struct Broken {
    const char* name;
    std::vector<Outcome> found;
    bool wrong_numbers;
    std::vector<Mode> modes;
};

const std::vector<Mode> PLAIN_LATE = {{Build::Plain, Copies::Late, Order::Rising}};
const std::vector<Mode> PLAIN_EARLY = {{Build::Plain, Copies::Early, Order::Rising}};

std::string folder;
int passed = 0;
int failed = 0;

// Returns all modes of one build.
std::vector<Mode> all_modes(Build build) {
    std::vector<Mode> modes;
    for (const Copies copies : {Copies::Late, Copies::Early, Copies::Random}) {
        for (const Order order : {Order::Rising, Order::Random}) modes.push_back({build, copies, order});
    }
    return modes;
}

// Returns all modes of both builds.
std::vector<Mode> every_mode() {
    std::vector<Mode> modes = all_modes(Build::Plain);
    for (const Mode& mode : all_modes(Build::Checked)) modes.push_back(mode);
    return modes;
}

std::string mode_name(const Mode& mode) {
    static const char* const copies[] = {"late", "early", "random"};
    return std::string(mode.build == Build::Plain ? "plain" : "checked") + ", copies " +
           copies[static_cast<int>(mode.copies)] + ", order " + (mode.order == Order::Rising ? "rising" : "random");
}

// Loads the compiled kernel `name`. Its family is the part of the name before the first underscore.
check::Kernel load(const std::string& name, Build build) {
    const std::string path = folder + "/" + name + (build == Build::Plain ? ".plain.so" : ".checked.so");
    void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return {name, module, reinterpret_cast<void (*)(void**)>(dlsym(module, "simt_thunk_kernel"))};
}

// Runs a kernel in a mode.
check::Verdict run(const std::string& name, const Mode& mode) {
    simt::options().copies = mode.copies;
    simt::options().order = mode.order;
    const check::Family family = check::find_family(name.substr(0, name.find('_')));
    return family(load(name, mode.build));
}

// Counts and prints one line.
void report(bool ok, const std::string& name, const std::string& detail) {
    (ok ? passed : failed)++;
    printf("%s  %-34s %s\n", ok ? "ok    " : "FAILED", name.c_str(), detail.c_str());
}

// Checks a correct kernel in every mode.
void check_correct(const char* name) {
    size_t modes = 0;
    for (const Mode& mode : every_mode()) {
        const check::Verdict verdict = run(name, mode);
        if (!verdict.result.ok() || !verdict.numbers_right) {
            const std::string what = verdict.result.ok() ? "wrong numbers" : verdict.result.what;
            report(false, name, mode_name(mode) + ": " + what);
            return;
        }
        modes++;
    }
    report(true, name, "right in " + std::to_string(modes) + " modes");
}

// Checks that a broken kernel is found in each of its modes.
void check_broken(const Broken& broken) {
    std::string example;
    for (const Mode& mode : broken.modes) {
        const check::Verdict verdict = run(broken.name, mode);
        bool found = verdict.result.ok() && broken.wrong_numbers && !verdict.numbers_right;
        for (const Outcome outcome : broken.found) found |= outcome == verdict.result.outcome;
        const std::string what = verdict.result.ok() ? "wrong numbers" : verdict.result.what;
        if (!found) {
            report(false, broken.name, mode_name(mode) + ": " + (verdict.numbers_right ? "not found" : what));
            return;
        }
        if (example.empty() || !verdict.result.ok()) example = what;
    }
    report(true, broken.name, std::to_string(broken.modes.size()) + " modes: " + example);
}

// Joins two lists of modes.
std::vector<Mode> operator+(std::vector<Mode> a, const std::vector<Mode>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

std::vector<Broken> broken_kernels() {
    const std::vector<Mode> checked = all_modes(Build::Checked);
    const std::vector<Mode> plain = all_modes(Build::Plain);
    const std::vector<Mode> every = every_mode();
    return {
        {"pipeline_missing_wait", {Outcome::Race}, true, checked + PLAIN_LATE},
        {"pipeline_loose_wait", {Outcome::Race}, true, checked + PLAIN_LATE},
        {"pipeline_own_wait", {Outcome::Race, Outcome::Unwritten}, true, checked + PLAIN_LATE},
        {"pipeline_missing_trailing_barrier", {Outcome::Race}, true, checked + PLAIN_EARLY},
        {"pipeline_misaligned_copy", {Outcome::MisalignedAddress}, false, every},
        {"norm_missing_barrier", {Outcome::Race, Outcome::Unwritten}, true, checked + PLAIN_LATE},
        {"norm_wrong_mask", {Outcome::LaunchFailed}, false, every},
        {"norm_divergent_barrier", {Outcome::LaunchFailed}, false, every},
        {"norm_early_return", {Outcome::LaunchFailed}, false, every},
        {"norm_unwritten", {Outcome::Unwritten}, true, every},
        {"tile_wrong_lane", {}, true, every},
        {"tile_missing_syncwarp", {Outcome::Race, Outcome::Unwritten}, false, checked},
        {"exchange_inactive_lane", {Outcome::LaunchFailed}, false, every},
        {"exchange_lane_exit", {Outcome::LaunchFailed}, false, every},
        {"neighbours_off_by_one", {Outcome::IllegalAddress}, false, checked},
        {"neighbours_far_write", {Outcome::IllegalAddress}, false, every},
        {"reverse_missing_syncwarp", {Outcome::Race, Outcome::Unwritten}, false, checked},
        {"reverse_other_warp", {Outcome::Race, Outcome::Unwritten}, false, checked},
        {"reverse_overrun", {Outcome::IllegalAddress}, false, every},
        {"total_no_fence_before_ticket", {Outcome::Race}, false, checked},
        {"total_no_fence_after_ticket", {Outcome::Race}, false, checked},
        {"total_ticket_not_reset", {}, true, every},
        {"total_missing_barrier", {Outcome::Race, Outcome::Unwritten}, false, checked},
        {"histogram_two_writers", {Outcome::Race}, false, checked},
        {"histogram_two_blocks", {Outcome::Race}, false, checked},
        {"dependent_early_read", {Outcome::Race}, true, every},
        {"dependent_early_write", {Outcome::Race}, false, checked},
        {"wide_misaligned", {Outcome::MisalignedAddress}, false, checked},
        {"wide_deadlock", {Outcome::LaunchFailed}, false, every},
    };
}

// Checks that memory that was released is out of bounds.
void check_released_memory() {
    const check::Kernel kernel = load("exchange", Build::Checked);
    check::Array<float> out(64);
    float* in = static_cast<float*>(check::allocate(64 * sizeof(float)));
    check::release(in);
    float* out_data = out.data();
    void* arguments[] = {&out_data, &in};
    simt::Launch launch;
    launch.name = "exchange";
    launch.thunk = kernel.thunk;
    launch.module = kernel.module;
    launch.arguments = arguments;
    launch.block = {64};
    const simt::Result result = simt::run_grid(launch);
    report(result.outcome == Outcome::IllegalAddress, "released memory", result.what);
}

// Checks counts that are known: `wide` reads and writes 2 blocks x 64 threads x 16 bytes.
void check_counts() {
    simt_counts_reset();
    run("wide", {Build::Checked, Copies::Late, Order::Random});
    uint64_t counts[simt::COUNT_LENGTH];
    const uint64_t launches = simt_counts("wide", counts);
    const uint64_t bytes = 2 * 64 * 16;
    const uint64_t sectors = 2 * bytes / 32;
    const bool right = launches == 1 && counts[simt::COUNT_BYTES_READ] == bytes &&
                       counts[simt::COUNT_BYTES_WRITTEN] == bytes && counts[simt::COUNT_UNIQUE_READ] == bytes &&
                       counts[simt::COUNT_UNIQUE_WRITTEN] == bytes && counts[simt::COUNT_SECTORS] == sectors;
    char detail[256];
    snprintf(detail, sizeof detail, "read %lu, written %lu, unique %lu and %lu, sectors %lu",
             counts[simt::COUNT_BYTES_READ], counts[simt::COUNT_BYTES_WRITTEN], counts[simt::COUNT_UNIQUE_READ],
             counts[simt::COUNT_UNIQUE_WRITTEN], counts[simt::COUNT_SECTORS]);
    report(right, "counts", detail);
}

// Checks the counts of a range: 64 lanes read a number and the next one, and the first 32 numbers are watched.
void check_watched() {
    const check::Kernel kernel = load("neighbours", Build::Checked);
    int count = 64;
    check::Array<float> in(count), out(count);
    float *in_data = in.data(), *out_data = out.data();
    void* arguments[] = {&out_data, &in_data, &count};
    simt::Launch launch;
    launch.name = "neighbours";
    launch.thunk = kernel.thunk;
    launch.module = kernel.module;
    launch.arguments = arguments;
    launch.block = {64};
    simt_watch(in_data, 32 * sizeof(float));
    const int launches = 2;
    for (int i = 0; i < launches; i++) simt::run_grid(launch);
    simt::WatchedCounts found;
    const bool is_known = simt_watched(in_data, &found) == 0 && simt_watched(out_data, &found) != 0;
    simt_watch_nothing();
    // Of the 32 next numbers, one lies behind the range.
    const bool right = found.bytes == launches * 63 * sizeof(float) && found.sectors == launches * 8 &&
                       found.unique_bytes == launches * 32 * sizeof(float) && found.unique_sectors == launches * 4;
    char detail[128];
    snprintf(detail, sizeof detail, "%lu bytes, %lu unique; %lu sectors, %lu unique", found.bytes, found.unique_bytes,
             found.sectors, found.unique_sectors);
    report(is_known && right && simt_watched(in_data, &found) != 0, "watched memory", detail);
}

// Checks the list of memory that a launch touched.
void check_touched() {
    const check::Kernel kernel = load("exchange", Build::Checked);
    check::Array<float> in(64), out(64);
    float *in_data = in.data(), *out_data = out.data();
    void* arguments[] = {&out_data, &in_data};
    simt::Launch launch;
    launch.name = "exchange";
    launch.thunk = kernel.thunk;
    launch.module = kernel.module;
    launch.arguments = arguments;
    launch.block = {64};
    launch.list_touched = true;
    const simt::Result result = simt::run_grid(launch);
    const auto same = [](const std::vector<simt::Interval>& list, const simt::Interval& whole) {
        return list.size() == 1 && list[0].begin == whole.begin && list[0].end == whole.end;
    };
    report(same(result.reads, in.interval()) && same(result.writes, out.interval()), "touched memory",
           std::to_string(result.reads.size()) + " read, " + std::to_string(result.writes.size()) + " written");
}

// Returns the time of the processor that this thread has used, in nanoseconds. Other processes do not count.
double processor_time() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

// Measures the loops of speed.cu. Returns the least time of an operation of a thread in nanoseconds.
double measure(Build build, int kind) {
    constexpr int REPEATS = 500, TRIES = 20;
    constexpr unsigned THREADS = 128;
    const check::Kernel kernel = load("speed", build);
    check::Array<float> memory(std::vector<float>(THREADS, 0.0f));
    float* data = memory.data();
    int repeats = REPEATS;
    void* arguments[] = {&data, &kind, &repeats};
    simt::Launch launch;
    launch.thunk = kernel.thunk;
    launch.module = kernel.module;
    launch.arguments = arguments;
    launch.block = {THREADS};
    double least = 1e9;
    for (int i = 0; i < TRIES; i++) {
        const double start = processor_time();
        simt::run_grid(launch);
        least = std::min(least, (processor_time() - start) / REPEATS / THREADS);
    }
    return least;
}

// Prints what operations cost.
void print_speed() {
    simt::options().copies = Copies::Late;
    simt::options().order = Order::Rising;
    const char* const kinds[] = {"shuffle", "barrier", "read and write of shared memory",
                                 "read and write of global memory"};
    printf("%-34s %10s %10s   ns per thread, least of 20\n", "", "plain", "checked");
    for (int kind = 0; kind < 4; kind++) {
        printf("%-34s %10.1f %10.1f\n", kinds[kind], measure(Build::Plain, kind), measure(Build::Checked, kind));
    }
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 2 || count > 3 || (count == 3 && strcmp(arguments[2], "--speed") != 0)) {
        fprintf(stderr, "usage: check-simt FOLDER [--speed]\n");
        return 2;
    }
    folder = arguments[1];
    check::use_allocation_table();
    if (count == 3) {
        print_speed();
        return 0;
    }
    for (const char* name : {"norm", "pipeline", "tile", "product", "attention", "total", "reverse", "histogram",
                             "exchange", "neighbours", "wide", "dependent", "total_all_fence", "total_release",
                             "pipeline_numbered", "reverse_masks", "intrinsics", "padding"}) {
        check_correct(name);
    }
    for (const Broken& broken : broken_kernels()) check_broken(broken);
    check_released_memory();
    check_counts();
    check_watched();
    check_touched();
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
