// Counts launches, allocations and registrations, and says which of them have to fail.
#include "failures.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "driver.h"
#include "settings.h"

namespace driver {

namespace {

struct Kind {
    const char* name;
    CUresult error;
};

// Faults of launches. "lost" stands for a device that has fallen off the bus.
constexpr Kind LAUNCH_KINDS[] = {
    {"ecc", CUDA_ERROR_ECC_UNCORRECTABLE}, {"lost", CUDA_ERROR_DEVICE_UNAVAILABLE},
    {"launch", CUDA_ERROR_LAUNCH_FAILED},  {"illegal", CUDA_ERROR_ILLEGAL_ADDRESS},
    {"nvlink", CUDA_ERROR_NVLINK_UNCORRECTABLE}, {"unknown", CUDA_ERROR_UNKNOWN},
};
constexpr const char* ALLOCATION_KIND = "oom";
constexpr const char* REGISTRATION_KIND = "register";

enum class Counted { launch, allocation, registration };

/// A fault that is still to come.
struct Pending {
    Counted counted;
    CUresult error;
    unsigned long long countdown;
};

std::mutex mutex;

/// Reads a list of faults; an unknown kind is a mistake of the test, which ends the process.
std::vector<Pending> parse(const std::string& list) {
    std::vector<Pending> faults;
    for (size_t from = 0; from < list.size();) {
        const size_t comma = std::min(list.find(',', from), list.size());
        const std::string one = list.substr(from, comma - from);
        from = comma + 1;
        const size_t sign = one.find('@');
        const std::string kind = one.substr(0, sign);
        const unsigned long long count = sign == std::string::npos ? 1 : strtoull(one.c_str() + sign + 1, nullptr, 10);
        const bool registration = kind == REGISTRATION_KIND;
        bool known = registration || kind == ALLOCATION_KIND;
        const Counted counted = registration ? Counted::registration : Counted::allocation;
        if (known) faults.push_back({counted, CUDA_ERROR_OUT_OF_MEMORY, count});
        for (const Kind& launch : LAUNCH_KINDS) {
            if (kind != launch.name) continue;
            faults.push_back({Counted::launch, launch.error, count});
            known = true;
        }
        if (known) continue;
        complain("SIMT_FAIL: unknown kind of fault \"%s\"", kind.c_str());
        abort();
    }
    return faults;
}

/// Returns the faults that are still to come.
std::vector<Pending>& pending() {
    static auto& faults = *new std::vector<Pending>(parse(settings().failures));
    return faults;
}

/// Counts one launch, allocation or registration, and returns its error.
CUresult count(Counted counted) {
    const std::lock_guard lock(mutex);
    CUresult error = CUDA_SUCCESS;
    for (Pending& fault : pending()) {
        if (fault.counted != counted || fault.countdown == 0) continue;
        if (--fault.countdown == 0) error = fault.error;
    }
    return error;
}

}  // namespace

bool fail_allocation() {
    return count(Counted::allocation) != CUDA_SUCCESS;
}

bool fail_registration() {
    return count(Counted::registration) != CUDA_SUCCESS;
}

CUresult fail_launch() {
    return count(Counted::launch);
}

}  // namespace driver

/// Orders faults from a test, counted from now; an empty list takes all pending ones back.
API void simt_fail(const char* list) {
    const std::vector<driver::Pending> faults = driver::parse(list);
    const std::lock_guard lock(driver::mutex);
    auto& all = driver::pending();
    if (faults.empty()) all.clear();
    all.insert(all.end(), faults.begin(), faults.end());
}
