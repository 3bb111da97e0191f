// Handles of cuMemAlloc's memory for other processes. They are not supported: another process gets device memory by
// cuMemExportToShareableHandle.
#include "call.h"

using namespace driver;

/// Refuses to make a handle.
API CUresult cuIpcGetMemHandle(CUipcMemHandle*, CUdeviceptr) {
    const Call call;
    return call.refused() ? call.error() : CUDA_ERROR_NOT_SUPPORTED;
}

/// Refuses to open a handle.
API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr*, CUipcMemHandle, unsigned) {
    const Call call;
    return call.refused() ? call.error() : CUDA_ERROR_NOT_SUPPORTED;
}

/// Refuses to close a handle.
API CUresult cuIpcCloseMemHandle(CUdeviceptr) {
    const Call call;
    return call.refused() ? call.error() : CUDA_ERROR_INVALID_VALUE;
}
