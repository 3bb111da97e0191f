// Initialisation, versions, and what the device says about itself: the values of an H100 SXM.
#include <cstdio>
#include <cstring>

#include "call.h"
#include "executor.h"
#include "kernels.h"
#include "device_limits.h"
#include "guard.h"
#include "memory.h"
#include "settings.h"

using namespace driver;

namespace {

constexpr int DRIVER_VERSION = 13000;
constexpr int DEVICES_MAX = 16;

struct Attribute {
    int number;
    int value;
};

// Attributes that are not listed are 0. The numbers are those of CUdevice_attribute. Features of an H100 that the
// emulator does not have are 0 too: cooperative launches, clusters, tensor maps, multicast, managed memory.
constexpr Attribute ATTRIBUTES[] = {
    {1, int(THREADS_PER_BLOCK_MAX)},
    {2, int(BLOCK_X_MAX)},
    {3, int(BLOCK_Y_MAX)},
    {4, int(BLOCK_Z_MAX)},
    {5, int(GRID_X_MAX)},
    {6, int(GRID_Y_MAX)},
    {7, int(GRID_Z_MAX)},
    {8, int(SHARED_DEFAULT)},
    {9, 64 << 10},            // constant memory
    {10, int(WARP)},
    {11, 2147483647},         // pitch
    {12, 65536},              // registers per block
    {13, 1980000},            // clock, kHz
    {14, 512},                // alignment of textures
    {15, 1},                  // copies overlap kernels
    {16, int(MULTIPROCESSORS)},
    {19, 1},                  // can map host memory
    {31, 1},                  // concurrent kernels
    {32, 1},                  // ECC
    {36, 2619000},            // memory clock, kHz
    {37, 5120},               // memory bus, bits
    {38, 50 << 20},           // L2
    {39, int(THREADS_PER_MULTIPROCESSOR)},
    {40, 3},                  // copy engines
    {41, 1},                  // unified addresses
    {75, 9},                  // compute capability
    {76, 0},
    {78, 1},                  // priorities of streams
    {79, 1},                  // L1 caches global memory
    {80, 1},                  // L1 caches local memory
    {81, int(SHARED_PER_MULTIPROCESSOR)},
    {82, 65536},              // registers per multiprocessor
    {90, 1},                  // preemption
    {91, 1},                  // host pointers of registered memory are valid on the device
    {97, int(SHARED_OPT_IN)},
    {99, 1},                  // cuMemHostRegister
    {102, 1},                 // virtual memory management
    {103, 1},                 // handles as file descriptors
    {106, int(BLOCKS_PER_MULTIPROCESSOR)},
    {108, 32 << 20},          // L2 that can be set aside
    {109, 128 << 20},         // window of access policies
    {111, 1 << 10},           // shared memory that each block reserves
    {113, 1},                 // read-only registration
    {115, 1},                 // cuMemAllocAsync
    {119, 1},                 // pools: file descriptors
    {122, 1},                 // operations of 64 bits on memory, in streams
    {123, 1},                 // and CU_STREAM_WAIT_VALUE_NOR
    {126, 4},                 // domains of memory synchronisation
    {131, -1},                // the device's memory is no NUMA node
    {134, 0},                 // the host's NUMA node next to it
};

// Attributes that differ between devices.
constexpr int PCI_BUS_ID = 33;

/// Says whether the call may go on with a device.
CUresult check_device(int device) {
    if (!state().initialised) return CUDA_ERROR_NOT_INITIALIZED;
    return device >= 0 && device < settings().devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/// Returns the PCI bus of a device.
int bus_of(int device) {
    return 0x1a + 0x11 * device;
}

}  // namespace

/// Initialises the look-alike and starts its executor.
API CUresult cuInit(unsigned flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(state().mutex);
    State& shared = state();
    if (shared.initialised) return CUDA_SUCCESS;
    if (settings().devices < 1 || settings().devices > DEVICES_MAX) return CUDA_ERROR_NO_DEVICE;
    for (int device = 0; device < settings().devices; device++) {
        auto context = std::make_unique<Context>();
        context->device = device;
        context->legacy.reset(make_stream(*context, 0, 0, false));
        context->per_thread.reset(make_stream(*context, 0, 0, false));
        shared.contexts.push_back(std::move(context));
    }
    shared.initialised = true;
    register_memory_table();
    install_guard_message();
    start_executor();
    return CUDA_SUCCESS;
}

/// Returns the version of CUDA that the driver supports.
API CUresult cuDriverGetVersion(int* version) {
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

/// Returns the number of devices.
API CUresult cuDeviceGetCount(int* count) {
    if (!state().initialised) return CUDA_ERROR_NOT_INITIALIZED;
    *count = settings().devices;
    return CUDA_SUCCESS;
}

/// Returns the handle of a device.
API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    if (CUresult error = check_device(ordinal)) return error;
    *device = ordinal;
    return CUDA_SUCCESS;
}

/// Returns the name of a device.
API CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
    if (CUresult error = check_device(device)) return error;
    snprintf(name, bytes, "Emulated H100 (no GPU)");
    return CUDA_SUCCESS;
}

/// Returns the identity of a device.
API CUresult cuDeviceGetUuid_v2(char* uuid, CUdevice device) {
    if (CUresult error = check_device(device)) return error;
    memcpy(uuid, "simt emulator 00", 16);
    uuid[15] = char('0' + device);
    return CUDA_SUCCESS;
}

/// Returns the identity of a device; the older form of the call.
API CUresult cuDeviceGetUuid(char* uuid, CUdevice device) {
    return cuDeviceGetUuid_v2(uuid, device);
}

/// Returns the bytes of a device's memory.
API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    if (CUresult error = check_device(device)) return error;
    *bytes = settings().memory;
    return CUDA_SUCCESS;
}

/// Returns one of the numbers that describe a device.
API CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
    if (CUresult error = check_device(device)) return error;
    *value = attribute == PCI_BUS_ID ? bus_of(device) : 0;
    for (const Attribute& known : ATTRIBUTES) {
        if (known.number == attribute) *value = known.value;
    }
    return CUDA_SUCCESS;
}

/// Returns the compute capability of a device.
API CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
    if (CUresult error = check_device(device)) return error;
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

/// Returns where a device is on the PCI bus.
API CUresult cuDeviceGetPCIBusId(char* text, int bytes, CUdevice device) {
    if (CUresult error = check_device(device)) return error;
    snprintf(text, bytes, "00000000:%02X:00.0", bus_of(device));
    return CUDA_SUCCESS;
}

/// Says whether a device can use the memory of another. All emulated devices can.
API CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    if (CUresult error = check_device(device)) return error;
    if (CUresult error = check_device(peer)) return error;
    *can = device != peer;
    return CUDA_SUCCESS;
}

/// Does nothing: there is no profiler.
API CUresult cuProfilerStart() {
    return CUDA_SUCCESS;
}

/// Does nothing: there is no profiler.
API CUresult cuProfilerStop() {
    return CUDA_SUCCESS;
}
