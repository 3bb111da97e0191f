// Copies of whole records within a pool. A thread has its bytes of every record, and copies them in the order of the
// list: so a block may be copied on, or written over, by a later copy.
#include "device.cuh"

constexpr int THREADS = 256;
// Accesses of 16 bytes that a thread has under way for a copy.
constexpr int DEPTH = 4;
constexpr u64 ACCESS = 16;

struct Piece {
    uint4 parts[DEPTH];
};

__device__ __forceinline__ void load(Piece& piece, const u8* from, u64 at, u64 end) {
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
        u64 place = at + i * THREADS * ACCESS;
        if (place < end) piece.parts[i] = *(const uint4*)(from + place);
    }
}

__device__ __forceinline__ void store(const Piece& piece, u8* to, u64 at, u64 end) {
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
        u64 place = at + i * THREADS * ACCESS;
        if (place < end) *(uint4*)(to + place) = piece.parts[i];
    }
}

// Of each copy: the block that is read, then the one that is written.
extern "C" __global__ void __launch_bounds__(THREADS, 3)
    copy_blocks(u8* pool, const uint2* copies, const u32* count, u64 record_bytes) {
    ptx::dependents_wait();
    ptx::dependents_launch();
    u32 wanted = *count;
    u64 tile = THREADS * DEPTH * ACCESS;
    for (u64 first = blockIdx.x * tile; first < record_bytes; first += gridDim.x * tile) {
        u64 at = first + threadIdx.x * ACCESS;
        for (u32 i = 0; i < wanted; i += 2) {
            uint2 one = copies[i];
            bool has_two = i + 1 < wanted;
            uint2 two = has_two ? copies[i + 1] : one;
            u64 end_of_two = has_two ? record_bytes : 0;
            Piece piece, next;
            load(piece, pool + one.x * record_bytes, at, record_bytes);
            // Two copies are under way at once, unless the second takes what the first brings.
            bool is_apart = two.x != one.y;
            if (is_apart) load(next, pool + two.x * record_bytes, at, end_of_two);
            store(piece, pool + one.y * record_bytes, at, record_bytes);
            if (!is_apart) load(next, pool + two.x * record_bytes, at, end_of_two);
            store(next, pool + two.y * record_bytes, at, end_of_two);
        }
    }
}
