// Device memory for the check program: the table of allocations that checked modules are held to.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/simt_runtime.h"

namespace check {

// Registers the table with libsimt.
void use_allocation_table();

void* allocate(size_t bytes);
void release(void* memory);

// An array in device memory.
template <class T>
class Array {
   public:
    explicit Array(size_t count) : data_(static_cast<T*>(allocate(count * sizeof(T)))), count_(count) {}
    explicit Array(const std::vector<T>& numbers) : Array(numbers.size()) {
        for (size_t i = 0; i < count_; i++) data_[i] = numbers[i];
    }
    ~Array() { release(data_); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    T* data() const { return data_; }
    size_t size() const { return count_; }
    T& operator[](size_t i) const { return data_[i]; }
    simt::Interval interval() const {
        const uintptr_t begin = reinterpret_cast<uintptr_t>(data_);
        return {begin, begin + count_ * sizeof(T)};
    }

   private:
    T* data_;
    size_t count_;
};

}  // namespace check
