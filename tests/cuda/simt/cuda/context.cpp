// Primary contexts, the current context of a thread, and access to other devices.
#include "call.h"
#include "capture.h"
#include "executor.h"
#include "memory.h"
#include "settings.h"

using namespace driver;

namespace {

constexpr int LIMIT_STACK_SIZE = 0;
constexpr int LIMITS = 11;
constexpr int PRIORITY_LEAST = 0;
constexpr int PRIORITY_GREATEST = -5;

// Limits have no effect; a program that sets one can read it back.
size_t limits[LIMITS] = {1024, 1 << 20, 8 << 20};

/// Returns the context of a device, or null.
Context* context_of(CUdevice device) {
    if (device < 0 || device >= int(state().contexts.size())) return nullptr;
    return state().contexts[device].get();
}

/// Returns the context of a handle, or null.
Context* context_of_handle(void* handle) {
    for (const auto& context : state().contexts) {
        if (context.get() == handle) return context.get();
    }
    return nullptr;
}

}  // namespace

/// Retains the primary context of a device. Fails if the device has a sticky error, as a real one does.
API CUresult cuDevicePrimaryCtxRetain(void** handle, CUdevice device) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    Context* context = context_of(device);
    if (!context) return CUDA_ERROR_INVALID_DEVICE;
    if (context->sticky != CUDA_SUCCESS) return context->sticky;
    context->retained++;
    *handle = context;
    return CUDA_SUCCESS;
}

/// Releases the primary context of a device. Its memory stays, as other threads may use it.
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    Context* context = context_of(device);
    if (!context || context->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    context->retained--;
    return CUDA_SUCCESS;
}

/// Frees the device memory of a context and takes its sticky error back.
API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    Context* context = context_of(device);
    if (!context) return CUDA_ERROR_INVALID_DEVICE;
    drain(*context, call.lock());
    std::vector<CUdeviceptr> addresses;
    for (const auto& [address, region] : regions()) {
        if (region.kind == MemoryKind::device && region.device == device) addresses.push_back(address);
    }
    for (const CUdeviceptr address : addresses) release(*find_region(address));
    context->sticky = CUDA_SUCCESS;
    return CUDA_SUCCESS;
}

/// Says whether the primary context of a device is in use.
API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    const Context* context = context_of(device);
    if (!context) return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = context->retained > 0;
    return CUDA_SUCCESS;
}

/// Returns the context of the calling thread.
API CUresult cuCtxGetCurrent(void** handle) {
    *handle = current_context();
    return CUDA_SUCCESS;
}

/// Sets the context of the calling thread.
API CUresult cuCtxSetCurrent(void* handle) {
    const Call call(NEEDS_INIT);
    if (call.refused()) return call.error();
    Context* context = context_of_handle(handle);
    if (handle && !context) return CUDA_ERROR_INVALID_CONTEXT;
    set_current_context(context);
    return CUDA_SUCCESS;
}

/// Returns the device of the calling thread's context.
API CUresult cuCtxGetDevice(CUdevice* device) {
    const Call call;
    if (call.refused()) return call.error();
    *device = call.context().device;
    return CUDA_SUCCESS;
}

/// Accepts flags; they have no effect.
API CUresult cuCtxSetFlags(unsigned) {
    const Call call;
    return call.error();
}

/// Returns a limit.
API CUresult cuCtxGetLimit(size_t* value, int limit) {
    const Call call;
    if (call.refused()) return call.error();
    if (limit < LIMIT_STACK_SIZE || limit >= LIMITS) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = limits[limit];
    return CUDA_SUCCESS;
}

/// Sets a limit.
API CUresult cuCtxSetLimit(int limit, size_t value) {
    const Call call;
    if (call.refused()) return call.error();
    if (limit < LIMIT_STACK_SIZE || limit >= LIMITS) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    limits[limit] = value;
    return CUDA_SUCCESS;
}

/// Returns the range of stream priorities. The executor ignores priorities, so that all orders can happen.
API CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    const Call call;
    if (call.refused()) return call.error();
    if (least) *least = PRIORITY_LEAST;
    if (greatest) *greatest = PRIORITY_GREATEST;
    return CUDA_SUCCESS;
}

/// Waits for all work of the current context, and checks the canaries of its memory.
API CUresult cuCtxSynchronize() {
    Call call;
    if (call.refused()) return call.error();
    if (CUresult error = check_wait_all(call.context())) return error;
    drain(call.context(), call.lock());
    check_canaries(call.context());
    return call.context().sticky;
}

/// Lets kernels of the current device use the memory of another one.
API CUresult cuCtxEnablePeerAccess(void* handle, unsigned flags) {
    const Call call;
    if (call.refused()) return call.error();
    const Context* peer = context_of_handle(handle);
    if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (peer == &call.context()) return CUDA_ERROR_INVALID_DEVICE;
    const bool added = call.context().peers.insert(peer->device).second;
    return added ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

/// Takes access to another device's memory back.
API CUresult cuCtxDisablePeerAccess(void* handle) {
    const Call call;
    if (call.refused()) return call.error();
    const Context* peer = context_of_handle(handle);
    if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
    return call.context().peers.erase(peer->device) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
