//! Room for sequences: what opening one takes of each group, and what prompts in progress were promised.
//!
//! A full group holds all of a sequence, so opening one takes all its blocks. A windowed group needs a prompt's window
//! and the chunk in progress, whatever the prompt's length, and the last window, since an offer names its blocks. So a
//! long prompt takes the blocks of its first chunk and of its last window, and the rest chunk by chunk, as blocks fall
//! out of its window. What it may have at once beyond what it has is *promised* to it: nothing else is admitted into
//! that, and no decoding sequence grows into it. So a prompt in progress finds room, and is never preempted.
//!
//! A block that falls out of a window is of no help to its sequence while another one uses it, a lease covers it or a
//! pin names it. Such blocks count as promised once more, and so do the blocks that pins may still name. A prompt may
//! still have to wait for a chunk's blocks: until a reader of a tier is done, or until a shorter sequence that shares
//! its blocks has ended. Neither waits for the prompt.

use super::{KvManager, at};
use domain::{BlockHash, Claim, GroupId, SeqKey};

/// What a sequence that is opened has of a group.
pub(super) struct Extent {
    /// Its first block.
    pub(super) first: u32,
    /// Behind the last block of its table.
    pub(super) end: u32,
    /// The first of the last blocks, which it has too. No less than `end`.
    pub(super) ends_from: u32,
    /// Blocks that it takes which are not cached.
    fresh: u32,
}

/// How much room a worker has, as routers count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Blocks that can be had at once.
    pub available: u32,
    /// All blocks.
    pub total: u32,
}

impl KvManager {
    /// Returns whether so many more tokens could have slots now, in addition to what is claimed, in a sequence that
    /// takes over what is cached of `chain`: of that nothing is given up for them.
    pub fn has_room(&self, chain: &[BlockHash], tokens: u32, claim: Claim) -> bool {
        let size = self.config.block_tokens;
        let hit = self.usable_blocks(chain, None);
        self.groups().zip(&self.config.groups).all(|(group, config)| {
            let first = config.first_needed(hit * size, size);
            let idle = self.idle(group, super::chain_range(chain, first, hit));
            let claimed = self.claimed_blocks(group, tokens, claim);
            let taken = claimed + u64::from(config.reserve_blocks) + u64::from(idle) + u64::from(self.promised(group));
            taken <= self.pools[at(group)].available().into()
        })
    }

    /// Returns the most tokens of a prompt that could be opened now even if nothing of it were cached.
    pub fn room_tokens(&self) -> u64 {
        let of_group = |group| {
            let kept = self.config.groups[at(group)].reserve_blocks + self.promised(group);
            let room = self.pools[at(group)].available().saturating_sub(kept);
            let is_any_length = room >= self.prompt_blocks(group, u32::MAX);
            if is_any_length { u64::MAX } else { u64::from(room) * u64::from(self.config.block_tokens) }
        };
        self.groups().map(of_group).min().unwrap_or(0)
    }

    /// Returns how much room there is in the fullest group, in blocks of the largest one. Groups with windows have
    /// fewer blocks than full ones for as many sequences, so their share counts.
    pub fn room(&self) -> Room {
        let total = self.pools.iter().map(super::Pool::total).max().unwrap_or(0);
        let of_group = |group: GroupId| {
            let pool = &self.pools[at(group)];
            let available = pool.available().saturating_sub(self.promised(group));
            (u64::from(available) * u64::from(total) / u64::from(pool.total()).max(1)) as u32
        };
        Room { available: self.groups().map(of_group).min().unwrap_or(0), total }
    }

    /// Returns the most blocks of the group that a prompt of `blocks` blocks has at once.
    pub(super) fn prompt_blocks(&self, group: GroupId, blocks: u32) -> u32 {
        let window = self.config.groups[at(group)].window_blocks(self.config.block_tokens);
        window.map_or(blocks, |window| blocks.min(self.span_blocks(window) + window))
    }

    /// Returns the most blocks that a prompt has at once next to its last window, given the blocks of a window.
    fn span_blocks(&self, window: u32) -> u32 {
        window + self.config.chunk_tokens.div_ceil(self.config.block_tokens)
    }

    /// Returns what a sequence of `tokens` positions has of the group when it is opened. `hit` blocks are cached, and
    /// the next query is at `next_query`.
    pub(super) fn extent(&self, group: GroupId, hit: u32, next_query: u32, tokens: u32, fetch: bool) -> Extent {
        let (size, config) = (self.config.block_tokens, &self.config.groups[at(group)]);
        let blocks = tokens.div_ceil(size);
        let first = config.first_needed(next_query, size).min(blocks);
        let last_window = config.first_needed(tokens, size).min(blocks);
        let span = config.window_blocks(size).map_or(blocks, |window| self.span_blocks(window));
        let (end, ends_from) = if fetch || last_window.saturating_sub(first) <= span {
            (blocks, blocks)
        } else {
            (hit + self.config.chunk_tokens.div_ceil(size), last_window)
        };
        Extent { first, end, ends_from, fresh: (end - hit.max(first)) + (blocks - ends_from) }
    }

    /// Returns whether the group has room for a sequence that begins with these cached blocks. With no sequence open
    /// there is none to keep a reserve for, and a large prompt could wait for ever.
    pub(super) fn fits(&self, group: GroupId, hits: &[BlockHash], extent: &Extent) -> bool {
        let (pool, config) = (&self.pools[at(group)], &self.config.groups[at(group)]);
        let idle = self.idle(group, hits);
        let reserve = if self.sequences.is_empty() { 0 } else { config.reserve_blocks };
        let mut takes = extent.fresh + idle;
        if extent.ends_from > extent.end {
            // Those that others use fall out of two windows, and are given back once.
            let used = hits.iter().filter(|&&hash| pool.is_used(self.cached(group, hash))).count() as u32;
            let has = idle + extent.end - (extent.first + hits.len() as u32);
            takes += used + self.promise(group, extent.ends_from - extent.end, has);
            if !self.is_promised(group) {
                takes += self.pins_to_come(group);
            }
        }
        takes == 0 || takes.saturating_add(reserve).saturating_add(self.promised(group)) <= pool.available()
    }

    /// Returns how many blocks of the group are promised to prompts in progress: what they will have at once beyond
    /// what they have, and what pins may take from them.
    pub(super) fn promised(&self, group: GroupId) -> u32 {
        if !self.is_promised(group) {
            return 0;
        }
        let pool = &self.pools[at(group)];
        let of_sequence = |key: &SeqKey| {
            let sequence = &self.sequences[key];
            let sole = sequence.tables[at(group)].blocks.iter().filter(|&&block| pool.is_sole(block)).count();
            self.promise(group, sequence.gap(group), sole as u32)
        };
        self.in_progress.iter().map(of_sequence).sum::<u32>() + self.pins_to_come(group)
    }

    /// Notes whether the sequence, which is open, has blocks of some group still to take.
    pub(super) fn note_gap(&mut self, key: SeqKey) {
        if self.groups().any(|group| self.sequences[&key].gap(group) > 0) {
            self.in_progress.insert(key);
        } else {
            self.in_progress.remove(&key);
        }
    }

    /// Returns whether a prompt in progress will take more blocks of the group.
    fn is_promised(&self, group: GroupId) -> bool {
        self.in_progress.iter().any(|key| self.sequences[key].gap(group) > 0)
    }

    /// Returns what is promised of the group to a sequence with a gap of so many blocks, which gives back as many as
    /// it has in its table.
    fn promise(&self, group: GroupId, gap: u32, has: u32) -> u32 {
        let window = self.config.groups[at(group)].window_blocks(self.config.block_tokens);
        window.map_or(0, |window| gap.min(self.span_blocks(window).saturating_sub(has)))
    }

    /// Returns how many more blocks of the group pins may name, which prompts in progress then lack. That is none
    /// without a window: there they have all their blocks.
    pub(super) fn pins_to_come(&self, group: GroupId) -> u32 {
        let config = &self.config.groups[at(group)];
        let pinned_max = config.window.map_or(0, |_| config.pinned_max(self.config.pinned_percent) as u32);
        pinned_max.saturating_sub(self.pools[at(group)].pinned())
    }

    /// Returns the most blocks of the group that a sequence of `tokens` tokens and the claiming jobs have at once.
    fn claimed_blocks(&self, group: GroupId, tokens: u32, claim: Claim) -> u64 {
        let (size, tokens) = (u64::from(self.config.block_tokens), u64::from(tokens));
        let all = (tokens + claim.tokens).div_ceil(size);
        if self.config.groups[at(group)].window.is_none() {
            return all;
        }
        let each = u64::from(self.prompt_blocks(group, u32::MAX));
        let own = tokens.div_ceil(size).min(each);
        all.min(own + claim.tokens.div_ceil(size).min(each * u64::from(claim.jobs)))
    }

    /// Returns how many of these blocks, which are cached, could be given up.
    fn idle(&self, group: GroupId, hits: &[BlockHash]) -> u32 {
        let pool = &self.pools[at(group)];
        hits.iter().filter(|&&hash| pool.is_evictable(self.cached(group, hash))).count() as u32
    }
}
