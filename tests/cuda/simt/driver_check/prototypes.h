// The entry points that the tests call. Handles are plain pointers.
#pragma once
#include "../cuda/api.h"

extern "C" {
CUresult cuInit(unsigned);
CUresult cuDriverGetVersion(int*);
CUresult cuDeviceGetCount(int*);
CUresult cuDeviceGetAttribute(int*, int, CUdevice);
CUresult cuDeviceGetName(char*, int, CUdevice);
CUresult cuDeviceTotalMem_v2(size_t*, CUdevice);
CUresult cuDeviceCanAccessPeer(int*, CUdevice, CUdevice);
CUresult cuDevicePrimaryCtxRetain(void**, CUdevice);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuCtxSetCurrent(void*);
CUresult cuCtxGetCurrent(void**);
CUresult cuCtxSynchronize();
CUresult cuCtxEnablePeerAccess(void*, unsigned);
CUresult cuGetErrorName(CUresult, const char**);
CUresult cuMemAlloc_v2(CUdeviceptr*, size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemAllocAsync(CUdeviceptr*, size_t, void*);
CUresult cuMemFreeAsync(CUdeviceptr, void*);
CUresult cuMemGetInfo_v2(size_t*, size_t*);
CUresult cuMemHostAlloc(void**, size_t, unsigned);
CUresult cuMemFreeHost(void*);
CUresult cuMemHostRegister_v2(void*, size_t, unsigned);
CUresult cuMemHostUnregister(void*);
CUresult cuPointerGetAttribute(void*, CUpointer_attribute, CUdeviceptr);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t);
CUresult cuMemcpyDtoH_v2(void*, CUdeviceptr, size_t);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, size_t, void*);
CUresult cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, size_t, void*);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, void*);
CUresult cuMemcpyPeerAsync(CUdeviceptr, void*, CUdeviceptr, void*, size_t, void*);
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t);
CUresult cuMemsetD32Async(CUdeviceptr, unsigned, size_t, void*);
CUresult cuMemAddressReserve(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemAddressFree(CUdeviceptr, size_t);
CUresult cuMemCreate(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long);
CUresult cuMemRelease(CUmemGenericAllocationHandle);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
CUresult cuMemGetAllocationGranularity(size_t*, const CUmemAllocationProp*, int);
CUresult cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle, unsigned, unsigned long long);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*, void*, unsigned);
CUresult cuStreamCreate(void**, unsigned);
CUresult cuStreamDestroy_v2(void*);
CUresult cuStreamSynchronize(void*);
CUresult cuStreamQuery(void*);
CUresult cuStreamWaitEvent(void*, void*, unsigned);
CUresult cuStreamWriteValue64_v2(void*, CUdeviceptr, uint64_t, unsigned);
CUresult cuStreamWaitValue64_v2(void*, CUdeviceptr, uint64_t, unsigned);
CUresult cuLaunchHostFunc(void*, CUhostFn, void*);
CUresult cuEventCreate(void**, unsigned);
CUresult cuEventRecord(void*, void*);
CUresult cuEventQuery(void*);
CUresult cuEventSynchronize(void*);
CUresult cuEventElapsedTime_v2(float*, void*, void*);
CUresult cuStreamBeginCapture_v2(void*, CaptureMode);
CUresult cuStreamEndCapture(void*, void**);
CUresult cuStreamIsCapturing(void*, CaptureStatus*);
CUresult cuThreadExchangeStreamCaptureMode(CaptureMode*);
CUresult cuGraphInstantiateWithFlags(void**, void*, unsigned long long);
CUresult cuGraphLaunch(void*, void*);
CUresult cuGraphDestroy(void*);
CUresult cuGraphExecDestroy(void*);
CUresult cuGraphGetNodes(void*, void**, size_t*);
CUresult cuGraphGetEdges_v2(void*, void**, void**, void*, size_t*);
CUresult cuGraphExecKernelNodeSetParams_v2(void*, void*, const CUDA_KERNEL_NODE_PARAMS*);
CUresult cuModuleLoadData(void**, const void*);
CUresult cuModuleGetFunction(void**, void*, const char*);
CUresult cuFuncSetAttribute(void*, int, int);
CUresult cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                        void**);
CUresult cuLaunchKernelEx(const CUlaunchConfig*, void*, void**, void**);

int nvrtcCreateProgram(void**, const char*, const char*, int, const char* const*, const char* const*);
int nvrtcDestroyProgram(void**);
int nvrtcCompileProgram(void*, int, const char* const*);
int nvrtcAddNameExpression(void*, const char*);
int nvrtcGetLoweredName(void*, const char*, const char**);
int nvrtcGetProgramLogSize(void*, size_t*);
int nvrtcGetProgramLog(void*, char*);
int nvrtcGetCUBINSize(void*, size_t*);
int nvrtcGetCUBIN(void*, char*);
int nvrtcGetPTXSize(void*, size_t*);
int nvrtcGetPTX(void*, char*);

unsigned long long simt_launches(const char*);
unsigned long long simt_graph_launches();
void simt_fail(const char*);
int simt_host_access(const void*, size_t, int);
void simt_host_acquire(const void*, size_t);
}
