// What the kernels of sampling share: the numbers, the order of tokens, and what lies in device memory.
//
// `engine::sampling::fixed` defines the numbers, and the tests compare each bit with it. Sums are sums of integers, so
// no order, grid or number of blocks changes a token.
#pragma once

#include "device.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / WARP;

// A row is cut into as many segments, whatever its length: one for each thread of the block that draws.
constexpr u32 SEGMENTS = THREADS;
// Blocks of a row, at most.
constexpr u32 PARTS_MAX = 16;
// Most probable tokens that can be reported.
constexpr u32 TOP_MAX = 20;
// Candidates of a cut that are listed; where there are more, one block looks through the row instead.
constexpr u32 LIST_MAX = 4096;

constexpr u32 WEIGHT_BITS = 39;
constexpr u32 FRACTION_BITS = 24;
constexpr u32 EXPONENT_ZERO = (WEIGHT_BITS + 1) << FRACTION_BITS;

// Tokens are put into bins by their distance from the maximum, 32 bins a halving.
constexpr u32 BIN_SHIFT = FRACTION_BITS - 5;
constexpr u32 BINS = EXPONENT_ZERO >> BIN_SHIFT;
// Behind the bins: tokens that are possible, but weigh nothing.
constexpr u32 WEIGHTLESS = BINS;

// What differences of logits are multiplied by at a temperature of one.
constexpr float REPORT_SCALE = 24204406.0f;

// Kinds of requests.
constexpr u32 GREEDY = 0;
constexpr u32 DRAW = 1;
constexpr u32 SCORE = 2;

// The share of a nucleus that is off, and the number of most probable tokens where nothing is reported.
constexpr u64 EVERY_SHARE = ~0ull;
constexpr u32 NO_REPORT = ~0u;

// What became of a request.
constexpr u32 DONE = 0;
constexpr u32 NO_MAXIMUM = 1;
constexpr u32 NOTHING_ALLOWED = 2;

// A mark of a token in a history: whether it was seen at all, and how often in the output.
constexpr u32 SEEN = 1u << 31;

struct Bias {
    u32 token;
    float bias;
};

// What the host asks for; `kernels/sampling.rs` has the same and says what each field means.
struct __align__(16) SampleRequest {
    const float* logits;
    float* adjusted;
    const u32* mask;
    const u32* counts;
    const Bias* biases;
    const u32* stops;
    u64 uniform;
    u64 nucleus;
    u64 least;
    u32 bias_count, stop_count;
    u32 kind;
    float scale;
    u32 top_k;
    u32 report;
    u32 token;
    float repetition, frequency, presence;
    u32 pending_first, pending_end;
    u64 unused;
};
static_assert(sizeof(SampleRequest) == 128, "as in sampling.rs");

struct __align__(16) SampleResult {
    u32 token;
    u32 status;
    u32 is_broken;
    float max;
    float logprob;
    u32 top_len;
    u32 unused[2];
    u32 top_tokens[TOP_MAX];
    float top_logprobs[TOP_MAX];
};
static_assert(sizeof(SampleResult) == 192, "as in sampling.rs");

// The most probable tokens that a block found, as keys: of the row as it is, of what the mask allows, of what biases,
// stop tokens and penalties leave.
struct __align__(16) Best {
    u64 all, allowed, adjusted;
    u64 is_broken;
};

// Where a cut lies. Tokens in bins before `first` are kept, those from bin `end` on are not, and between are the
// candidates.
struct Cut {
    u32 first, end;
    u32 is_listed;
    // Most probable candidates that are kept first; 0: all.
    u32 top_k;
    // What the kept candidates weigh at least; 0: nothing is cut by weight, or not before the sum of `top_k` is known.
    u64 mass;
};

// What is known of a row of weights.
struct __align__(16) JobState {
    // Of each bin.
    u32 counts[BINS + 4];
    u64 masses[BINS];
    // What a segment's tokens weigh that are kept for sure.
    u64 sums[SEGMENTS];
    // Keys of the candidates.
    u64 list[LIST_MAX];
    Cut cut;
    // What all tokens weigh.
    u64 total;
    u32 list_len;
    u32 weighed;
};

// A row is weighed for a draw, and as it is for a report.
constexpr u32 FOR_DRAW = 0;
constexpr u32 FOR_REPORT = 1;
constexpr u32 JOBS = 2;

struct __align__(16) SampleState {
    Best best[PARTS_MAX];
    JobState jobs[JOBS];
    u32 gathered;
    u32 unused[3];
};
static_assert(sizeof(SampleState) == 101008, "as in sampling.rs");

// Numbers

// How far a logit lies below the maximum, in units of 2^-24 halvings; what is no number is at the end.
__device__ __forceinline__ u32 exponent_of(float logit, float max, float scale) {
    constexpr float ZERO = (float)EXPONENT_ZERO;
    float scaled = (max - logit) * scale;
    scaled = scaled < ZERO ? scaled : ZERO;
    scaled = scaled > 0.0f ? scaled : 0.0f;
    return (u32)(int)scaled;
}

// 2 to the power of minus the exponent, in units of 2^-39, rounded down.
__device__ __forceinline__ u64 weight_of(u32 exponent) {
    u32 fraction = exponent << (32 - FRACTION_BITS);
    u32 sum = 493577u;
    sum = 5547538u - __umulhi(fraction, sum);
    sum = 41218952u - __umulhi(fraction, sum);
    sum = 238367376u - __umulhi(fraction, sum);
    sum = 1031763206u - __umulhi(fraction, sum);
    sum = 2977044447u - __umulhi(fraction, sum);
    u64 mantissa = (1ull << 32) - __umulhi(fraction, sum);
    return mantissa << (WEIGHT_BITS - 32) >> (exponent >> FRACTION_BITS);
}

// A share of a whole, in units of 2^-64, rounded up.
__device__ __forceinline__ u64 share_above(u64 whole, u64 share) {
    return __umul64hi(whole, share) + (whole * share != 0);
}

// The order "more probable first, ties by lower token" as numbers that rise. What is no number counts as minus
// infinity, and minus zero as zero.
__device__ __forceinline__ u64 key_of(float logit, u32 token) {
    float number = (logit == logit ? logit : -infinity()) + 0.0f;
    u32 bits = __float_as_uint(number);
    u32 falling = bits >> 31 == 0 ? ~(bits | 1u << 31) : bits;
    return (u64)falling << 32 | token;
}

__device__ __forceinline__ float logit_of(u64 key) {
    u32 falling = (u32)(key >> 32);
    return __uint_as_float(falling >> 31 == 0 ? ~(falling | 1u << 31) : falling);
}

// The key of no token.
__device__ __forceinline__ u64 no_key() { return key_of(-infinity(), ~0u); }

// Rows

// Four neighbours of a row.
struct Four {
    float v[4];
};

// Logits that nothing writes while a kernel reads them, of which a mask may allow some only.
struct Row {
    const float* logits;
    const u32* mask;
    u32 vocab;

    // The logits from a token on that is a multiple of four; minus infinity behind the last one.
    __device__ __forceinline__ Four unmasked(u32 token) const {
        Four four;
        if (token + 4 <= vocab && ((u64)logits & 15) == 0) {
            uint4 v = ptx::load_cached(logits + token);
            four.v[0] = __uint_as_float(v.x), four.v[1] = __uint_as_float(v.y);
            four.v[2] = __uint_as_float(v.z), four.v[3] = __uint_as_float(v.w);
        } else {
#pragma unroll
            for (u32 i = 0; i < 4; i++) four.v[i] = token + i < vocab ? logits[token + i] : -infinity();
        }
        return four;
    }

    // As unmasked; minus infinity where the mask does not allow the token.
    __device__ __forceinline__ Four at(u32 token) const {
        Four four = unmasked(token);
        return mask == nullptr ? four : allowed(four, token);
    }

    __device__ __forceinline__ Four allowed(Four four, u32 token) const {
        u32 bits = token < vocab ? mask[token / 32] >> token % 32 : 0;
#pragma unroll
        for (u32 i = 0; i < 4; i++) four.v[i] = bits >> i & 1 ? four.v[i] : -infinity();
        return four;
    }
};

// Calls `visit` with every fourth token from `begin` on, a step apart, and the four logits from there on. The next four
// are on their way meanwhile.
template <class Visit>
__device__ __forceinline__ void each_four(const Row& row, u32 begin, u32 end, u32 step, const Visit& visit) {
    Four next = row.at(begin);
    for (u32 token = begin; token < end; token += step) {
        Four four = next;
        next = row.at(token + step);
        visit(four, token);
    }
}

// Tokens, from a multiple of four on.
struct Range {
    u32 begin, end;
    __device__ __forceinline__ bool has(u32 token) const { return token >= begin && token < end; }
};

__device__ __forceinline__ u32 segment_len(u32 vocab) { return ((vocab + SEGMENTS - 1) / SEGMENTS + 3) / 4 * 4; }

// The tokens of so many segments.
__device__ __forceinline__ Range tokens_of(u32 first_segment, u32 segments, u32 vocab) {
    u32 len = segment_len(vocab);
    return Range{min(first_segment * len, vocab), min((first_segment + segments) * len, vocab)};
}

// The tokens of this block's part of the row.
__device__ __forceinline__ Range tokens_of_part(u32 vocab) {
    u32 segments = SEGMENTS / gridDim.x;
    return tokens_of(blockIdx.x * segments, segments, vocab);
}

// Blocks

template <class T>
__device__ __forceinline__ T sum_warp(T v) {
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) v += __shfl_xor_sync(ALL_LANES, v, distance);
    return v;
}

__device__ __forceinline__ u64 min_warp(u64 v) {
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        u64 other = __shfl_xor_sync(ALL_LANES, v, distance);
        v = other < v ? other : v;
    }
    return v;
}

// What the threads before this one have, and what all have.
struct Prefix {
    u64 before, total;
};

// Sums over the block. `partial` is of shared memory, and free again behind the next barrier.
__device__ __forceinline__ Prefix prefix_block(u64 own, u64* partial) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    u64 sum = own;
#pragma unroll
    for (int distance = 1; distance < WARP; distance *= 2) {
        u64 other = __shfl_up_sync(ALL_LANES, sum, distance);
        if (lane >= distance) sum += other;
    }
    if (lane == WARP - 1) partial[warp] = sum;
    __syncthreads();
    Prefix prefix = {sum - own, 0};
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
        if (i < warp) prefix.before += partial[i];
        prefix.total += partial[i];
    }
    return prefix;
}

// Whether this block is the last of so many to come here. Then it sees all that the others wrote before.
__device__ __forceinline__ bool comes_last(u32* ticket, u32 blocks, u32* shared) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *shared = atomicAdd(ticket, 1u) + 1 == blocks;
    __syncthreads();
    if (*shared) __threadfence();
    return *shared;
}

// Sums of 64 bits in shared memory as two words, since it adds only those of 32 bits at once.
__device__ __forceinline__ void add_words(u32* low, u32* high, u64 v) {
    u32 word = (u32)v;
    u32 before = atomicAdd(low, word);
    u32 rest = (u32)(v >> 32) + (before + word < word);
    if (rest != 0) atomicAdd(high, rest);
}

// Requests

static_assert(PARTS_MAX <= WARP, "a part has a lane");

__device__ __forceinline__ bool wants_report(const SampleRequest& request) { return request.report != NO_REPORT; }

// Whether it draws, with anything cut but by weight.
__device__ __forceinline__ bool has_cut(const SampleRequest& request, u32 vocab) {
    bool by_count = request.top_k > 0 && request.top_k < vocab;
    return request.kind == DRAW && (by_count || request.nucleus != EVERY_SHARE);
}

// Whether a job needs its tokens in bins.
__device__ __forceinline__ bool needs_bins(const SampleRequest& request, u32 job, u32 vocab) {
    return job == FOR_DRAW ? has_cut(request, vocab) : wants_report(request);
}

// A row to weigh.
struct Source {
    Row row;
    float max, scale;

    __device__ __forceinline__ u32 exponent(float logit) const { return exponent_of(logit, max, scale); }
};

// What the first kernel found of a sample.
struct Sample {
    u32 status;
    u32 is_broken;
    // The most probable token of what is drawn from.
    u64 best;
    // The largest logit of the row as it is.
    float max;
    Source sources[JOBS];
};

// Reads it; for the lanes of one warp, all of which get it.
__device__ __forceinline__ Sample read_sample(const SampleRequest& request, const SampleState& state, u32 vocab) {
    Best best = {no_key(), no_key(), no_key(), 0};
    if (threadIdx.x % WARP < gridDim.x) best = state.best[threadIdx.x % WARP];
    best.all = min_warp(best.all);
    best.allowed = min_warp(best.allowed);
    best.adjusted = min_warp(best.adjusted);
    Sample sample;
    sample.is_broken = __any_sync(ALL_LANES, best.is_broken != 0);
    sample.max = logit_of(best.all);
    // Where biases, stop tokens and penalties leave nothing, they are void.
    bool is_adjusted = request.adjusted != nullptr && logit_of(best.adjusted) > -infinity();
    Row row = {request.logits, nullptr, vocab};
    sample.sources[FOR_REPORT] = Source{row, sample.max, REPORT_SCALE};
    if (is_adjusted) {
        row.logits = request.adjusted;
    } else {
        row.mask = request.mask;
    }
    sample.best = is_adjusted ? best.adjusted : best.allowed;
    float max = logit_of(sample.best);
    sample.sources[FOR_DRAW] = Source{row, max, request.scale};
    sample.status = DONE;
    if (is_broken(sample.max)) {
        sample.status = NO_MAXIMUM;
    } else if (max == -infinity() && request.kind != SCORE) {
        sample.status = NOTHING_ALLOWED;
    }
    return sample;
}
