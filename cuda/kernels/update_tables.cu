// Changes of the block tables of slots. A warp takes a change.
#include "device.cuh"

constexpr int THREADS = 128;
constexpr int WARPS = THREADS / WARP;

// New entries of a table; the host has the same.
struct Change {
    u32 group;
    u32 slot;
    // The first entry that changes, and how many do.
    u32 first;
    u32 count;
    // The first of the new entries in the list of all.
    u32 from;
};

__device__ __forceinline__ bool is_same_table(const Change& one, const Change& other) {
    return one.group == other.group && one.slot == other.slot;
}

// Whether a later change has this entry too. Then that one writes it.
__device__ bool is_changed_later(const Change* changes, u32 index, u32 count, u32 entry) {
    for (u32 later = index + 1; later < count; later++) {
        const Change& other = changes[later];
        if (is_same_table(changes[index], other) && entry - other.first < other.count) return true;
    }
    return false;
}

// Tables are [groups][slots][blocks_max].
extern "C" __global__ void __launch_bounds__(THREADS, 8)
    update_tables(u32* tables, const Change* changes, const u32* count, const u32* entries, u32 slots,
                  u32 blocks_max) {
    ptx::dependents_wait();
    ptx::dependents_launch();
    u32 lane = threadIdx.x % WARP;
    u32 wanted = *count;
    for (u32 index = blockIdx.x * WARPS + threadIdx.x / WARP; index < wanted; index += gridDim.x * WARPS) {
        Change change = changes[index];
        bool is_followed = false;
        for (u32 later = index + 1 + lane; later < wanted; later += WARP) {
            is_followed |= is_same_table(change, changes[later]);
        }
        is_followed = __ballot_sync(ALL_LANES, is_followed) != 0;
        u32* table = tables + ((size_t)change.group * slots + change.slot) * blocks_max;
        for (u32 i = lane; i < change.count; i += WARP) {
            u32 entry = change.first + i;
            if (is_followed && is_changed_later(changes, index, wanted, entry)) continue;
            table[entry] = entries[change.from + i];
        }
    }
}
