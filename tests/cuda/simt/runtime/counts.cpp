// Sums of counters, for tests that hold kernels to a number of bytes.
#include "counts.h"

#include <map>
#include <mutex>
#include <string>

namespace simt {

struct Sum {
    uint64_t launches = 0;
    Counts counts;
};

// Never destroyed: a detached executor may still run while the process exits.
static std::mutex& lock = *new std::mutex;
static std::map<std::string, Sum>& sums = *new std::map<std::string, Sum>;
static uint64_t launches = 0;

// Adds `from` to `to`.
static void add(Sum& to, const Sum& from) {
    to.launches += from.launches;
    for (unsigned i = 0; i < COUNT_LENGTH; i++) to.counts.values[i] += from.counts.values[i];
}

void add_counts(const char* kernel, const Counts& counts) {
    std::lock_guard<std::mutex> guard(lock);
    launches++;
    add(sums[kernel], Sum{1, counts});
}

uint64_t launches_so_far() {
    std::lock_guard<std::mutex> guard(lock);
    return launches;
}

}  // namespace simt

extern "C" uint64_t simt_counts(const char* kernel, uint64_t out[8]) {
    std::lock_guard<std::mutex> guard(simt::lock);
    simt::Sum total;
    for (const auto& [name, sum] : simt::sums) {
        if (kernel == nullptr || name == kernel) simt::add(total, sum);
    }
    for (unsigned i = 0; i < simt::COUNT_LENGTH; i++) out[i] = total.counts.values[i];
    return total.launches;
}

extern "C" void simt_counts_reset() {
    std::lock_guard<std::mutex> guard(simt::lock);
    simt::sums.clear();
}
