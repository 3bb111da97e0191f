//! How many blocks each KV group gets of a device's memory.
//!
//! A **full** group holds all tokens of every sequence that runs. A **windowed** group holds a window of each, and of
//! a prompt in progress also a chunk and its last window. With equally many blocks for each group, most of a windowed
//! group would hold nothing that a running sequence needs. So a windowed group gets, if `t` is the number of blocks of
//! each full group, of these the least:
//!
//! 1. `t`: never more than a full group. What is longer than a window has no use for more.
//! 2. What [`PoolDemand::running_max`] sequences need at once, [`PoolDemand::prompts_max`] of them prompts in progress.
//! 3. `t / 8`, or what one prompt needs if that is more. So memory that is short for (2) goes to longer contexts first:
//!    windowed groups have room for as many sequences as full groups do if those are [`TOKENS_PER_WINDOWED_TOKEN`]
//!    times as long as what a windowed group holds of each.
//!
//! `t` is the largest number for which all that fits the memory. Both rise with the memory, and `t` is never less than
//! with equally many blocks for each group. A model without windows has equally many in each group.
//!
//! A group of states, of which a sequence needs the last one, is a windowed group of two tokens.
//!
//! The reserve and the pins are a share of each group, and come on top of (2) and of what one prompt needs. In a model
//! in which every group has a window, those with the longest one count as full: there is nothing else to give the rest
//! to.

use crate::config::window_blocks;
use domain::KvLayout;
use thiserror::Error;

/// Tokens that a full group has at least for each token of a windowed group that holds more than one prompt.
pub const TOKENS_PER_WINDOWED_TOKEN: u32 = 8;
/// Fewest blocks per group that a device is worth starting with.
pub const BLOCKS_MIN: u32 = 4;

/// What the pools of a device are for.
#[derive(Clone, Copy, Debug)]
pub struct PoolDemand<'a> {
    /// The groups.
    pub layout: &'a KvLayout,
    /// Bytes of all pools together.
    pub bytes: u64,
    /// Longest context that the model allows, in tokens.
    pub context: u32,
    /// Sequences that run at once at most.
    pub running_max: u32,
    /// Of those, prompts in progress of which a step computes a chunk.
    pub prompts_max: u32,
    /// Most tokens of a chunk.
    pub chunk_tokens: u32,
    /// Of each pool, what opening a sequence leaves to those that run, in percent.
    pub reserve_percent: u32,
    /// Of each pool, what pins may name, in percent. No more than 100 with the reserve.
    pub pinned_percent: u32,
}

/// Sizes of the pools of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSizes {
    /// Blocks of each group.
    pub blocks: Vec<u32>,
    /// Of those, the blocks that opening a sequence leaves to those that run.
    pub reserve_blocks: Vec<u32>,
    /// Longest context that a sequence can have, in tokens; no more than the model's.
    pub context_tokens: u32,
}

/// The memory holds too few blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{blocks} blocks of {block_bytes} bytes fit, and {} bytes are needed", self.needed())]
pub struct TooFewBlocks {
    /// Blocks of each group that fit.
    pub blocks: u32,
    /// Bytes of a block of every group.
    pub block_bytes: u64,
}

impl TooFewBlocks {
    /// Returns the fewest bytes that are enough.
    pub fn needed(&self) -> u64 {
        self.block_bytes * u64::from(BLOCKS_MIN)
    }
}

/// What a windowed group is to have.
#[derive(Clone, Copy, Debug)]
struct Windowed {
    /// Blocks for one prompt.
    least: u32,
    /// Blocks for all sequences that run at once.
    most: u32,
}

impl PoolDemand<'_> {
    /// Divides the memory. Errors: not even [`BLOCKS_MIN`] blocks of each group fit.
    pub fn sizes(&self) -> Result<PoolSizes, TooFewBlocks> {
        let block_bytes: u64 = (0..self.layout.groups.len()).map(|group| self.layout.record_bytes(group) as u64).sum();
        let equal = whole(self.bytes / block_bytes.max(1));
        if equal < BLOCKS_MIN {
            return Err(TooFewBlocks { blocks: equal, block_bytes });
        }
        // The largest number that fits: bytes rise with it, and with equally many blocks they fit.
        let (mut fitting, mut beyond) = (equal, u32::MAX);
        while beyond - fitting > 1 {
            let middle = fitting + (beyond - fitting) / 2;
            if self.bytes_of(middle) <= self.bytes {
                fitting = middle;
            } else {
                beyond = middle;
            }
        }
        let blocks: Vec<u32> = self.blocks(fitting).collect();
        let contexts = blocks.iter().enumerate().map(|(group, &blocks)| self.context(group, blocks));
        Ok(PoolSizes {
            context_tokens: contexts.min().unwrap_or(0),
            reserve_blocks: blocks.iter().map(|&blocks| share(blocks, self.reserve_percent)).collect(),
            blocks,
        })
    }

    /// Returns the bytes of all pools if full groups have so many blocks each.
    pub fn bytes_of(&self, full: u32) -> u64 {
        let bytes =
            |(group, blocks): (usize, u32)| u64::from(blocks).saturating_mul(self.layout.record_bytes(group) as u64);
        self.blocks(full).enumerate().map(bytes).fold(0, u64::saturating_add)
    }

    /// Returns the blocks of each group if full ones have so many.
    fn blocks(&self, full: u32) -> impl Iterator<Item = u32> {
        (0..self.layout.groups.len())
            .map(move |group| self.windowed(group).map_or(full, |windowed| windowed.blocks(full)))
    }

    /// Returns what the group is to have. `None`: it takes what the others leave.
    fn windowed(&self, group: usize) -> Option<Windowed> {
        let longest = self.layout.groups.iter().map(|group| group.reach().unwrap_or(u32::MAX)).max();
        let window = self.layout.groups[group].reach().filter(|&window| Some(window) != longest)?;
        let window = u64::from(window_blocks(window, self.layout.block_tokens));
        let context = u64::from(self.context.div_ceil(self.layout.block_tokens));
        let (running, prompts) = (u64::from(self.running_max), u64::from(self.prompts_max.min(self.running_max)));
        let each = running.saturating_mul(window.min(context));
        let in_progress = prompts.saturating_mul(window + self.chunk_blocks());
        let all = each.saturating_add(in_progress).min(running.saturating_mul(context));
        let least = self.prompt_blocks(group).min(context).max(BLOCKS_MIN.into());
        Some(Windowed { least: self.with_shares(least), most: self.with_shares(all.max(least)) })
    }

    /// Returns the longest context, in tokens, that a sequence can have in so many blocks of the group.
    fn context(&self, group: usize, blocks: u32) -> u32 {
        let usable = self.usable(blocks);
        let is_any_length =
            self.layout.groups[group].reach().is_some() && u64::from(usable) >= self.prompt_blocks(group);
        let tokens = if is_any_length { u32::MAX } else { usable.saturating_mul(self.layout.block_tokens) };
        tokens.min(self.context)
    }

    /// Returns the most blocks that a prompt in progress has at once in a group with a window.
    fn prompt_blocks(&self, group: usize) -> u64 {
        let window = self.layout.groups[group].reach().unwrap_or(u32::MAX);
        2 * u64::from(window_blocks(window, self.layout.block_tokens)) + self.chunk_blocks()
    }

    fn chunk_blocks(&self) -> u64 {
        self.chunk_tokens.div_ceil(self.layout.block_tokens).into()
    }

    /// Returns what is left of so many blocks next to the reserve and what pins may name.
    fn usable(&self, blocks: u32) -> u32 {
        blocks - share(blocks, self.reserve_percent) - share(blocks, self.pinned_percent)
    }

    /// Returns how many blocks leave so many next to the reserve and what pins may name.
    fn with_shares(&self, usable: u64) -> u32 {
        let left = 100 - u64::from(self.reserve_percent + self.pinned_percent).min(99);
        whole(usable.saturating_mul(100).div_ceil(left))
    }
}

impl Windowed {
    /// Returns its blocks if full groups have so many.
    fn blocks(self, full: u32) -> u32 {
        full.min(self.most).min(self.least.max(full / TOKENS_PER_WINDOWED_TOKEN))
    }
}

/// Returns so many percent of the blocks.
fn share(blocks: u32, percent: u32) -> u32 {
    (u64::from(blocks) * u64::from(percent) / 100) as u32
}

fn whole(blocks: u64) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
