// Memory protection keys: one for each device, and one for memory that all devices may use.
#include "guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "settings.h"

namespace driver {

namespace {

// Processors have 16 keys, and the kernel and the program need some: devices beyond these share the last.
constexpr int KEYS = 8;

struct Keys {
    bool usable = false;
    std::array<int, KEYS> of_device{};
    int common = 0;
};

/// Allocates the keys on first use; without PKU, or with SIMT_GUARD=0, none is usable.
const Keys& keys() {
    static const Keys allocated = [] {
        Keys all;
        if (!settings().guard) return all;
        all.usable = true;
        all.common = pkey_alloc(0, PKEY_DISABLE_ACCESS);
        for (int& key : all.of_device) key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
        for (int key : all.of_device) all.usable = all.usable && key > 0;
        all.usable = all.usable && all.common > 0;
        return all;
    }();
    return allocated;
}

/// Returns the key of a device's memory.
int key_of(int device) {
    if (device == ALL_DEVICES) return keys().common;
    return keys().of_device[device < KEYS ? device : KEYS - 1];
}

/// Returns the rights of the calling thread, for all keys together.
unsigned read_rights() {
#ifdef __x86_64__
    unsigned rights = 0, unused = 0;
    asm volatile("rdpkru" : "=a"(rights), "=d"(unused) : "c"(0));
    return rights;
#else
    return 0;
#endif
}

/// Sets the rights of the calling thread, for all keys together.
void write_rights(unsigned rights) {
#ifdef __x86_64__
    asm volatile("wrpkru" : : "a"(rights), "c"(0), "d"(0) : "memory");
#else
    (void)rights;
#endif
}

// What handled faults before.
struct sigaction handler_before;

/// Names a fault that a key caused, and lets the handler before this one end the process.
void explain_fault(int, siginfo_t* info, void*) {
    if (info->si_code == SEGV_PKUERR) {
        char line[120];
        const int length = snprintf(line, sizeof line, "simt: host code touches device memory at %p\n", info->si_addr);
        (void)!write(STDERR_FILENO, line, length);
    }
    // The instruction runs again after the return, and faults again.
    sigaction(SIGSEGV, &handler_before, nullptr);
}

}  // namespace

void install_guard_message() {
    if (!keys().usable) return;
    struct sigaction action{};
    action.sa_sigaction = explain_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &handler_before);
}

bool protect(void* at, size_t bytes, int protection, int device) {
    if (!keys().usable) return mprotect(at, bytes, protection) == 0;
    return pkey_mprotect(at, bytes, protection, key_of(device)) == 0;
}

void take_rights(Rights rights, const Context& context) {
    if (!keys().usable) return;
    for (int device = 0; device < KEYS; device++) {
        const bool own = context.device == device || context.peers.count(device);
        const bool allowed = rights == Rights::all || (rights == Rights::context && own);
        pkey_set(keys().of_device[device], allowed ? 0 : PKEY_DISABLE_ACCESS);
    }
    pkey_set(keys().common, rights == Rights::none ? PKEY_DISABLE_ACCESS : 0);
}

DeviceAccess::DeviceAccess() : rights_before_(0) {
    if (!keys().usable) return;
    rights_before_ = read_rights();
    for (int key : keys().of_device) pkey_set(key, 0);
    pkey_set(keys().common, 0);
}

DeviceAccess::~DeviceAccess() {
    if (keys().usable) write_rights(rights_before_);
}

}  // namespace driver
