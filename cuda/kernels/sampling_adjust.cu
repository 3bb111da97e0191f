// The first kernel of sampling: biases, masks, stop tokens and penalties, and the largest logits.
//
// Grid: blocks of a row, requests. Each block has its part of the row to itself, so what it writes only it reads here.
#include "sampling.cuh"

// Inputs of a span that are kept at hand; those beyond are looked up each time.
constexpr u32 PENDING_MAX = 64;

// The step's inputs, some of which the step before has sampled.
struct Inputs {
    const int* tokens;
    const u32* sampled;

    __device__ __forceinline__ u32 at(u32 row) const {
        int token = tokens[row];
        return token < 0 ? sampled[-1 - token] : (u32)token;
    }
};

// The largest number that a thread met, and its token: the first of those that tie.
struct Largest {
    float logit;
    u32 token;

    __device__ __forceinline__ void meet(const Four& four, u32 first) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (four.v[i] > logit) logit = four.v[i], token = first + i;
        }
    }
};

// A logit that parameters drove anywhere, in a range that can be compared.
__device__ __forceinline__ float sane(float logit) {
    return logit == logit ? fminf(logit, 3.40282347e38f) : -infinity();
}

// Clears what the kernels behind this one add to; each block a share.
__device__ __forceinline__ void clear(const SampleRequest& request, SampleState* state, u32 vocab) {
    constexpr u32 WORDS = (sizeof(u32) * (BINS + 4) + sizeof(u64) * BINS) / sizeof(uint4);
    for (u32 job = 0; job < JOBS; job++) {
        JobState* of_job = &state->jobs[job];
        if (blockIdx.x == 0 && threadIdx.x == 0) of_job->list_len = of_job->weighed = 0;
        if (!needs_bins(request, job, vocab)) continue;
        uint4* bins = (uint4*)of_job->counts;
        for (u32 i = blockIdx.x * THREADS + threadIdx.x; i < WORDS; i += gridDim.x * THREADS) {
            bins[i] = uint4{0, 0, 0, 0};
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) state->gathered = 0;
}

// Stores four neighbours, those behind the last token aside.
__device__ __forceinline__ void store(float* row, u32 token, const Four& four, u32 vocab) {
    if (token + 4 <= vocab) {
        *(float4*)(row + token) = float4{four.v[0], four.v[1], four.v[2], four.v[3]};
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (token + i < vocab) row[token + i] = four.v[i];
        }
    }
}

// Loads four neighbours that this kernel has written; minus infinity behind the last token.
__device__ __forceinline__ Four load(const float* row, u32 token, u32 vocab) {
    Four four;
    if (token + 4 <= vocab) {
        float4 v = *(const float4*)(row + token);
        four.v[0] = v.x, four.v[1] = v.y, four.v[2] = v.z, four.v[3] = v.w;
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; i++) four.v[i] = token + i < vocab ? row[token + i] : -infinity();
    }
    return four;
}

// Adds biases. They are sorted by token; where several have one token, the thread of the first adds all, in order.
__device__ __forceinline__ void add_biases(const SampleRequest& request, Range range) {
    const Bias* biases = request.biases;
    for (u32 i = threadIdx.x; i < request.bias_count; i += THREADS) {
        u32 token = biases[i].token;
        if (!range.has(token) || (i > 0 && biases[i - 1].token == token)) continue;
        float logit = request.adjusted[token];
        for (u32 j = i; j < request.bias_count && biases[j].token == token; j++) logit = sane(logit + biases[j].bias);
        request.adjusted[token] = logit;
    }
}

__device__ __forceinline__ void mask_stops(const SampleRequest& request, Range range) {
    for (u32 i = threadIdx.x; i < request.stop_count; i += THREADS) {
        u32 token = request.stops[i];
        if (range.has(token)) request.adjusted[token] = -infinity();
    }
}

// What a mark of the history makes of a logit.
__device__ __forceinline__ float penalized(const SampleRequest& request, float logit, u32 mark) {
    if (mark == 0) return logit;
    float penalty = request.repetition;
    if (penalty != 1.0f) logit = logit > 0.0f ? logit / penalty : logit * penalty;
    u32 count = mark & ~SEEN;
    if (count > 0) logit -= (float)count * request.frequency + request.presence;
    return sane(logit);
}

// Penalizes four neighbours: by the counts of the history, and by the inputs behind it.
__device__ __forceinline__ Four penalize(const SampleRequest& request, Four four, u32 token, u32 vocab,
                                         const Inputs& inputs, const u32* pending) {
    u32 len = request.pending_end - request.pending_first;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        // Behind the vocabulary there is minus infinity, which a penalty below zero would make the largest.
        if (token + i >= vocab) continue;
        u32 mark = request.counts[token + i];
        for (u32 j = 0; j < len; j++) {
            u32 input = j < PENDING_MAX ? pending[j] : inputs.at(request.pending_first + j);
            mark += input == token + i;
        }
        four.v[i] = penalized(request, four.v[i], mark);
    }
    return four;
}

// Writes biases, stop tokens and penalties to a row that has the mask already. Returns the thread's largest.
__device__ __forceinline__ Largest adjust(const SampleRequest& request, Range range, u32 vocab, const Inputs& inputs,
                                          const u32* pending) {
    __syncthreads();
    add_biases(request, range);
    __syncthreads();
    mask_stops(request, range);
    __syncthreads();
    Largest largest = {-infinity(), ~0u};
    for (u32 token = range.begin + threadIdx.x * 4; token < range.end; token += THREADS * 4) {
        Four four = load(request.adjusted, token, vocab);
        if (request.counts != nullptr) {
            four = penalize(request, four, token, vocab, inputs, pending);
            store(request.adjusted, token, four, vocab);
        }
        largest.meet(four, token);
    }
    return largest;
}

// The smallest key of the block, in thread 0.
__device__ __forceinline__ u64 min_block(const Largest& largest, u64* partial) {
    u64 key = min_warp(key_of(largest.logit, largest.token));
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = key;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < WARPS; warp++) key = min(key, partial[warp]);
    }
    return key;
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    sample_adjust(const SampleRequest* requests, const u32* count, SampleState* states, const int* tokens,
                  const u32* sampled, u32 vocab) {
    __shared__ u32 pending[PENDING_MAX];
    __shared__ u64 partial[3][WARPS];
    __shared__ u32 has_broken;
    ptx::dependents_wait();
    ptx::dependents_launch();
    if (blockIdx.y >= *count) return;
    const SampleRequest request = requests[blockIdx.y];
    Inputs inputs = {tokens, sampled};
    u32 pending_len = request.counts == nullptr ? 0 : min(request.pending_end - request.pending_first, PENDING_MAX);
    if (threadIdx.x < pending_len) pending[threadIdx.x] = inputs.at(request.pending_first + threadIdx.x);
    if (threadIdx.x == 0) has_broken = 0;
    clear(request, &states[blockIdx.y], vocab);
    __syncthreads();

    Range range = tokens_of_part(vocab);
    Row row = {request.logits, nullptr, vocab}, masked = {request.logits, request.mask, vocab};
    // What is listed by token needs the row to be there. Penalties alone do not.
    bool has_lists = request.bias_count > 0 || request.stop_count > 0;
    Largest all = {-infinity(), ~0u}, allowed = all, adjusted = all;
    bool broken = false;
    each_four(row, range.begin + threadIdx.x * 4, range.end, THREADS * 4, [&](Four four, u32 token) {
        all.meet(four, token);
#pragma unroll
        for (u32 i = 0; i < 4; i++) broken |= token + i < vocab && is_broken(four.v[i]);
        if (masked.mask != nullptr) four = masked.allowed(four, token);
        allowed.meet(four, token);
        if (request.adjusted == nullptr) return;
        if (!has_lists && request.counts != nullptr) four = penalize(request, four, token, vocab, inputs, pending);
        adjusted.meet(four, token);
        store(request.adjusted, token, four, vocab);
    });
    if (broken) atomicOr(&has_broken, 1u);
    if (request.adjusted != nullptr && has_lists) adjusted = adjust(request, range, vocab, inputs, pending);

    Best best;
    best.all = min_block(all, partial[0]);
    best.allowed = min_block(allowed, partial[1]);
    best.adjusted = min_block(adjusted, partial[2]);
    best.is_broken = has_broken;
    if (threadIdx.x == 0) states[blockIdx.y].best[blockIdx.x] = best;
}
