// Order between the blocks of a launch.
#include "tickets.h"

#include <algorithm>

namespace simt {

// Returns the key of a thread of the launch.
static uint64_t thread_key(uint32_t block, uint32_t thread) { return uint64_t{block} * MAX_THREADS + thread; }

// Says whether a moment or point of the same block, but another thread, comes before `point`.
template <class Earlier>
static bool ordered_by_barrier(const Earlier& earlier, const Point& point) {
    if (earlier.epoch < point.epoch) return true;
    const bool same_warp = earlier.thread / LANES == point.thread / LANES;
    return same_warp && earlier.ticks < point.known[earlier.thread % LANES];
}

void Tickets::begin_launch() {
    fences_.clear();
    locations_.clear();
    acquisitions_.clear();
}

void Tickets::begin_block(uint32_t block) {
    block_ = block;
    acquisitions_.clear();
}

Point Tickets::point_now(const Clocks& clocks) const {
    const Thread& self = *current;
    Point point = {block_, clocks.epoch(), self.clock.ticks, self.clock.fences, self.number, {}};
    std::copy_n(clocks.known_lanes(self), LANES, point.known.begin());
    return point;
}

const std::vector<Point>& Tickets::fences_of(uint32_t block, uint32_t thread) const {
    static const std::vector<Point> none;
    const auto found = fences_.find(thread_key(block, thread));
    return found != fences_.end() ? found->second : none;
}

void Tickets::fence(const Clocks& clocks) {
    fences_[thread_key(block_, current->number)].push_back(point_now(clocks));
    current->clock.fences++;
    end_moment(*current);
}

void Tickets::atomic(const Clocks& clocks, uintptr_t address, bool writes) {
    Location& location = locations_[address];
    const Point now = point_now(clocks);
    const std::vector<Point>& releases = location.releases;
    if (!releases.empty()) acquisitions_.push_back({&location, address, releases.size(), now});
    if (!writes) return;
    // A thread that repeats its operation with nothing between releases nothing more.
    const bool repeated = !releases.empty() && releases.back().block == block_ &&
                          releases.back().thread == now.thread && releases.back().epoch == now.epoch &&
                          releases.back().ticks == now.ticks && releases.back().fences == now.fences;
    if (repeated) return;
    forward(clocks, location, location);
    location.by_block[block_].push_back(static_cast<uint32_t>(location.releases.size()));
    location.releases.push_back(now);
}

// Passes on what the running block acquired from other addresses, so that chains over several tickets hold.
void Tickets::forward(const Clocks& clocks, Location& to, const Location& except) {
    for (const Acquisition& acquisition : acquisitions_) {
        const Location& from = *acquisition.location;
        if (&from == &except || !acquired(clocks, acquisition, *current)) continue;
        for (size_t i = 0; i < acquisition.seen; i++) {
            const Point& release = from.releases[i];
            if (release.block == block_) continue;
            to.by_block[release.block].push_back(static_cast<uint32_t>(to.releases.size()));
            to.releases.push_back(release);
        }
    }
}

// Says whether a fence lies between a moment and a release of the same block.
bool Tickets::released(const Moment& moment, const Point& release) const {
    // The first fence that the moment's thread made after it.
    const std::vector<Point>& own = fences_of(moment.block, moment.thread);
    if (moment.fences < own.size()) {
        const Point& fence = own[moment.fences];
        const bool in_time = moment.thread == release.thread ? moment.fences < release.fences
                                                             : ordered_by_barrier(fence, release);
        if (in_time) return true;
    }
    // The last fence that the releasing thread made before the release.
    if (release.fences == 0 || moment.thread == release.thread) return false;
    const Point& fence = fences_of(release.block, release.thread)[release.fences - 1];
    return ordered_by_barrier(moment, fence);
}

// Says whether a point of the running block comes before what `thread` does now.
bool Tickets::reaches(const Clocks& clocks, const Point& point, const Thread& thread) const {
    return clocks.before({point.block, point.epoch, point.ticks, point.fences, point.thread}, thread);
}

// Says whether a fence lies between an atomic operation of the running block and what `thread` does now.
bool Tickets::acquired(const Clocks& clocks, const Acquisition& acquisition, const Thread& thread) const {
    const Point& atomic = acquisition.point;
    const std::vector<Point>& own = fences_of(block_, atomic.thread);
    if (atomic.fences < own.size() && reaches(clocks, own[atomic.fences], thread)) return true;
    if (thread.clock.fences == 0 || thread.number == atomic.thread) return false;
    return ordered_by_barrier(atomic, fences_of(block_, thread.number)[thread.clock.fences - 1]);
}

bool Tickets::before(const Clocks& clocks, const Moment& moment, bool atomic, uintptr_t address,
                     const Thread& thread) const {
    for (const Acquisition& acquisition : acquisitions_) {
        if (atomic && acquisition.address / sizeof(uint32_t) == address / sizeof(uint32_t) &&
            reaches(clocks, acquisition.point, thread)) {
            return true;
        }
        const auto found = acquisition.location->by_block.find(moment.block);
        if (found == acquisition.location->by_block.end()) continue;
        if (!acquired(clocks, acquisition, thread)) continue;
        for (const uint32_t number : found->second) {
            const bool seen = number < acquisition.seen;
            if (seen && released(moment, acquisition.location->releases[number])) return true;
        }
    }
    return false;
}

}  // namespace simt
