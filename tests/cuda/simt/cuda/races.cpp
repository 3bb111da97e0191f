// Who touched which memory last: a map of segments, split where accesses begin and end.
#include "races.h"

#include "executor.h"
#include "memory.h"
#include "settings.h"

namespace driver {

namespace {

/// An operation in the past. It happens before a clock that has counted it.
struct Past {
    size_t component = 0;
    uint64_t count = 0;  // 0: no operation
    std::shared_ptr<const std::string> name;

    bool before(const Clock& clock) const { return count <= clock.at(component); }
};

/// Memory that the same operations touched last.
struct Segment {
    CUdeviceptr end;
    Past writer;
    std::vector<Past> readers;  // since the last write, one per component
};

using Segments = std::map<CUdeviceptr, Segment>;

/// Returns all segments, by address.
Segments& segments() {
    static auto& all = *new Segments;
    return all;
}

/// Cuts the segment that contains an address in two, so that one begins there.
void split(CUdeviceptr at) {
    auto next = segments().upper_bound(at);
    if (next == segments().begin()) return;
    auto& [start, segment] = *std::prev(next);
    if (start == at || segment.end <= at) return;
    Segment upper = segment;
    segment.end = at;
    segments().emplace(at, std::move(upper));
}

/// Adds empty segments, so that a range is covered without gaps.
void cover(CUdeviceptr from, CUdeviceptr to) {
    auto it = segments().lower_bound(from);
    while (from < to) {
        const CUdeviceptr next = it == segments().end() ? to : std::min(to, it->first);
        if (from < next) segments().emplace_hint(it, from, Segment{next, {}, {}});
        if (next == to) return;
        from = it->second.end;
        ++it;
    }
}

/// Prints the two operations that nothing orders.
void report(const Running& running, bool write, const Past& past, bool past_wrote, CUdeviceptr address) {
    complain("unordered accesses: %s (stream %zu) %s, and %s (stream %zu) %s %s", running.name.c_str(),
             running.stream ? running.stream->component : HOST_COMPONENT, write ? "writes" : "reads",
             past.name->c_str(), past.component, past_wrote ? "wrote" : "read", describe(address).c_str());
}

/// Checks one segment and notes the access. Returns false if it is unordered with an earlier one.
bool note(Segment& segment, CUdeviceptr address, const Running& running, const Past& now, bool write) {
    if (!segment.writer.before(running.clock)) {
        report(running, write, segment.writer, true, address);
        return false;
    }
    if (!write) {
        for (Past& reader : segment.readers) {
            if (reader.component != now.component) continue;
            reader = now;
            return true;
        }
        segment.readers.push_back(now);
        return true;
    }
    for (const Past& reader : segment.readers) {
        if (reader.before(running.clock)) continue;
        report(running, write, reader, false, address);
        return false;
    }
    segment.writer = now;
    segment.readers.clear();
    return true;
}

}  // namespace

CUresult check_order(const Running& running, const std::vector<Access>& accesses) {
    if (!settings().check || accesses.empty()) return CUDA_SUCCESS;
    const size_t component = running.stream ? running.stream->component : HOST_COMPONENT;
    const Past now{component, running.clock.at(component), std::make_shared<std::string>(running.name)};
    for (const Access& access : accesses) {
        const CUdeviceptr end = access.address + access.bytes;
        split(access.address);
        split(end);
        cover(access.address, end);
        for (auto it = segments().find(access.address); it != segments().end() && it->first < end; ++it) {
            if (!note(it->second, it->first, running, now, access.write)) return CUDA_ERROR_LAUNCH_FAILED;
        }
    }
    return CUDA_SUCCESS;
}

void forget_accesses(CUdeviceptr address, size_t bytes) {
    if (!settings().check) return;
    split(address);
    split(address + bytes);
    segments().erase(segments().lower_bound(address), segments().lower_bound(address + bytes));
}

Clock writers_of(CUdeviceptr address, size_t bytes) {
    Clock clock;
    // What a kernel touches is known at its end, but its words are seen before.
    if (state().kernel_stream) clock.join(state().kernel_stream->clock);
    split(address);
    for (auto it = segments().lower_bound(address); it != segments().end() && it->first < address + bytes; ++it) {
        const Past& writer = it->second.writer;
        if (writer.count == 0) continue;
        for (const Stream* stream : state().streams) {
            if (stream->component == writer.component) clock.join(stream->clock);
        }
    }
    return clock;
}

}  // namespace driver

using namespace driver;

/// Notes that the host reads or writes memory that a device can reach. Returns 0, or an error if that is unordered.
API int simt_host_access(const void* pointer, size_t bytes, int write) {
    const std::lock_guard lock(state().mutex);
    auto clock = std::make_shared<Clock>(*state().host);
    clock->advance(HOST_COMPONENT);
    state().host = clock;
    const Running host{nullptr, "the host", *clock};
    return check_order(host, {{reinterpret_cast<CUdeviceptr>(pointer), bytes, write != 0}});
}

/// Orders the host behind the work that wrote a range: call it after a poll of memory has seen the device's word.
API void simt_host_acquire(const void* pointer, size_t bytes) {
    const std::lock_guard lock(state().mutex);
    host_saw(writers_of(reinterpret_cast<CUdeviceptr>(pointer), bytes));
}
