// Checks of global memory: bounds against the allocation table, dependent launches, and races within a launch.
#include <algorithm>

#include "checks_state.h"

namespace simt {

static FindAllocation find_allocation = nullptr;

void set_find_allocation(FindAllocation find) { find_allocation = find; }

// Says whether an access lies in an allocation.
static bool inside(const Allocation& allocation, uintptr_t address, size_t bytes) {
    return address >= allocation.begin && address + bytes <= allocation.end;
}

// Fails because an access is out of bounds.
[[noreturn]] static void fail_bounds(uintptr_t address, size_t bytes, Access access, const Allocation& near,
                                     const void* code) {
    std::string where = "no allocation lies below";
    if (near.end != 0 && address < near.end && address >= near.begin) {
        where = format("it starts at byte %zu of an allocation of %zu bytes", static_cast<size_t>(address - near.begin),
                       static_cast<size_t>(near.end - near.begin));
    } else if (near.end != 0) {
        where = format("it starts %zu bytes beyond an allocation of %zu bytes at %p",
                       static_cast<size_t>(address - near.end), static_cast<size_t>(near.end - near.begin),
                       reinterpret_cast<void*>(near.begin));
    }
    fail(Outcome::IllegalAddress,
         format("illegal address: the thread %s %zu bytes at %p, out of bounds: %s", access_name(access), bytes,
                reinterpret_cast<void*>(address), where.c_str()),
         code);
}

// Fails unless the access lies in one allocation that allows it.
static void check_bounds(uintptr_t address, size_t bytes, Access access, const void* code) {
    if (find_allocation == nullptr) return;
    std::vector<Allocation>& used = machine->checks->allocations;
    for (size_t i = 0; i < used.size(); i++) {
        if (!inside(used[i], address, bytes) || (writes(access) && !used[i].writable)) continue;
        if (i > 0) std::swap(used[i], used[i - 1]);
        return;
    }
    Allocation found;
    if (!find_allocation(address, &found) || !inside(found, address, bytes)) {
        fail_bounds(address, bytes, access, found, code);
    }
    if (writes(access) && !found.writable) {
        fail(Outcome::IllegalAddress,
             format("illegal address: the thread writes %p, which is read-only", reinterpret_cast<void*>(address)),
             code);
    }
    used.push_back(found);
}

// Fails if a thread of a dependent launch reads what kernels before it write, or writes anything, before it waited.
static void check_dependent(uintptr_t address, size_t bytes, Access access, const void* code) {
    const Checks& c = *machine->checks;
    const Launch& launch = *machine->launch;
    const bool others_waited = c.waited_epoch != 0 && c.waited_epoch < c.clocks.epoch();
    if (current->clock.waited || others_waited) return;
    const char* mistake = writes(access) ? "the thread writes" : nullptr;
    for (const Interval& interval : launch.pending) {
        const bool overlaps = address < interval.end && address + bytes > interval.begin;
        if (overlaps) mistake = "the thread touches earlier results at";
    }
    if (mistake == nullptr) return;
    fail(Outcome::Race, format("%s %p before dependents_wait", mistake, reinterpret_cast<void*>(address)), code);
}

// Returns the shadow of the word that holds an address.
static ShadowWord& find_word(Checks& c, uintptr_t address) {
    const uintptr_t number = address / PAGE_BYTES;
    if (c.last_page == nullptr || c.last_page_number != number) {
        std::unique_ptr<ShadowPage>& page = c.pages[number];
        if (page == nullptr) page = std::make_unique<ShadowPage>();
        c.last_page = page.get();
        c.last_page_number = number;
    }
    return c.last_page->words[address % PAGE_BYTES / WORD_BYTES];
}

// Fails because two accesses are not ordered.
[[noreturn]] static void fail_race(uintptr_t address, Access access, bool other_writes, Stamp other, const void* code) {
    const Checks& c = *machine->checks;
    const Moment& moment = c.global_moments[other & MOMENT];
    const Extent grid = machine->launch->grid;
    const bool same_block = moment.block == c.block;
    fail(Outcome::Race,
         format("race: the thread %s global memory at %p, and thread %u of block (%u,%u,%u) %s with no %s between",
                access_name(access), reinterpret_cast<void*>(address), moment.thread, moment.block % grid.x,
                moment.block / grid.x % grid.y, moment.block / grid.x / grid.y, access_name(other_writes, other),
                same_block ? "barrier" : "fence and atomic operation"),
         code);
}

void check_global(uintptr_t address, size_t bytes, Access access, const void* code) {
    Checks& c = *machine->checks;
    const Thread& self = *current;
    check_bounds(address, bytes, access, code);
    if (machine->launch->dependent) check_dependent(address, bytes, access, code);
    machine->counts.values[writes(access) ? COUNT_BYTES_WRITTEN : COUNT_BYTES_READ] += bytes;

    const Stamp atomic = is_atomic(access) ? ATOMIC : 0;
    const Stamp stamp = c.clocks.stamp(c.global_moments, current->clock.global_moment, c.block) | atomic;
    const auto ordered = [&](Stamp other, uintptr_t at) {
        if (other == 0 || (other & stamp & ATOMIC)) return true;
        const Moment& moment = c.global_moments[other & MOMENT];
        if (moment.block == c.block) return c.clocks.before(moment, self);
        return c.tickets.before(c.clocks, moment, (other & ATOMIC) != 0, at, self);
    };
    const auto find = [&](uintptr_t at) -> ShadowWord& { return find_word(c, at); };
    visit_cells(c.global_splits, address, bytes, find, [&](ShadowWord& word, Cell& cell, uintptr_t at) {
        if (!ordered(cell.write, at)) fail_race(at, access, true, cell.write, code);
        if (access != Access::Write) word.read_ever = 1;
        if (!writes(access)) {
            if (cell.reads[0] != stamp) remember_read(cell, stamp, c.global_moments);
            return;
        }
        for (const Stamp read : cell.reads) {
            if (!ordered(read, at)) fail_race(at, access, false, read, code);
        }
        word.written_ever = 1;
        cell.write = stamp;
        cell.reads[0] = cell.reads[1] = 0;
    });
    if (is_atomic(access)) c.tickets.atomic(c.clocks, address, writes(access));
}

void count_unique(const Checks& c, Watched& watched) {
    constexpr size_t WORDS_PER_SECTOR = SECTOR_BYTES / WORD_BYTES;
    for (const auto& [number, page] : c.pages) {
        for (size_t first = 0; first < WORDS_PER_PAGE; first += WORDS_PER_SECTOR) {
            size_t touched = 0;
            for (size_t i = first; i < first + WORDS_PER_SECTOR; i++) {
                const uintptr_t begin = number * PAGE_BYTES + i * WORD_BYTES;
                const ShadowWord& word = page->words[i];
                touched += watched.overlaps(begin, begin + WORD_BYTES) && (word.read_ever || word.written_ever);
            }
            watched.counts.unique_bytes += touched * WORD_BYTES;
            watched.counts.unique_sectors += touched > 0;
        }
    }
}

// Appends a word to a sorted list, and joins it with the last interval if they touch.
static void append(std::vector<Interval>& list, uintptr_t begin) {
    if (!list.empty() && list.back().end == begin) {
        list.back().end += WORD_BYTES;
    } else {
        list.push_back({begin, begin + WORD_BYTES});
    }
}

void list_touched(Checks& c, bool list, Result& result, Counts& counts) {
    std::vector<uintptr_t> numbers;
    for (const auto& [number, page] : c.pages) numbers.push_back(number);
    std::sort(numbers.begin(), numbers.end());
    for (const uintptr_t number : numbers) {
        const ShadowPage& page = *c.pages[number];
        for (size_t i = 0; i < WORDS_PER_PAGE; i++) {
            const ShadowWord& word = page.words[i];
            const uintptr_t begin = number * PAGE_BYTES + i * WORD_BYTES;
            if (word.read_ever) counts.values[COUNT_UNIQUE_READ] += WORD_BYTES;
            if (word.written_ever) counts.values[COUNT_UNIQUE_WRITTEN] += WORD_BYTES;
            if (list && word.read_ever) append(result.reads, begin);
            if (list && word.written_ever) append(result.writes, begin);
        }
    }
}

}  // namespace simt
