// Settings from the environment.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "simt_runtime.h"

namespace simt {

// Returns the number of the choice that a variable names, or 0 if it is not set. A wrong name ends the process: a test
// that believes to run in another mode would be worth nothing.
static unsigned read_choice(const char* variable, const char* const* choices, unsigned count) {
    const char* value = getenv(variable);
    if (value == nullptr) return 0;
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(value, choices[i]) == 0) return i;
    }
    fprintf(stderr, "simt: %s=%s is not a setting; allowed:", variable, value);
    for (unsigned i = 0; i < count; i++) fprintf(stderr, " %s", choices[i]);
    fprintf(stderr, "\n");
    exit(2);
}

// Reads all settings.
static Options read_options() {
    static const char* const copies[] = {"late", "early", "random"};
    static const char* const order[] = {"rising", "random"};
    static const char* const checks[] = {"on", "off"};
    Options options;
    if (const char* seed = getenv("SIMT_SEED")) options.seed = strtoull(seed, nullptr, 0);
    options.copies = static_cast<Copies>(read_choice("SIMT_COPIES", copies, 3));
    options.order = static_cast<Order>(read_choice("SIMT_ORDER", order, 2));
    options.checks = read_choice("SIMT_CHECKS", checks, 2) == 0;
    return options;
}

Options& options() {
    static Options options = read_options();
    return options;
}

}  // namespace simt
