// Keeps host code away from device memory, where the processor has memory protection keys (x86-64 with PKU).
//
// A key belongs to pages, and each thread has its own rights for each key. Threads start without rights for the keys of
// device memory. The executor takes the rights of the device whose operation it runs.
#pragma once
#include <cstddef>

#include "driver.h"

namespace driver {

/// The owner of memory that all devices may use.
constexpr int ALL_DEVICES = -1;

/// Sets the protection (PROT_...) of pages that belong to a device.
bool protect(void* at, size_t bytes, int protection, int device);

/// Prints a line when host code touches device memory, before the process ends by that fault.
void install_guard_message();

/// What a thread may touch.
enum class Rights {
    none,     // host functions
    context,  // kernels: memory of the context's device and its peers
    all,      // copies, which need no access to peers
};

/// Gives the calling thread rights to device memory, and takes all others away.
void take_rights(Rights rights, const Context& context);

/// Gives the calling thread all rights, until it goes out of scope.
class DeviceAccess {
public:
    DeviceAccess();
    ~DeviceAccess();
    DeviceAccess(const DeviceAccess&) = delete;
    DeviceAccess& operator=(const DeviceAccess&) = delete;

private:
    unsigned rights_before_;
};

}  // namespace driver
