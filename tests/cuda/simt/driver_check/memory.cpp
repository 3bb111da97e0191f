// Tests of device memory, virtual memory, host memory and copies.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "device.h"

using namespace check;

namespace {

constexpr size_t GRANULARITY = size_t(2) << 20;

/// Returns the properties of memory that can be exported.
CUmemAllocationProp properties(int device = 0) {
    CUmemAllocationProp made{};
    made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    made.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return made;
}

/// Returns new physical memory of the smallest size.
CUmemGenericAllocationHandle physical() {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp wanted = properties();
    OK(cuMemCreate(&handle, GRANULARITY, &wanted, 0));
    return handle;
}

/// Maps physical memory at new addresses, with rights for the first device.
CUdeviceptr map(CUmemGenericAllocationHandle handle, unsigned rights) {
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve(&address, GRANULARITY, 0, 0, 0));
    OK(cuMemMap(address, GRANULARITY, 0, handle, 0));
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, rights};
    if (rights != 0) OK(cuMemSetAccess(address, GRANULARITY, &access, 1));
    return address;
}

}  // namespace

TEST(fresh, "memory: new memory holds 0xFF, small and large") {
    use_device();
    REQUIRE(value_at(ints(1)) == -1);
    const CUdeviceptr large = ints(8 << 20);
    REQUIRE(value_at(large + (31 << 20)) == -1);
}

TEST(limit, "memory: a device has the bytes of SIMT_MEMORY, and no more", "SIMT_MEMORY=64M") {
    use_device();
    CUdeviceptr first = 0, second = 0;
    OK(cuMemAlloc_v2(&first, size_t(40) << 20));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&second, size_t(40) << 20));
    size_t left = 0, total = 0;
    OK(cuMemGetInfo_v2(&left, &total));
    REQUIRE(left == size_t(24) << 20 && total == size_t(64) << 20);
    OK(cuMemFree_v2(first));
    OK(cuMemAlloc_v2(&second, size_t(40) << 20));
}

TEST(bad_free, "memory: a free of what is not allocated is refused") {
    use_device();
    const CUdeviceptr memory = ints(4);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(memory + 4));
    OK(cuMemFree_v2(memory));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(memory));
}

TEST(canary, "memory: a write behind an allocation is found when the context is synchronised", "SIMT_CHECK=0") {
    use_device();
    const CUdeviceptr memory = ints(3);
    OK(launch(kernel("step"), 1, nullptr, memory, 12));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    REQUIRE(printed("the bytes behind device memory"));
}

TEST(canary_before, "memory: a write before an allocation is found when it is freed", "SIMT_CHECK=0") {
    use_device();
    const CUdeviceptr memory = ints(3);
    OK(launch(kernel("step"), 1, nullptr, memory, -4));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree_v2(memory));
    REQUIRE(printed("the bytes before device memory"));
}

TEST(guard, "memory: the host cannot touch device memory") {
    use_device();
    volatile int* memory = reinterpret_cast<int*>(ints(4));
    const pid_t child = fork();
    if (child == 0) _exit(memory[0] == -1 ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    if (pkey_alloc(0, 0) < 0) return;  // a processor without protection keys: the host can
    REQUIRE(WIFSIGNALED(status) && printed("host code touches device memory"));
}

TEST(freed, "memory: a kernel that uses freed memory faults, and the error stays") {
    use_device();
    const CUdeviceptr memory = ints(4);
    OK(cuMemFree_v2(memory));
    OK(launch(kernel("fill"), 1, nullptr, memory, 1, 1));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    CUdeviceptr more = 0;
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&more, 4));
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuMemAlloc_v2(&more, 4));
}

TEST(misaligned, "memory: a misaligned access is an error of its own", "SIMT_CHECK=1") {
    use_device();
    const CUdeviceptr memory = ints(4);
    OK(launch(kernel("step"), 1, nullptr, memory, 2));
    EXPECT(CUDA_ERROR_MISALIGNED_ADDRESS, cuCtxSynchronize());
}

TEST(pinned, "copies: from pinned memory, the bytes are taken when the copy runs", "SIMT_LAZY=1") {
    use_device();
    void* source = nullptr;
    OK(cuMemHostAlloc(&source, sizeof(int), 0));
    *static_cast<int*>(source) = 1;
    const CUdeviceptr memory = ints(1);
    void* copies = stream();
    OK(cuMemcpyHtoDAsync_v2(memory, source, sizeof(int), copies));
    *static_cast<int*>(source) = 2;
    OK(cuStreamSynchronize(copies));
    REQUIRE(value_at(memory) == 2);
    OK(cuMemFreeHost(source));
}

TEST(pageable, "copies: from pageable memory, the bytes are taken at the call", "SIMT_LAZY=1") {
    use_device();
    int source = 1;
    const CUdeviceptr memory = ints(1);
    void* copies = stream();
    OK(cuMemcpyHtoDAsync_v2(memory, &source, sizeof(int), copies));
    source = 2;
    OK(cuStreamSynchronize(copies));
    REQUIRE(value_at(memory) == 1);
}

TEST(registered, "copies: registered memory is pinned; it is registered once") {
    use_device();
    int source[2] = {1, 2};
    OK(cuMemHostRegister_v2(source, sizeof source, 0));
    EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(source + 1, sizeof(int), 0));
    unsigned type = 0;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(source)));
    REQUIRE(type == CU_MEMORYTYPE_HOST);
    OK(cuMemHostUnregister(source));
    EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(source));
}

TEST(outside, "copies: a copy beyond an allocation is refused at the call") {
    use_device();
    int host[8] = {};
    const CUdeviceptr memory = ints(4);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory, host, sizeof host));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(host, memory, sizeof host));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(memory + 1, 0, 16));
}

TEST(virtual_rules, "virtual memory: what is not a multiple of 2 MiB, not reserved or taken is refused") {
    use_device();
    const CUmemAllocationProp wanted = properties();
    CUmemGenericAllocationHandle handle = 0;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 4096, &wanted, 0));
    handle = physical();
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(GRANULARITY, GRANULARITY, 0, handle, 0));
    const CUdeviceptr address = map(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, GRANULARITY, 0, handle, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, GRANULARITY));
    OK(cuMemUnmap(address, GRANULARITY));
    OK(cuMemAddressFree(address, GRANULARITY));
    OK(cuMemRelease(handle));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
}

TEST(aliases, "virtual memory: two mappings of one allocation show the same bytes") {
    use_device();
    const CUmemGenericAllocationHandle handle = physical();
    const CUdeviceptr first = map(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    const CUdeviceptr second = map(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    REQUIRE(value_at(second) == -1);
    OK(launch(kernel("fill"), 32, nullptr, first, 7, 100));
    REQUIRE(value_at(second + 99 * sizeof(int)) == 7);
}

TEST(no_access, "virtual memory: without cuMemSetAccess a kernel faults") {
    use_device();
    const CUdeviceptr memory = map(physical(), 0);
    OK(launch(kernel("fill"), 1, nullptr, memory, 1, 1));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST(read_only, "virtual memory: a kernel that writes to a read-only mapping faults") {
    use_device();
    const CUdeviceptr memory = map(physical(), CU_MEM_ACCESS_FLAGS_PROT_READ);
    REQUIRE(value_at(memory) == -1);
    OK(launch(kernel("read"), 1, nullptr, ints(1), memory, 5));
    OK(cuCtxSynchronize());
    OK(launch(kernel("fill"), 1, nullptr, memory, 1, 1));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST(read_only_copy, "virtual memory: a copy to a read-only mapping faults") {
    use_device();
    const CUdeviceptr memory = map(physical(), CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cuMemcpyDtoDAsync_v2(memory, ints(1), sizeof(int), stream()));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    REQUIRE(printed("read-only"));
}

TEST(adjacent, "virtual memory: adjacent mappings are one range for copies and kernels") {
    use_device();
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve(&address, 2 * GRANULARITY, 0, 0, 0));
    OK(cuMemMap(address, GRANULARITY, 0, physical(), 0));
    OK(cuMemMap(address + GRANULARITY, GRANULARITY, 0, physical(), 0));
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess(address, 2 * GRANULARITY, &access, 1));
    OK(cuMemsetD8_v2(address, 3, 2 * GRANULARITY));
    REQUIRE(value_at(address + 2 * GRANULARITY - 4) == 0x03030303);
    OK(cuMemUnmap(address + GRANULARITY, GRANULARITY));
    OK(launch(kernel("fill"), 1, nullptr, address + GRANULARITY - 4, 1, 2));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST(exported, "virtual memory: another process sees what is written through an exported handle") {
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    const pid_t child = fork();
    if (child == 0) {
        // The other process: it receives the descriptor, maps it and writes.
        char byte = 0, space[CMSG_SPACE(sizeof(int))] = {};
        iovec part{&byte, 1};
        msghdr message{};
        message.msg_iov = &part, message.msg_iovlen = 1;
        message.msg_control = space, message.msg_controllen = sizeof space;
        REQUIRE(recvmsg(pair[1], &message, 0) == 1);
        int file = -1;
        memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
        use_device();
        CUmemGenericAllocationHandle handle = 0;
        OK(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(uintptr_t(file)), 1));
        const CUdeviceptr memory = map(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        REQUIRE(value_at(memory + 4) == 5);
        OK(launch(kernel("fill"), 1, nullptr, memory, 42, 1));
        OK(cuCtxSynchronize());
        _exit(EXIT_SUCCESS);
    }
    use_device();
    const CUmemGenericAllocationHandle handle = physical();
    const CUdeviceptr memory = map(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(launch(kernel("fill"), 1, nullptr, memory, 5, 2));
    OK(cuCtxSynchronize());
    int file = -1;
    OK(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    char byte = 1, space[CMSG_SPACE(sizeof(int))] = {};
    iovec part{&byte, 1};
    msghdr message{};
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = space, message.msg_controllen = sizeof space;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(header), &file, sizeof file);
    REQUIRE(sendmsg(pair[0], &message, 0) == 1);
    int status = -1;
    waitpid(child, &status, 0);
    REQUIRE(status == 0);
    REQUIRE(value_at(memory) == 42);
}

TEST(two_devices, "devices: two of them, with their own memory and peer access", "SIMT_DEVICES=2") {
    void* first = use_device(0);
    const CUdeviceptr memory = ints(4);
    OK(launch(kernel("fill"), 1, nullptr, memory, 9, 4));
    OK(cuCtxSynchronize());
    void* second = use_device(1);
    const CUdeviceptr other = ints(4);
    void* copies = stream();
    OK(cuMemcpyPeerAsync(other, second, memory, first, 16, copies));
    OK(cuStreamSynchronize(copies));
    REQUIRE(value_at(other) == 9);
    int can = 0;
    OK(cuDeviceCanAccessPeer(&can, 1, 0));
    REQUIRE(can == 1);
    OK(cuCtxEnablePeerAccess(first, 0));
    EXPECT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(first, 0));
    OK(launch(kernel("add"), 1, copies, other, memory, 4));
    OK(cuStreamSynchronize(copies));
    REQUIRE(value_at(other) == 18);
}
