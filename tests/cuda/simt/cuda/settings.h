// The settings of the look-alike, read once from the environment.
#pragma once
#include <cstddef>

namespace driver {

struct Settings {
    unsigned seed;          // SIMT_SEED: order of streams, 1 by default
    int devices;            // SIMT_DEVICES: 1 by default
    size_t memory;          // SIMT_MEMORY: bytes per device, 8 GiB by default; K, M and G are allowed
    bool check;             // SIMT_CHECK=1: search for unordered accesses of streams
    bool guard;             // SIMT_GUARD=0: let host code touch device memory
    bool lazy;              // SIMT_LAZY=1: run nothing before the host waits, which makes a run repeatable
    const char* failures;   // SIMT_FAIL: faults to inject, as "ecc@3,oom@1"
};

/// Returns the settings of this process.
const Settings& settings();

}  // namespace driver
