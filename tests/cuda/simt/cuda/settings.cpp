// Reads the settings of the look-alike from the environment.
#include "settings.h"

#include <cstdlib>
#include <cstring>

namespace driver {

namespace {

constexpr size_t DEFAULT_MEMORY = size_t(8) << 30;

/// Returns a number from the environment, or its default.
long number(const char* name, long otherwise) {
    const char* text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

/// Returns a count of bytes from the environment; the text may end with K, M or G.
size_t bytes(const char* name, size_t otherwise) {
    const char* text = getenv(name);
    if (!text || !*text) return otherwise;
    char* end = nullptr;
    const size_t count = strtoull(text, &end, 10);
    switch (*end) {
        case 'K': return count << 10;
        case 'M': return count << 20;
        case 'G': return count << 30;
        default: return count;
    }
}

}  // namespace

const Settings& settings() {
    static const Settings read{
        .seed = unsigned(number("SIMT_SEED", 1)),
        .devices = int(number("SIMT_DEVICES", 1)),
        .memory = bytes("SIMT_MEMORY", DEFAULT_MEMORY),
        .check = number("SIMT_CHECK", 0) != 0,
        .guard = number("SIMT_GUARD", 1) != 0,
        .lazy = number("SIMT_LAZY", 0) != 0,
        .failures = getenv("SIMT_FAIL") ? getenv("SIMT_FAIL") : "",
    };
    return read;
}

}  // namespace driver
