// The checksum of kv-memory, made by a warp: each lane has two of its 64 lanes. checksum.rs there says what it is.
#pragma once

#include "device.cuh"

constexpr u32 SUM_LANES = 2 * WARP;
// Bytes of a round, which gives each lane of the sum a word. What is added but the last is whole rounds.
constexpr u32 SUM_ROUND = SUM_LANES * 4;
constexpr u32 SUM_FACTOR = 0x9e3779b1u;
constexpr u64 SUM_FOLD = 0x9fb21c651e98df25ull;

// Folds a part into a sum; also how the sums of ranges become one.
__device__ __forceinline__ u64 fold_sum(u64 sum, u64 part) {
    u64 product = (sum ^ part) * SUM_FOLD;
    return product ^ product >> 29;
}

__device__ __forceinline__ u32 scramble(u32 lane, u32 word) {
    u32 product = (lane + word) * SUM_FACTOR;
    return product ^ product >> 15;
}

// A checksum that a warp makes. All its lanes do the same.
struct Checksum {
    u32 low_lane;
    u32 high_lane;
    u64 bytes;

    __device__ Checksum() : bytes(0) {
        low_lane = threadIdx.x % WARP + 1;
        high_lane = low_lane + WARP;
    }

    // Adds words in shared memory; behind `added` bytes the last word is filled up with zeros.
    __device__ void add(const u32* words, u32 added) {
        bytes += added;
        u32 count = (added + 3) / 4;
#pragma unroll 4
        for (u32 i = threadIdx.x % WARP; i < count; i += SUM_LANES) {
            low_lane = scramble(low_lane, words[i]);
            if (i + WARP < count) high_lane = scramble(high_lane, words[i + WARP]);
        }
    }

    // Returns the sum in the first lane. `words`: room for 64 in shared memory that nothing else uses.
    __device__ u64 end(u32* words) const {
        u32 lane = threadIdx.x % WARP;
        words[lane] = low_lane;
        words[lane + WARP] = high_lane;
        __syncwarp();
        u64 sum = bytes;
        if (lane == 0) {
            for (u32 i = 0; i < SUM_LANES; i++) sum = fold_sum(sum, words[i]);
        }
        __syncwarp();
        return sum;
    }
};
