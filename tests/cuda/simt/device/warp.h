// Barriers of a block, and operations of a warp: CUDA's functions over the collectives of libsimt.
#pragma once

#include "calls.h"

// Waits for all threads of the block. The place in the source finds threads that wait at different barriers.
inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    ::simt::barrier(0, 0, false, {file, line});
}

inline int __syncthreads_count(int p, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return static_cast<int>(::simt::barrier(0, 0, p != 0, {file, line}));
}

inline int __syncthreads_or(int p, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return ::simt::barrier(0, 0, p != 0, {file, line}) != 0;
}

inline int __syncthreads_and(int p, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return ::simt::barrier(0, 0, p == 0, {file, line}) == 0;
}

inline void __syncwarp(unsigned mask = ~0u) { ::simt::sync_warp(mask); }

inline unsigned __activemask() { return ::simt::live_lanes(); }

namespace simt {

constexpr unsigned WARP_LANES = 32;

// Returns the value of one lane. A lane outside the mask has none.
template <class T>
T slot_value(const Slots& slots, unsigned lane) {
    T value;
    __builtin_memcpy(&value, slots.bytes[lane], sizeof(T));
    return value;
}

// Exchanges a value within the mask, and returns that of the lane `source`.
template <class T>
T shuffle(unsigned mask, T value, unsigned source, const char* what) {
    static_assert(sizeof(T) <= SLOT_BYTES, "a shuffle moves at most 32 bytes");
    check_source_lane(mask, source, what);
    return slot_value<T>(collective(mask, &value, sizeof(T), what), source);
}

// Folds the values of all lanes of the mask in rising order of lanes.
template <class T, class Combine>
T reduce(unsigned mask, T value, const char* what, Combine combine) {
    const Slots& slots = collective(mask, &value, sizeof(T), what);
    unsigned lane = static_cast<unsigned>(__builtin_ctz(mask));
    T total = slot_value<T>(slots, lane);
    for (lane++; lane < WARP_LANES; lane++) {
        if (mask >> lane & 1) total = combine(total, slot_value<T>(slots, lane));
    }
    return total;
}

}  // namespace simt

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    const unsigned within = static_cast<unsigned>(width) - 1;
    const unsigned lane = ::simt::lane_index();
    return ::simt::shuffle(mask, value, (lane & ~within) | (static_cast<unsigned>(source) & within), "__shfl_sync");
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32) {
    const unsigned within = static_cast<unsigned>(width) - 1;
    const unsigned lane = ::simt::lane_index();
    unsigned source = lane ^ static_cast<unsigned>(other);
    if ((source & ~within) > (lane & ~within)) source = lane;
    return ::simt::shuffle(mask, value, source, "__shfl_xor_sync");
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const unsigned within = static_cast<unsigned>(width) - 1;
    const unsigned lane = ::simt::lane_index();
    const bool stays = (lane & within) + delta <= within;
    return ::simt::shuffle(mask, value, stays ? lane + delta : lane, "__shfl_down_sync");
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const unsigned within = static_cast<unsigned>(width) - 1;
    const unsigned lane = ::simt::lane_index();
    const bool stays = (lane & within) >= delta;
    return ::simt::shuffle(mask, value, stays ? lane - delta : lane, "__shfl_up_sync");
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
    const unsigned own = predicate != 0 ? 1u << ::simt::lane_index() : 0;
    return ::simt::reduce(mask, own, "__ballot_sync", [](unsigned a, unsigned b) { return a | b; });
}

inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }

inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

// Returns the lanes of the mask that gave the same value.
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
    const ::simt::Slots& slots = ::simt::collective(mask, &value, sizeof(T), "__match_any_sync");
    unsigned equal = 0;
    for (unsigned lane = 0; lane < ::simt::WARP_LANES; lane++) {
        if ((mask >> lane & 1) && ::simt::slot_value<T>(slots, lane) == value) equal |= 1u << lane;
    }
    return equal;
}

template <class T>
T __reduce_add_sync(unsigned mask, T value) {
    return ::simt::reduce(mask, value, "__reduce_add_sync", [](T a, T b) { return static_cast<T>(a + b); });
}

template <class T>
T __reduce_min_sync(unsigned mask, T value) {
    return ::simt::reduce(mask, value, "__reduce_min_sync", [](T a, T b) { return b < a ? b : a; });
}

template <class T>
T __reduce_max_sync(unsigned mask, T value) {
    return ::simt::reduce(mask, value, "__reduce_max_sync", [](T a, T b) { return a < b ? b : a; });
}

inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
    return ::simt::reduce(mask, value, "__reduce_or_sync", [](unsigned a, unsigned b) { return a | b; });
}

inline unsigned __reduce_and_sync(unsigned mask, unsigned value) {
    return ::simt::reduce(mask, value, "__reduce_and_sync", [](unsigned a, unsigned b) { return a & b; });
}

inline unsigned __reduce_xor_sync(unsigned mask, unsigned value) {
    return ::simt::reduce(mask, value, "__reduce_xor_sync", [](unsigned a, unsigned b) { return a ^ b; });
}
