// Counts sectors of global memory and bank conflicts of shared memory.
#include "traffic.h"

#include <algorithm>

namespace simt {

constexpr unsigned BANKS = 32;
constexpr uintptr_t BANK_BYTES = 4;

// Shared memory serves this many bytes in one round: lanes with wide accesses are served in groups.
constexpr unsigned ROUND_BYTES = BANKS * BANK_BYTES;

void Traffic::begin_block(unsigned threads) {
    warps_.resize((threads + LANES - 1) / LANES);
    for (size_t warp = 0; warp < warps_.size(); warp++) {
        warps_[warp].clear();
        warps_[warp].all_lanes = machine->warps[warp].live;
    }
}

void Traffic::WarpLog::clear() {
    instructions.clear();
    for (auto& entry : cache) entry = {};
}

Traffic::Instruction& Traffic::WarpLog::find(uintptr_t key) {
    auto& entry = cache[key / 2 % CACHE_ENTRIES];
    if (entry.key != key) entry = {key, &instructions[key]};
    return *entry.instruction;
}

void Traffic::record(Space space, uintptr_t address, size_t bytes, const void* code, Counts& counts) {
    const Thread& self = *current;
    // One instruction may reach both kinds of memory through a generic address.
    const uintptr_t key = reinterpret_cast<uintptr_t>(code) * 2 + (space == Space::Shared);
    WarpLog& warp = warps_[self.warp];
    Instruction& instruction = warp.find(key);
    instruction.space = space;
    const uint32_t number = instruction.done[self.lane]++ - instruction.first;
    while (instruction.executions.size() <= number) instruction.executions.emplace_back();
    Execution& execution = instruction.executions[number];
    execution.lanes |= 1u << self.lane;
    execution.bytes = static_cast<unsigned>(bytes);
    execution.addresses[self.lane] = address;
    while (!instruction.executions.empty() && instruction.executions.front().lanes == warp.all_lanes) {
        count(space, instruction.executions.front(), counts);
        instruction.executions.pop_front();
        instruction.first++;
    }
}

void Traffic::end_block(Counts& counts) {
    for (WarpLog& warp : warps_) {
        for (auto& [key, instruction] : warp.instructions) {
            for (const Execution& execution : instruction.executions) count(instruction.space, execution, counts);
        }
        warp.clear();
    }
}

// Returns how many different numbers there are. Sorts them.
static size_t count_distinct(std::vector<uintptr_t>& numbers) {
    if (!std::is_sorted(numbers.begin(), numbers.end())) std::sort(numbers.begin(), numbers.end());
    return static_cast<size_t>(std::unique(numbers.begin(), numbers.end()) - numbers.begin());
}

// Counts what an execution does with the ranges that are watched.
void Traffic::count_watched(const Execution& execution) {
    static thread_local std::vector<uintptr_t> touched;
    for (Watched& range : watched) {
        touched.clear();
        for (unsigned lane = 0; lane < LANES; lane++) {
            const uintptr_t begin = execution.addresses[lane], end = begin + execution.bytes;
            if (!(execution.lanes >> lane & 1) || !range.overlaps(begin, end)) continue;
            // Lanes that name the same address share what comes from there.
            bool is_shared = false;
            for (unsigned other = 0; other < lane; other++) {
                is_shared |= (execution.lanes >> other & 1) && execution.addresses[other] == begin;
            }
            if (is_shared) continue;
            range.counts.bytes += execution.bytes;
            for (uintptr_t u = begin / SECTOR_BYTES; u <= (end - 1) / SECTOR_BYTES; u++) touched.push_back(u);
        }
        range.counts.sectors += count_distinct(touched);
    }
}

void Traffic::count(Space space, const Execution& execution, Counts& counts) {
    if (space == Space::Global && !watched.empty()) count_watched(execution);
    static thread_local std::vector<uintptr_t> touched;
    const unsigned lanes_per_round =
        space == Space::Shared ? std::clamp(ROUND_BYTES / std::max(execution.bytes, 1u), 1u, LANES) : LANES;
    const uintptr_t unit = space == Space::Shared ? BANK_BYTES : SECTOR_BYTES;
    for (unsigned first = 0; first < LANES; first += lanes_per_round) {
        touched.clear();
        for (unsigned lane = first; lane < first + lanes_per_round; lane++) {
            if (!(execution.lanes >> lane & 1)) continue;
            const uintptr_t begin = execution.addresses[lane];
            for (uintptr_t u = begin / unit; u <= (begin + execution.bytes - 1) / unit; u++) touched.push_back(u);
        }
        const size_t distinct = count_distinct(touched);
        if (space == Space::Global) {
            counts.values[COUNT_SECTORS] += distinct;
            continue;
        }
        unsigned words[BANKS] = {};
        unsigned most = 0;
        for (size_t i = 0; i < distinct; i++) most = std::max(most, ++words[touched[i] % BANKS]);
        if (most > 1) counts.values[COUNT_BANK_CONFLICTS] += most - 1;
    }
}

}  // namespace simt
