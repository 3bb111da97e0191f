// Ranges of a pool to a frame, one behind the other, and back; encoded, and summed up, if that is wanted. A warp takes
// a range. There are few blocks, so that a step beside them hardly notices.
#include "checksum.cuh"
#include "encoding.cuh"

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / WARP;
// Bytes that a warp reads ahead, in stages; a stage is whole rounds of the checksum.
constexpr u32 STAGE = 512;
constexpr u32 DEPTH = 4;
constexpr u32 RING = STAGE * DEPTH;
constexpr u32 ACCESS = 16;
// Numbers of an access, and of a warp's accesses.
constexpr u32 STEP = 8;
constexpr u32 SWEEP = WARP * STEP;

// What a checksum is of; the host has the same numbers.
constexpr u32 SUM_OF_FRAME = 1;
constexpr u32 SUM_OF_RANGES = 2;

// Bytes of a pool, and where they lie in a frame; the host has the same.
struct Range {
    u64 at;
    u64 framed_at;
    u32 bytes;
    u32 framed_bytes;
};

// Numbers that are encoded by themselves, in groups that share a scale: at most as many groups as a warp has lanes.
struct Section {
    u32 numbers;
    u32 group;

    __device__ u32 groups() const { return numbers == 0 ? 0 : (numbers + group - 1) / group; }
    __device__ u32 scale_bytes() const { return groups() * 4; }
    __device__ u32 stored_bytes() const { return scale_bytes() + numbers; }
    __device__ u32 numbers_of(u32 of) const { return min(group, numbers - of * group); }
};

// The smallest piece that can be encoded by itself.
struct Parts {
    Section sections[2];

    __device__ u32 bytes() const { return (sections[0].numbers + sections[1].numbers) * 2; }
};

__device__ __forceinline__ u32 lane_of() { return threadIdx.x % WARP; }

// Begins to read bytes into shared memory, where the last word is filled up with zeros.
__device__ __forceinline__ void read_stage(u8* stage, const u8* from, u32 bytes) {
    u32 whole = (u64)from % ACCESS == 0 ? bytes / ACCESS * ACCESS : 0;
    for (u32 at = lane_of() * ACCESS; at < whole; at += WARP * ACCESS) {
        ptx::copy_async16(ptx::shared(stage + at), from + at, true);
    }
    for (u32 at = whole + lane_of(); at < (bytes + 3) / 4 * 4; at += WARP) stage[at] = at < bytes ? from[at] : 0;
    ptx::copy_commit();
}

// Writes bytes in the widest accesses that the address allows.
__device__ __forceinline__ void write_stage(u8* to, const u8* stage, u32 bytes) {
    u32 whole = (u64)to % ACCESS == 0 ? bytes / ACCESS * ACCESS : 0;
    u32 words = (u64)to % 4 == 0 ? bytes / 4 * 4 : 0;
    for (u32 at = lane_of() * ACCESS; at < whole; at += WARP * ACCESS) *(uint4*)(to + at) = *(const uint4*)(stage + at);
    for (u32 at = whole + lane_of() * 4; at < words; at += WARP * 4) *(u32*)(to + at) = *(const u32*)(stage + at);
    for (u32 at = words + lane_of(); at < bytes; at += WARP) to[at] = stage[at];
}

// Copies bytes, and sums up what was copied. `to`: null where they are summed up alone. `ring`: of the warp.
__device__ __forceinline__ Checksum copy_bytes(u8* ring, u8* to, const u8* from, u32 bytes, bool sums) {
    Checksum checksum;
    u32 stages = (bytes + STAGE - 1) / STAGE;
    // Behind the last stage these are empty.
    auto begin = [&](u32 stage) {
        u32 at = min(stage * STAGE, bytes);
        read_stage(ring + stage % DEPTH * STAGE, from + at, min(STAGE, bytes - at));
    };
    for (u32 stage = 0; stage < DEPTH - 1; stage++) begin(stage);
    for (u32 stage = 0; stage < stages; stage++) {
        begin(stage + DEPTH - 1);
        ptx::copy_wait<DEPTH - 1>();
        __syncwarp();
        const u8* own = ring + stage % DEPTH * STAGE;
        u32 own_bytes = min(STAGE, bytes - stage * STAGE);
        if (to != nullptr) write_stage(to + stage * STAGE, own, own_bytes);
        if (sums) checksum.add((const u32*)own, own_bytes);
        __syncwarp();
    }
    return checksum;
}

// What a warp appends to a frame: it lies in the warp's ring until it is a stage.
struct Appended {
    u8* ring;
    u8* to;
    bool sums;
    u32 bytes;
    u32 written;
    Checksum checksum;

    __device__ Appended(u8* ring, u8* to, bool sums) : ring(ring), to(to), sums(sums), bytes(0), written(0) {}

    // Puts a word so many bytes behind the end.
    __device__ void put(u32 behind, u32 word) { *(u32*)(ring + (bytes + behind) % RING) = word; }

    // Takes the words that were put as appended: at most a stage.
    __device__ void append(u32 count) {
        bytes += count;
        if (bytes - written >= STAGE) write(STAGE);
    }

    __device__ void write(u32 count) {
        __syncwarp();
        const u8* own = ring + written % RING;
        write_stage(to + written, own, count);
        if (sums) checksum.add((const u32*)own, count);
        written += count;
        __syncwarp();
    }

    __device__ void end() {
        if (bytes > written) write(bytes - written);
    }
};

__device__ __forceinline__ u32 largest_of_warp(u32 v) {
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) v = max(v, __shfl_xor_sync(ALL_LANES, v, distance));
    return v;
}

// Returns the largest magnitude of two numbers.
__device__ __forceinline__ u32 largest_of_pair(u32 pair) { return max(pair & 0x7fff, pair >> 16 & 0x7fff); }

// Returns the largest magnitude that this lane reads of a group, or 0.
__device__ __forceinline__ u32 largest_of_lane(const bf16* numbers, Section section, u32 group) {
    u32 largest = 0;
    u32 count = group < section.groups() ? section.numbers_of(group) : 0;
#pragma unroll 2
    for (u32 at = lane_of() * STEP; at < count; at += SWEEP) {
        uint4 own = *(const uint4*)(numbers + group * section.group + at);
        u32 pairs = max(max(largest_of_pair(own.x), largest_of_pair(own.y)),
                        max(largest_of_pair(own.z), largest_of_pair(own.w)));
        largest = max(largest, pairs);
    }
    return largest;
}

// Returns the scale of the group that has the number of this lane.
template <class Code>
__device__ __forceinline__ float scale_of_lane(const bf16* numbers, Section section) {
    // So many groups are read at once.
    constexpr u32 TOGETHER = 4;
    u32 own = 0;
    for (u32 first = 0; first < section.groups(); first += TOGETHER) {
        u32 largest[TOGETHER];
#pragma unroll
        for (u32 i = 0; i < TOGETHER; i++) largest[i] = largest_of_lane(numbers, section, first + i);
#pragma unroll
        for (u32 i = 0; i < TOGETHER; i++) {
            u32 of_group = largest_of_warp(largest[i]);
            if (lane_of() == first + i) own = of_group;
        }
    }
    return scale_of<Code>(own);
}

// Appends the scales of a section, then its codes. Its numbers are read twice, the second time from a cache; where
// somebody writes them meanwhile they arrive torn.
template <class Code>
__device__ __forceinline__ void encode_section(Appended& to, const bf16* numbers, Section section) {
    float own_scale = scale_of_lane<Code>(numbers, section);
    if (lane_of() < section.groups()) to.put(lane_of() * 4, __float_as_uint(own_scale));
    to.append(section.scale_bytes());
    for (u32 group = 0; group < section.groups(); group++) {
        float scale = __shfl_sync(ALL_LANES, own_scale, group);
        float inverse = inverse_of(scale);
        u32 count = section.numbers_of(group);
        for (u32 sweep = 0; sweep < count; sweep += SWEEP) {
            u32 at = lane_of() * STEP;
            if (sweep + at < count) {
                uint4 own = *(const uint4*)(numbers + group * section.group + sweep + at);
                u32 first = encode_pair<Code>(own.x, scale, inverse) | encode_pair<Code>(own.y, scale, inverse) << 16;
                u32 second = encode_pair<Code>(own.z, scale, inverse) | encode_pair<Code>(own.w, scale, inverse) << 16;
                to.put(at, first);
                to.put(at + 4, second);
            }
            to.append(min(SWEEP, count - sweep));
        }
    }
}

template <class Code>
__device__ __forceinline__ Checksum encode_bytes(u8* ring, u8* to, const u8* from, u32 bytes, Parts parts, bool sums) {
    Appended appended(ring, to, sums);
    for (u32 part = 0; part < bytes; part += parts.bytes()) {
        const bf16* numbers = (const bf16*)(from + part);
        encode_section<Code>(appended, numbers, parts.sections[0]);
        encode_section<Code>(appended, numbers + parts.sections[0].numbers, parts.sections[1]);
    }
    appended.end();
    return appended.checksum;
}

template <class Code>
__device__ __forceinline__ void decode_section(bf16* numbers, const u8* stored, Section section) {
    const u8* codes = stored + section.scale_bytes();
    for (u32 group = 0; group < section.groups(); group++) {
        float scale = *(const float*)(stored + group * 4);
        u32 count = section.numbers_of(group);
#pragma unroll 4
        for (u32 at = lane_of() * STEP; at < count; at += SWEEP) {
            u32 number = group * section.group + at;
            u32 first = *(const u32*)(codes + number), second = *(const u32*)(codes + number + 4);
            uint4 own = {decode_pair<Code>(first, scale), decode_pair<Code>(first >> 16, scale),
                         decode_pair<Code>(second, scale), decode_pair<Code>(second >> 16, scale)};
            *(uint4*)(numbers + number) = own;
        }
    }
}

template <class Code>
__device__ __forceinline__ void decode_bytes(u8* to, const u8* from, u32 bytes, Parts parts) {
    u32 stored = parts.sections[0].stored_bytes() + parts.sections[1].stored_bytes();
    for (u32 part = 0, at = 0; part < bytes; part += parts.bytes(), at += stored) {
        bf16* numbers = (bf16*)(to + part);
        decode_section<Code>(numbers, from + at, parts.sections[0]);
        numbers += parts.sections[0].numbers;
        decode_section<Code>(numbers, from + at + parts.sections[0].stored_bytes(), parts.sections[1]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gather_ranges(const u8* pool, u8* frame, const Range* ranges, u64* sums, u32 count, u32 encoding, u32 numbers,
                  u32 group, u32 more_numbers, u32 more_group) {
    __shared__ uint4 rings[WARPS][RING / ACCESS];
    u8* ring = (u8*)rings[threadIdx.x / WARP];
    Parts parts = {{{numbers, group}, {more_numbers, more_group}}};
    for (u32 i = blockIdx.x * WARPS + threadIdx.x / WARP; i < count; i += gridDim.x * WARPS) {
        Range range = ranges[i];
        const u8* from = pool + range.at;
        u8* to = frame + range.framed_at;
        Checksum checksum;
        if (encoding == INT8) {
            checksum = encode_bytes<Int8Code>(ring, to, from, range.bytes, parts, sums != nullptr);
        } else if (encoding == FP8) {
            checksum = encode_bytes<Fp8Code>(ring, to, from, range.bytes, parts, sums != nullptr);
        } else {
            checksum = copy_bytes(ring, to, from, range.bytes, sums != nullptr);
        }
        if (sums == nullptr) continue;
        u64 sum = checksum.end((u32*)ring);
        if (lane_of() == 0) sums[i] = sum;
    }
}

// Sums up what a frame has.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sum_ranges(const u8* frame, const Range* ranges, u64* sums, u32 count) {
    __shared__ uint4 rings[WARPS][RING / ACCESS];
    u8* ring = (u8*)rings[threadIdx.x / WARP];
    for (u32 i = blockIdx.x * WARPS + threadIdx.x / WARP; i < count; i += gridDim.x * WARPS) {
        Range range = ranges[i];
        Checksum checksum = copy_bytes(ring, nullptr, frame + range.framed_at, range.framed_bytes, true);
        u64 sum = checksum.end((u32*)ring);
        if (lane_of() == 0) sums[i] = sum;
    }
}

// Whether what was summed up is what was sent.
__device__ __forceinline__ bool is_expected(const u64* sums, u32 count, u64 expected, u32 sum_of) {
    if (sum_of == SUM_OF_FRAME) return sums[0] == expected;
    if (sum_of != SUM_OF_RANGES) return true;
    u64 sum = 0;
    for (u32 i = 0; i < count; i++) sum = fold_sum(sum, sums[i]);
    return sum == expected;
}

// Writes nothing where the sums are not as expected, and says so.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    scatter_ranges(const u8* frame, u8* pool, const Range* ranges, const u64* sums, u32* refused, u64 expected,
                   u32 sum_of, u32 count, u32 encoding, u32 numbers, u32 group, u32 more_numbers, u32 more_group) {
    __shared__ uint4 rings[WARPS][RING / ACCESS];
    __shared__ bool is_sound;
    if (threadIdx.x == 0) {
        is_sound = is_expected(sums, count, expected, sum_of);
        // Each block finds out by itself.
        if (!is_sound) atomicOr(refused, 1u);
    }
    __syncthreads();
    if (!is_sound) return;
    Parts parts = {{{numbers, group}, {more_numbers, more_group}}};
    for (u32 i = blockIdx.x * WARPS + threadIdx.x / WARP; i < count; i += gridDim.x * WARPS) {
        Range range = ranges[i];
        const u8* from = frame + range.framed_at;
        u8* to = pool + range.at;
        if (encoding == INT8) decode_bytes<Int8Code>(to, from, range.bytes, parts);
        else if (encoding == FP8) decode_bytes<Fp8Code>(to, from, range.bytes, parts);
        else copy_bytes((u8*)rings[threadIdx.x / WARP], to, from, range.bytes, false);
    }
}
