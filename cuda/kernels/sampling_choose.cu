// The last kernel of sampling: lists the candidates of cuts, draws, and reports log probabilities.
//
// Grid: blocks of a row, requests, jobs. Blocks list candidates and weigh segments; the last block of a request makes
// its result of them.
#include "sampling.cuh"

constexpr u32 DIGIT_BITS = 8;
constexpr u32 DIGITS = 1 << DIGIT_BITS;
static_assert(DIGITS == THREADS, "a digit has a thread");
constexpr u32 KEY_BITS = 64;

// Exactly ln 2, as f64 has it.
constexpr double LN_2 = 0.693147180559945309417232121458;

// What the last block works with.
struct Shared {
    Sample sample;
    u64 list[LIST_MAX];
    u64 sums[SEGMENTS];
    u32 low[DIGITS], high[DIGITS];
    u64 partial[WARPS];
    u64 before;
    u32 found;
    u32 is_last;
    u32 top_len;
    u64 top[TOP_MAX];
};

// Candidates: the list, or what the row has in the bins of the cut.
struct Candidates {
    const Source& source;
    const Cut& cut;
    const u64* list;
    u32 list_len;

    // Calls `visit` with the key and the exponent of each that falls to this thread.
    template <class Visit>
    __device__ __forceinline__ void each(const Visit& visit) const {
        if (cut.is_listed) {
            for (u32 i = threadIdx.x; i < list_len; i += THREADS) {
                visit(list[i], source.exponent(logit_of(list[i])));
            }
            return;
        }
        each_four(source.row, threadIdx.x * 4, source.row.vocab, THREADS * 4, [&](const Four& four, u32 token) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 exponent = source.exponent(four.v[i]), bin = exponent >> BIN_SHIFT;
                bool is_one = four.v[i] > -infinity() && bin >= cut.first && bin < cut.end;
                if (is_one) visit(key_of(four.v[i], token + i), exponent);
            }
        });
    }
};

// Returns the first key, in order, up to which the candidates are as many as `goal`, or weigh as much. All together do.
// Finds it digit by digit: each round counts the candidates whose digits before are right.
__device__ __noinline__ u64 select(const Candidates& candidates, bool by_mass, u64 goal, Shared& shared) {
    u64 prefix = 0;
    for (int shift = KEY_BITS - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        shared.low[threadIdx.x] = shared.high[threadIdx.x] = 0;
        __syncthreads();
        candidates.each([&](u64 key, u32 exponent) {
            // Two shifts, since one by all bits of a word has no meaning.
            if (key >> shift >> DIGIT_BITS != prefix) return;
            u32 digit = key >> shift & (DIGITS - 1);
            add_words(&shared.low[digit], &shared.high[digit], by_mass ? weight_of(exponent) : 1);
        });
        __syncthreads();
        u64 own = (u64)shared.high[threadIdx.x] << 32 | shared.low[threadIdx.x];
        u64 before = prefix_block(own, shared.partial).before;
        if (before < goal && before + own >= goal) shared.found = threadIdx.x, shared.before = before;
        __syncthreads();
        prefix = prefix << DIGIT_BITS | shared.found;
        goal -= shared.before;
    }
    return prefix;
}

// What the candidates up to a key weigh.
__device__ __forceinline__ u64 weigh(const Candidates& candidates, u64 last, Shared& shared) {
    u64 sum = 0;
    candidates.each([&](u64 key, u32 exponent) { sum += key <= last ? weight_of(exponent) : 0; });
    __syncthreads();
    return prefix_block(sum, shared.partial).total;
}

// What a warp's lanes together find that the kept tokens of a segment weigh.
template <class Weight>
__device__ __forceinline__ u64 weigh_segment(const Source& source, u32 segment, const Weight& weight) {
    Range range = tokens_of(segment, 1, source.row.vocab);
    u64 sum = 0;
    each_four(source.row, range.begin + threadIdx.x % WARP * 4, range.end, WARP * 4, [&](const Four& four, u32 token) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) sum += weight(four.v[i], token + i);
    });
    return sum_warp(sum);
}

// Lists the candidates of this block's part, and weighs what is kept for sure in each of its segments.
__device__ __forceinline__ void gather(const Source source, const Cut& cut, u64 least, JobState* state) {
    u32 segments = SEGMENTS / gridDim.x, first = blockIdx.x * segments;
    for (u32 segment = first + threadIdx.x / WARP; segment < first + segments; segment += WARPS) {
        u64 sum = weigh_segment(source, segment, [&](float logit, u32 token) -> u64 {
            u32 exponent = source.exponent(logit), bin = exponent >> BIN_SHIFT;
            if (bin >= cut.first) {
                if (bin < cut.end && logit > -infinity()) {
                    state->list[atomicAdd(&state->list_len, 1u)] = key_of(logit, token);
                }
                return 0;
            }
            u64 weight = weight_of(exponent);
            return weight >= least ? weight : 0;
        });
        if (threadIdx.x % WARP == 0) state->sums[segment] = sum;
    }
}

// Takes over the list of a job.
__device__ __forceinline__ Candidates read_list(const Source& source, const Cut& cut, const JobState* state,
                                                Shared& shared) {
    u32 len = cut.is_listed ? __ldcg(&state->list_len) : 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < len; i += THREADS) shared.list[i] = __ldcg(&state->list[i]);
    __syncthreads();
    return Candidates{source, cut, shared.list, len};
}

// The last key that a cut keeps.
__device__ __forceinline__ u64 last_kept(const SampleRequest& request, const Candidates& candidates, Shared& shared) {
    const Cut& cut = candidates.cut;
    u64 last = ~0ull;
    if (cut.top_k > 0) last = select(candidates, false, cut.top_k, shared);
    u64 mass = cut.mass;
    if (cut.top_k > 0 && request.nucleus != EVERY_SHARE) {
        mass = max(share_above(weigh(candidates, last, shared), request.nucleus), 1ull);
    }
    if (mass > 0) last = select(candidates, true, mass, shared);
    return last;
}

// The weight of a token that is kept, or zero.
__device__ __forceinline__ u64 kept_weight(const Source& source, float logit, u32 token, u64 last, u64 least) {
    u64 weight = weight_of(source.exponent(logit));
    return weight >= least && key_of(logit, token) <= last ? weight : 0;
}

// Fills `sums` with what the kept tokens of each segment weigh.
__device__ __forceinline__ void weigh_segments(const Candidates& candidates, const JobState* state, u64 last, u64 least,
                                               Shared& shared) {
    const Source& source = candidates.source;
    if (!candidates.cut.is_listed) {
        for (u32 segment = threadIdx.x / WARP; segment < SEGMENTS; segment += WARPS) {
            u64 sum = weigh_segment(source, segment, [&](float logit, u32 token) {
                return kept_weight(source, logit, token, last, least);
            });
            if (threadIdx.x % WARP == 0) shared.sums[segment] = sum;
        }
        __syncthreads();
        return;
    }
    shared.sums[threadIdx.x] = __ldcg(&state->sums[threadIdx.x]);
    __syncthreads();
    u32 len = segment_len(source.row.vocab);
    candidates.each([&](u64 key, u32 exponent) {
        u64 weight = weight_of(exponent);
        if (key <= last && weight >= least) atomicAdd(&shared.sums[(u32)key / len], weight);
    });
    __syncthreads();
}

// Returns the first token of a segment up to which the kept tokens weigh more than `left`.
__device__ __forceinline__ u32 find_token(const Source& source, u32 segment, u64 left, u64 last, u64 least,
                                          Shared& shared) {
    Range range = tokens_of(segment, 1, source.row.vocab);
    for (u32 first = range.begin; first < range.end; first += THREADS * 4) {
        u32 token = first + threadIdx.x * 4;
        u64 weights[4] = {0, 0, 0, 0};
        if (token < range.end) {
            Four four = source.row.at(token);
#pragma unroll
            for (u32 i = 0; i < 4; i++) weights[i] = kept_weight(source, four.v[i], token + i, last, least);
        }
        Prefix sum = prefix_block(weights[0] + weights[1] + weights[2] + weights[3], shared.partial);
        u64 before = sum.before;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (before <= left && before + weights[i] > left) shared.found = token + i;
            before += weights[i];
        }
        __syncthreads();
        if (sum.total > left) break;
        left -= sum.total;
    }
    return shared.found;
}

// The cut of a draw; nothing is cut where the kernel before had no work.
__device__ __forceinline__ Cut cut_of(const SampleRequest& request, u32 job, const JobState& state, u32 vocab) {
    return needs_bins(request, job, vocab) ? state.cut : Cut{BINS, BINS, true, 0, 0};
}

// Draws a token.
__device__ __forceinline__ u32 draw(const SampleRequest& request, const JobState* state, u32 vocab,
                                    Shared& shared) {
    const Source& source = shared.sample.sources[FOR_DRAW];
    Cut cut = cut_of(request, FOR_DRAW, *state, vocab);
    Candidates candidates = read_list(source, cut, state, shared);
    u64 last = last_kept(request, candidates, shared);
    __syncthreads();
    weigh_segments(candidates, state, last, request.least, shared);
    u64 own = shared.sums[threadIdx.x];
    Prefix sum = prefix_block(own, shared.partial);
    u64 left = __umul64hi(sum.total, request.uniform);
    if (sum.before <= left && sum.before + own > left) shared.found = threadIdx.x, shared.before = sum.before;
    __syncthreads();
    u32 segment = shared.found;
    left -= shared.before;
    __syncthreads();
    return find_token(source, segment, left, last, request.least, shared);
}

// The natural logarithm of a sum of weights over the weight of the most probable token.
__device__ __forceinline__ double logarithm(u64 total) {
    constexpr u32 BITS = 40;
    u32 whole = 63 - __clzll(total);
    u64 log = whole - WEIGHT_BITS;
    // In 1 .. 2, in units of 2^-63.
    u64 number = total << (63 - whole);
    for (u32 i = 0; i < BITS; i++) {
        // In units of 2^-62.
        u64 square = __umul64hi(number, number);
        u64 doubled = square >> 63;
        number = square << (1 - doubled);
        log = log << 1 | doubled;
    }
    return (double)log / (double)(1ull << BITS) * LN_2;
}

// Reports the log probabilities of a token and of the most probable ones.
__device__ __forceinline__ void report(const SampleRequest& request, const JobState* state, u32 token,
                                       SampleResult* result, Shared& shared) {
    const Source& source = shared.sample.sources[FOR_REPORT];
    Cut cut = state->cut;
    double max = source.max, log_total = logarithm(state->total);
    auto logprob = [&](float logit) { return (float)((double)logit - max - log_total); };
    if (threadIdx.x == 0) {
        float own = token < source.row.vocab ? source.row.logits[token] : -infinity();
        result->logprob = logprob(logit_of(key_of(own, token)));
        shared.top_len = 0;
    }
    if (cut.top_k == 0) return;
    Candidates candidates = read_list(source, cut, state, shared);
    u64 last = select(candidates, false, cut.top_k, shared);
    candidates.each([&](u64 key, u32) {
        if (key <= last) shared.top[atomicAdd(&shared.top_len, 1u)] = key;
    });
    __syncthreads();
    u32 len = shared.top_len;
    if (threadIdx.x == 0) result->top_len = len;
    if (threadIdx.x >= len) return;
    u64 own = shared.top[threadIdx.x];
    u32 place = 0;
    for (u32 i = 0; i < len; i++) place += shared.top[i] < own;
    result->top_tokens[place] = (u32)own;
    result->top_logprobs[place] = logprob(logit_of(own));
}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    sample_choose(const SampleRequest* requests, const u32* count, SampleState* states, SampleResult* results,
                  u32* sampled, u32 vocab) {
    __shared__ Shared shared;
    ptx::dependents_wait();
    ptx::dependents_launch();
    if (blockIdx.y >= *count) return;
    const SampleRequest request = requests[blockIdx.y];
    SampleState* state = &states[blockIdx.y];
    if (threadIdx.x < WARP) {
        Sample found = read_sample(request, *state, vocab);
        if (threadIdx.x == 0) shared.sample = found;
    }
    __syncthreads();
    const Sample& sample = shared.sample;
    bool is_done = sample.status == DONE;
    bool draws = is_done && request.kind == DRAW;
    bool lists_top = is_done && wants_report(request) && request.report > 0;
    u32 job = blockIdx.z;
    if (job == FOR_DRAW ? draws : lists_top) {
        JobState* of_job = &state->jobs[job];
        Cut cut = cut_of(request, job, *of_job, vocab);
        if (cut.is_listed) gather(sample.sources[job], cut, request.least, of_job);
    } else if (draws || lists_top || blockIdx.x > 0 || job > 0) {
        // Where no job has work, one block stays for the result.
        return;
    }
    u32 blocks = (draws + lists_top) * gridDim.x;
    if (!comes_last(&state->gathered, max(blocks, 1u), &shared.is_last)) return;

    SampleResult* result = &results[blockIdx.y];
    u32 token = request.kind == SCORE ? request.token : is_done ? (u32)sample.best : 0;
    if (draws) token = draw(request, &state->jobs[FOR_DRAW], vocab, shared);
    if (threadIdx.x == 0) result->top_len = 0;
    if (is_done && wants_report(request)) report(request, &state->jobs[FOR_REPORT], token, result, shared);
    if (threadIdx.x != 0) return;
    if (request.kind != SCORE) sampled[blockIdx.y] = token;
    result->token = token;
    result->status = sample.status;
    result->is_broken = sample.is_broken;
    result->max = sample.max;
}
