//! A load that comes towards its prompt: records are read from the end of the prefix on, while the prompt is
//! computed from its beginning, and where the two meet the prompt goes on behind the prefix. Whichever is faster
//! than was predicted does more of the work, and a record that does not come is computed like any other block.
//!
//! What is here is how far the prompt should be computed for now; moving it there is the scheduler's.

use crate::rates::Cost;
use domain::Time;
use std::collections::BTreeMap;
use std::ops::Range;

/// A head, or a tail, of fewer tokens than one part in so many of a chunk is not worth it: a step takes its time
/// however little it computes.
const CHUNK_PART: u32 = 4;
/// Nor is a tail of a smaller part of the prefix than one in so many: what was predicted is not that exact.
const TAIL_PART: u32 = 8;
/// The weight of the predicted speed of a load against the measured one: that of one part in so many of its bytes.
const PREDICTED_PART: f32 = 8.0;

/// How a prefix that is not on the device is had soonest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is computed.
    Compute,
    /// It is loaded, and its prompt waits.
    Load,
    /// Its head is computed while its tail is loaded.
    Both,
}

impl Way {
    /// The one for a prefix of so many tokens, which computing alone and loading alone would take so long.
    pub(crate) fn of(tokens: u32, chunk_tokens: u32, compute_s: f32, load_s: f32) -> Self {
        let head = head(tokens, compute_s, load_s);
        let tail = tokens - head;
        let least = chunk_tokens / CHUNK_PART;
        if head >= least && tail >= least.max(tokens / TAIL_PART) { Self::Both } else { Self::one(compute_s, load_s) }
    }

    /// The one that takes less time, if it cannot be both.
    pub(crate) fn one(compute_s: f32, load_s: f32) -> Self {
        if load_s < compute_s { Self::Load } else { Self::Compute }
    }
}

/// Of so many tokens, those to compute while the others are loaded, so that both end together.
fn head(tokens: u32, compute_s: f32, load_s: f32) -> u32 {
    // Both at once bring 1 / compute_s + 1 / load_s of it in a second, and computing brings 1 / compute_s of that.
    (tokens as f32 * load_s / (compute_s + load_s)) as u32
}

/// A block that has not come.
#[derive(Clone, Copy, Debug, Default)]
struct Absent {
    /// Of reads that have not ended.
    bytes: u64,
    reads: u32,
    /// A read brought nothing.
    failed: bool,
}

/// What of a load is still to come.
#[derive(Debug)]
pub(crate) struct Ahead {
    absent: BTreeMap<u32, Absent>,
    /// Reads that have not ended.
    left: usize,
    bytes: u64,
    came: u64,
    /// How long all of it was predicted to take.
    predicted_s: f32,
    begun: Time,
}

/// How a worker computes prompts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) block_tokens: u32,
    pub(crate) chunk_tokens: u32,
    pub(crate) cost: Cost,
}

impl Ahead {
    /// Of a load with these reads, each with the number of its block and its bytes.
    pub(crate) fn new(reads: impl Iterator<Item = (u32, u64)>, predicted_s: f32, begun: Time) -> Self {
        let mut ahead = Self { absent: BTreeMap::new(), left: 0, bytes: 0, came: 0, predicted_s, begun };
        for (number, bytes) in reads {
            let absent = ahead.absent.entry(number).or_default();
            absent.bytes += bytes;
            absent.reads += 1;
            ahead.bytes += bytes;
            ahead.left += 1;
        }
        ahead
    }

    /// A read ended, well or not.
    pub(crate) fn ended(&mut self, number: u32, bytes: u64, good: bool) {
        let absent = self.absent.get_mut(&number).expect("it is a read of this load");
        absent.bytes -= bytes;
        absent.reads -= 1;
        absent.failed |= !good;
        self.left -= 1;
        if good {
            self.came += bytes;
        }
        if absent.reads == 0 && !absent.failed {
            self.absent.remove(&number);
        }
    }

    /// Whether all reads have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Whether the block did not come, or not yet.
    pub(crate) fn is_absent(&self, number: u32) -> bool {
        self.absent.contains_key(&number)
    }

    /// Whether reads of these blocks have not ended.
    pub(crate) fn is_coming(&self, blocks: Range<u32>) -> bool {
        blocks.start < blocks.end && self.absent.range(blocks).any(|(_, absent)| absent.reads > 0)
    }

    /// How far a prompt should be computed in its next steps, of which the first positions are there and the load
    /// is to bring these: the positions behind are expected to come before these steps have ended. Where `wanted`
    /// begins: it had better wait.
    pub(crate) fn until(&self, now: Time, wanted: Range<u32>, pace: Pace) -> u32 {
        let Pace { block_tokens, chunk_tokens, cost } = pace;
        let computed = wanted.start;
        let numbers = computed / block_tokens..wanted.end / block_tokens;
        let run = numbers.map_while(|number| self.absent.get(&number));
        let (blocks, bytes) = run.fold((0, 0), |(blocks, bytes), absent| (blocks + 1, bytes + absent.bytes));
        if blocks == 0 {
            return u32::MAX;
        }
        let tokens = blocks * block_tokens;
        let (compute_s, load_s) = (cost.seconds(computed..computed + tokens), self.seconds(now, bytes));
        let head = head(tokens, compute_s, load_s).next_multiple_of(block_tokens);
        if bytes > 0 && head >= chunk_tokens / CHUNK_PART {
            computed + head
        } else if bytes > 0 && load_s < compute_s {
            computed
        } else {
            computed + tokens
        }
    }

    /// How long the load will take for so many of its bytes, by what it did until now and by what was predicted.
    fn seconds(&self, now: Time, bytes: u64) -> f32 {
        let part = |bytes: u64| bytes as f32 / self.bytes as f32;
        let elapsed = now.since(self.begun).as_secs_f32() / self.predicted_s;
        let speed = (part(self.came) + 1.0 / PREDICTED_PART) / (elapsed + 1.0 / PREDICTED_PART);
        part(bytes) * self.predicted_s / speed
    }
}

#[cfg(test)]
mod tests;
