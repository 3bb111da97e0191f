// The second kernel of sampling: counts and weighs the tokens of each bin, and finds the bins that a cut lies in. Only
// requests with `top_k`, `top_p` or a report need it.
//
// Grid: blocks of a row, requests, jobs. The last block of a row finds the cut.
#include "sampling.cuh"

// Bins of a thread of the block that finds the cut.
constexpr u32 OWN_BINS = (BINS + THREADS) / THREADS;
static_assert(OWN_BINS * THREADS > BINS, "the bin of weightless tokens has a thread too");

// The bins of a block.
struct Bins {
    u32 counts[BINS];
    u32 low[BINS];
    u32 high[BINS];
};

// Puts the tokens of this block's part into bins. Returns how many of this thread's weigh nothing.
__device__ __forceinline__ u32 fill(Bins& bins, const Source source) {
    u32 weightless = 0;
    Range range = tokens_of_part(source.row.vocab);
    each_four(source.row, range.begin + threadIdx.x * 4, range.end, THREADS * 4, [&](const Four& four, u32) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 exponent = source.exponent(four.v[i]);
            if (exponent < EXPONENT_ZERO) {
                u32 bin = exponent >> BIN_SHIFT;
                atomicAdd(&bins.counts[bin], 1u);
                add_words(&bins.low[bin], &bins.high[bin], weight_of(exponent));
            } else {
                weightless += four.v[i] > -infinity();
            }
        }
    });
    return weightless;
}

// Adds the bins of this block to those of the row.
__device__ __forceinline__ void add_bins(JobState* state, const Bins& bins, u32 weightless) {
    for (u32 bin = threadIdx.x; bin < BINS; bin += THREADS) {
        if (bins.counts[bin] == 0) continue;
        atomicAdd(&state->counts[bin], bins.counts[bin]);
        atomicAdd(&state->masses[bin], (u64)bins.high[bin] << 32 | bins.low[bin]);
    }
    weightless = sum_warp(weightless);
    if (threadIdx.x % WARP == 0 && weightless > 0) atomicAdd(&state->counts[WEIGHTLESS], weightless);
}

// The bins of a thread, with what all bins before them have.
struct OwnBins {
    u32 first;
    u32 counts[OWN_BINS];
    u64 masses[OWN_BINS];
    Prefix count, mass;
};

__device__ __forceinline__ OwnBins read_bins(const JobState* state, bool with_weightless, u64 (*partial)[WARPS]) {
    OwnBins own;
    own.first = threadIdx.x * OWN_BINS;
    u64 count = 0, mass = 0;
#pragma unroll
    for (u32 i = 0; i < OWN_BINS; i++) {
        u32 bin = own.first + i;
        own.counts[i] = bin < BINS + with_weightless ? __ldcg(&state->counts[bin]) : 0;
        own.masses[i] = bin < BINS ? __ldcg(&state->masses[bin]) : 0;
        count += own.counts[i];
        mass += own.masses[i];
    }
    own.count = prefix_block(count, partial[0]);
    own.mass = prefix_block(mass, partial[1]);
    return own;
}

// A bin in which a sum reaches a goal, and the sums before it and with it.
struct Crossing {
    u32 bin;
    u64 count_before, mass_before;
    u32 count_with, own;
};

// Writes where the count, or else the mass, reaches a goal above zero; nothing if it does not.
__device__ __forceinline__ void find_crossing(const OwnBins& own, bool by_mass, u64 goal, Crossing* crossing) {
    u64 count = own.count.before, mass = own.mass.before;
#pragma unroll
    for (u32 i = 0; i < OWN_BINS; i++) {
        u64 before = by_mass ? mass : count;
        u64 with = before + (by_mass ? own.masses[i] : own.counts[i]);
        if (before < goal && with >= goal) {
            *crossing = Crossing{own.first + i, count, mass, (u32)count + own.counts[i], own.counts[i]};
        }
        count += own.counts[i];
        mass += own.masses[i];
    }
}

// Finds the candidates of a draw's cut.
__device__ __forceinline__ void find_cut(const SampleRequest& request, u32 vocab, const OwnBins& own, Cut* cut,
                                         Crossing* crossing) {
    u32 top_k = request.top_k;
    bool by_mass = request.nucleus != EVERY_SHARE;
    // What is beyond all tokens that weigh something cuts nothing.
    bool by_count = top_k > 0 && top_k < vocab && top_k <= own.count.total;
    u64 mass = max(share_above(own.mass.total, request.nucleus), 1ull);
    find_crossing(own, !by_count, by_count ? top_k : mass, crossing);
    __syncthreads();
    if (threadIdx.x != 0) return;
    Crossing at = *crossing;
    if (by_count && by_mass) {
        // The sum that a nucleus is a share of is known only when its last token is.
        *cut = Cut{0, at.bin + 1, at.count_with <= LIST_MAX, top_k, 0};
    } else if (by_count) {
        *cut = Cut{at.bin, at.bin + 1, at.own <= LIST_MAX, top_k - (u32)at.count_before, 0};
    } else if (by_mass) {
        *cut = Cut{at.bin, at.bin + 1, at.own <= LIST_MAX, 0, mass - at.mass_before};
    } else {
        *cut = Cut{BINS, BINS, true, 0, 0};
    }
}

// Finds the candidates for the most probable tokens of a report.
__device__ __forceinline__ void find_top(const SampleRequest& request, const OwnBins& own, Cut* cut,
                                         Crossing* crossing) {
    u32 top = (u32)min((u64)min(request.report, TOP_MAX), own.count.total);
    find_crossing(own, false, max(top, 1u), crossing);
    __syncthreads();
    if (threadIdx.x == 0) *cut = Cut{0, crossing->bin + 1, crossing->count_with <= LIST_MAX, top, 0};
}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    sample_weigh(const SampleRequest* requests, const u32* count, SampleState* states, u32 vocab) {
    __shared__ Bins bins;
    __shared__ Sample sample;
    __shared__ Crossing crossing;
    __shared__ u64 partial[2][WARPS];
    __shared__ u32 is_last;
    ptx::dependents_wait();
    ptx::dependents_launch();
    u32 job = blockIdx.z;
    if (blockIdx.y >= *count) return;
    const SampleRequest request = requests[blockIdx.y];
    if (!needs_bins(request, job, vocab)) return;
    SampleState* of_sample = &states[blockIdx.y];
    if (threadIdx.x < WARP) {
        Sample found = read_sample(request, *of_sample, vocab);
        if (threadIdx.x == 0) sample = found;
    }
    for (u32 bin = threadIdx.x; bin < BINS; bin += THREADS) bins.counts[bin] = bins.low[bin] = bins.high[bin] = 0;
    __syncthreads();
    if (sample.status != DONE) return;

    JobState* state = &of_sample->jobs[job];
    u32 weightless = fill(bins, sample.sources[job]);
    __syncthreads();
    add_bins(state, bins, weightless);
    if (!comes_last(&state->weighed, gridDim.x, &is_last)) return;
    OwnBins own = read_bins(state, job == FOR_REPORT, partial);
    if (threadIdx.x == 0) state->total = own.mass.total;
    if (job == FOR_DRAW) {
        find_cut(request, vocab, own, &state->cut, &crossing);
    } else {
        find_top(request, own, &state->cut, &crossing);
    }
}
