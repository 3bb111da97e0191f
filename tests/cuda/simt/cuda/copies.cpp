// Copies and fills of memory.
//
// A copy from pageable memory takes its bytes at the call. A copy from pinned memory takes them when it runs, so that a
// buffer that is reused too early shows. A copy to pageable memory waits for its end.
#include <sys/mman.h>

#include <cstring>

#include "call.h"
#include "executor.h"
#include "memory.h"

using namespace driver;

namespace {

constexpr size_t PAGE = 4096;

enum class Direction { host_to_device, device_to_host, device_to_device, any };

/// A copy and where its ends lie.
struct Copy {
    CUdeviceptr to;
    CUdeviceptr from;
    size_t bytes;
    bool to_pageable = false;
    bool from_pageable = false;
};

/// Returns the name of a copy, for messages.
const char* name_of(Direction direction) {
    switch (direction) {
        case Direction::host_to_device: return "copy host to device";
        case Direction::device_to_host: return "copy device to host";
        case Direction::device_to_device: return "copy device to device";
        case Direction::any: break;
    }
    return "copy";
}

/// Finds out where an end of a copy lies. Returns false if the copy must be refused.
bool classify(CUdeviceptr address, size_t bytes, bool must_be_device, bool must_be_host, bool& pageable) {
    const Region* region = find_region(address);
    pageable = region == nullptr;
    if (pageable) return !must_be_device && address != 0;
    if (must_be_host && region->on_device()) return false;
    return covered(address, bytes);
}

/// Checks a copy's ends. Returns an error if one of them does not fit the direction or its memory.
CUresult check(Copy& copy, Direction direction) {
    const bool to_device = direction == Direction::host_to_device || direction == Direction::device_to_device;
    const bool from_device = direction == Direction::device_to_host || direction == Direction::device_to_device;
    const bool to_host = direction == Direction::device_to_host;
    const bool from_host = direction == Direction::host_to_device;
    if (!classify(copy.to, copy.bytes, to_device, to_host, copy.to_pageable)) return CUDA_ERROR_INVALID_VALUE;
    if (!classify(copy.from, copy.bytes, from_device, from_host, copy.from_pageable)) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/// Builds the work of a copy. `staged` holds the source's bytes if they were taken at the call.
Work work_of(const Copy& copy, Direction direction, std::shared_ptr<std::vector<char>> staged) {
    Work work{.kind = OpKind::copy, .name = name_of(direction)};
    if (!copy.to_pageable) work.accesses.push_back({copy.to, copy.bytes, true});
    if (!copy.from_pageable) work.accesses.push_back({copy.from, copy.bytes, false});
    work.run = [copy, staged](Running&) {
        const void* from = staged ? staged->data() : reinterpret_cast<const void*>(copy.from);
        memmove(reinterpret_cast<void*>(copy.to), from, copy.bytes);
        return CUDA_SUCCESS;
    };
    return work;
}

/// Enqueues a copy, and waits for it if the caller or pageable memory asks for that.
CUresult enqueue_copy(Call& call, Stream& stream, Copy copy, Direction direction, bool wait) {
    if (copy.bytes == 0) return CUDA_SUCCESS;
    if (CUresult error = check(copy, direction)) return error;
    std::shared_ptr<std::vector<char>> staged;
    if (copy.from_pageable && !stream.capture) {
        const char* bytes = reinterpret_cast<const char*>(copy.from);
        staged = std::make_shared<std::vector<char>>(bytes, bytes + copy.bytes);
    }
    if (CUresult error = enqueue(stream, work_of(copy, direction, staged), NODE_MEMCPY)) return error;
    if (stream.capture || (!wait && !copy.to_pageable)) return CUDA_SUCCESS;
    wait_for({stream.tail}, call.lock());
    return stream.context->sticky;
}

/// Runs a copy in a stream.
CUresult copy_async(Copy copy, Direction direction, void* handle) {
    Call call;
    if (call.refused()) return call.error();
    Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    return enqueue_copy(call, *stream, copy, direction, false);
}

/// Runs a copy in the legacy stream. It waits unless both ends are on a device.
CUresult copy_now(Copy copy, Direction direction) {
    Call call(NEEDS_DRIVER | REFUSED_IN_CAPTURE);
    if (call.refused()) return call.error();
    const bool wait = direction != Direction::device_to_device;
    return enqueue_copy(call, *call.context().legacy, copy, direction, wait);
}

/// Returns a pointer as an address.
CUdeviceptr address_of(const void* pointer) {
    return reinterpret_cast<CUdeviceptr>(pointer);
}

/// Says whether a range is whole pages of one mapping. These become zero without being written, so that a pool can have
/// more memory than the host.
bool droppable(CUdeviceptr address, size_t bytes) {
    const Region* region = find_region(address);
    const bool mapped = region && region->kind == MemoryKind::mapped && address + bytes <= region->end();
    return mapped && address % PAGE == 0 && bytes % PAGE == 0;
}

/// Fills memory with a value of a type, `count` times.
template <class Value>
CUresult fill_in(Stream& stream, CUdeviceptr to, Value value, size_t count) {
    if (count == 0) return CUDA_SUCCESS;
    if (to % sizeof(Value) != 0 || !covered(to, count * sizeof(Value))) return CUDA_ERROR_INVALID_VALUE;
    Work work{.kind = OpKind::fill, .name = "fill"};
    work.accesses = {{to, count * sizeof(Value), true}};
    const bool drop = value == 0 && droppable(to, count * sizeof(Value));
    work.run = [=](Running&) {
        if (drop && madvise(reinterpret_cast<void*>(to), count * sizeof(Value), MADV_REMOVE) == 0) return CUDA_SUCCESS;
        std::fill_n(reinterpret_cast<Value*>(to), count, value);
        return CUDA_SUCCESS;
    };
    return enqueue(stream, std::move(work), NODE_MEMSET);
}

/// Fills memory in the order of a stream.
template <class Value>
CUresult fill_async(CUdeviceptr to, Value value, size_t count, void* handle) {
    const Call call;
    if (call.refused()) return call.error();
    Stream* stream = stream_of(handle, call.context());
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    return fill_in(*stream, to, value, count);
}

/// Fills memory in the order of the legacy stream; does not wait, as a real driver does not.
template <class Value>
CUresult fill_now(CUdeviceptr to, Value value, size_t count) {
    const Call call(NEEDS_DRIVER | REFUSED_IN_CAPTURE);
    if (call.refused()) return call.error();
    return fill_in(*call.context().legacy, to, value, count);
}

}  // namespace

/// Copies from host to device in a stream.
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, void* stream) {
    return copy_async({to, address_of(from), bytes}, Direction::host_to_device, stream);
}

/// Copies from device to host in a stream.
API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, void* stream) {
    return copy_async({address_of(to), from, bytes}, Direction::device_to_host, stream);
}

/// Copies from device to device in a stream.
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, void* stream) {
    return copy_async({to, from, bytes}, Direction::device_to_device, stream);
}

/// Copies between any two addresses in a stream.
API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, void* stream) {
    return copy_async({to, from, bytes}, Direction::any, stream);
}

/// Copies from a device to another one in a stream.
API CUresult cuMemcpyPeerAsync(CUdeviceptr to, void*, CUdeviceptr from, void*, size_t bytes, void* stream) {
    return copy_async({to, from, bytes}, Direction::device_to_device, stream);
}

/// Copies from host to device.
API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    return copy_now({to, address_of(from), bytes}, Direction::host_to_device);
}

/// Copies from device to host.
API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    return copy_now({address_of(to), from, bytes}, Direction::device_to_host);
}

/// Copies from device to device.
API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy_now({to, from, bytes}, Direction::device_to_device);
}

/// Copies between any two addresses.
API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy_now({to, from, bytes}, Direction::any);
}

/// Copies from a device to another one.
API CUresult cuMemcpyPeer(CUdeviceptr to, void*, CUdeviceptr from, void*, size_t bytes) {
    return copy_now({to, from, bytes}, Direction::device_to_device);
}

/// Copies a batch in a stream. The copies of a batch have no order in a real driver; here they keep theirs.
API CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count, void*, size_t*,
                                   size_t, void* stream) {
    if (reinterpret_cast<uintptr_t>(stream) <= CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (CUresult error = copy_async({to[i], from[i], bytes[i]}, Direction::any, stream)) return error;
    }
    return CUDA_SUCCESS;
}

/// Fills with bytes in a stream.
API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, void* stream) {
    return fill_async(to, value, count, stream);
}

/// Fills with 16-bit values in a stream.
API CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, void* stream) {
    return fill_async(to, value, count, stream);
}

/// Fills with 32-bit values in a stream.
API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, void* stream) {
    return fill_async(to, value, count, stream);
}

/// Fills with bytes.
API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    return fill_now(to, value, count);
}

/// Fills with 16-bit values.
API CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
    return fill_now(to, value, count);
}

/// Fills with 32-bit values.
API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
    return fill_now(to, value, count);
}
