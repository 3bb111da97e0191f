// Vector clocks: which operations of all streams happen before a given point.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace driver {

/// The host is component 0 of each clock; streams take the components after it.
constexpr size_t HOST_COMPONENT = 0;

/// A count of finished operations per component.
class Clock {
public:
    /// Returns how many operations of a component happen before this clock.
    uint64_t at(size_t component) const { return component < counts_.size() ? counts_[component] : 0; }

    /// Counts one more operation of a component.
    uint64_t advance(size_t component) {
        if (component >= counts_.size()) counts_.resize(component + 1);
        return ++counts_[component];
    }

    /// Adds all that happens before another clock.
    void join(const Clock& other) {
        if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
        for (size_t i = 0; i < other.counts_.size(); i++) counts_[i] = std::max(counts_[i], other.counts_[i]);
    }

private:
    std::vector<uint64_t> counts_;
};

}  // namespace driver
