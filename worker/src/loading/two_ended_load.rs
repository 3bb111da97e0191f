//! A load from the other end of its prompt: records are read from the end of the prefix, while the prompt is computed
//! from its beginning. Where the two meet, the prompt continues behind the prefix. The side that is faster than
//! predicted does more of the work, and a record that does not arrive is computed like any other block.
//!
//! This file says how far the prompt should be computed for now. The scheduler computes it.

use crate::measured_rates::PromptCost;
use domain::Time;
use std::collections::BTreeMap;
use std::ops::Range;

/// A head, or a tail, of less than one part in so many of a chunk is not worth it: a step takes its time however
/// little it computes.
pub(super) const CHUNK_PART: u32 = 4;
/// The weight of the predicted speed of a load against the measured one: that of one part in so many of its bytes.
const PREDICTED_PART: f32 = 8.0;

/// Returns how many of these tokens to compute while the others are loaded, so that both end together.
pub(super) fn head_tokens(tokens: u32, compute_s: f32, load_s: f32) -> u32 {
    // In a second both together deliver 1 / compute_s + 1 / load_s of it, and computing delivers 1 / compute_s.
    (tokens as f32 * load_s / (compute_s + load_s)) as u32
}

/// A block that has not arrived.
#[derive(Clone, Copy, Debug, Default)]
struct AbsentBlock {
    /// Bytes of reads that have not ended.
    bytes: u64,
    reads: u32,
    /// A read delivered nothing.
    failed: bool,
}

/// What has not arrived of a load.
#[derive(Debug)]
pub(super) struct TwoEndedLoad {
    /// By the number of the block in the prompt.
    absent: BTreeMap<u32, AbsentBlock>,
    reads_left: usize,
    /// Bytes of all its reads.
    bytes: u64,
    bytes_arrived: u64,
    /// Predicted seconds of the whole load.
    predicted_s: f32,
    begun: Time,
}

/// How a worker computes prompts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) block_tokens: u32,
    pub(crate) chunk_tokens: u32,
    pub(crate) cost: PromptCost,
}

impl TwoEndedLoad {
    /// A load with these reads, each with the number of its block and its bytes.
    pub(super) fn new(reads: impl Iterator<Item = (u32, u64)>, predicted_s: f32, begun: Time) -> Self {
        let absent = BTreeMap::new();
        let mut load = Self { absent, reads_left: 0, bytes: 0, bytes_arrived: 0, predicted_s, begun };
        for (number, bytes) in reads {
            let absent = load.absent.entry(number).or_default();
            absent.bytes += bytes;
            absent.reads += 1;
            load.bytes += bytes;
            load.reads_left += 1;
        }
        load
    }

    /// Notes the end of a read.
    pub(super) fn on_read_ended(&mut self, number: u32, bytes: u64, is_good: bool) {
        let absent = self.absent.get_mut(&number).expect("it is a read of this load");
        absent.bytes -= bytes;
        absent.reads -= 1;
        absent.failed |= !is_good;
        self.reads_left -= 1;
        if is_good {
            self.bytes_arrived += bytes;
        }
        if absent.reads == 0 && !absent.failed {
            self.absent.remove(&number);
        }
    }

    /// Returns whether all reads have ended.
    pub(super) fn is_over(&self) -> bool {
        self.reads_left == 0
    }

    /// Returns whether the block failed to arrive, or has not arrived yet.
    pub(super) fn is_absent(&self, number: u32) -> bool {
        self.absent.contains_key(&number)
    }

    /// Returns whether reads of these blocks have not ended.
    pub(super) fn is_coming(&self, blocks: Range<u32>) -> bool {
        blocks.start < blocks.end && self.absent.range(blocks).any(|(_, absent)| absent.reads > 0)
    }

    /// Returns up to which position a prompt should be computed in its next steps. It is computed up to
    /// `wanted.start`, and the load delivers the other positions of `wanted`. What lies behind the result is expected
    /// to arrive before these steps have ended. `wanted.start`: the prompt should wait.
    pub(super) fn compute_until(&self, now: Time, wanted: Range<u32>, pace: Pace) -> u32 {
        let Pace { block_tokens, chunk_tokens, cost } = pace;
        let computed = wanted.start;
        let numbers = computed / block_tokens..wanted.end / block_tokens;
        let run = numbers.map_while(|number| self.absent.get(&number));
        let (blocks, bytes) = run.fold((0, 0), |(blocks, bytes), absent| (blocks + 1, bytes + absent.bytes));
        if blocks == 0 {
            return u32::MAX;
        }
        let tokens = blocks * block_tokens;
        let (compute_s, load_s) = (cost.seconds(computed..computed + tokens), self.seconds_of(now, bytes));
        let head = head_tokens(tokens, compute_s, load_s).next_multiple_of(block_tokens);
        if bytes > 0 && head >= chunk_tokens / CHUNK_PART {
            computed + head
        } else if bytes > 0 && load_s < compute_s {
            computed
        } else {
            computed + tokens
        }
    }

    /// Predicts how long the load takes for so many of its bytes, from its speed until now and the first prediction.
    fn seconds_of(&self, now: Time, bytes: u64) -> f32 {
        let part = |bytes: u64| bytes as f32 / self.bytes as f32;
        let elapsed = now.since(self.begun).as_secs_f32() / self.predicted_s;
        let speed = (part(self.bytes_arrived) + 1.0 / PREDICTED_PART) / (elapsed + 1.0 / PREDICTED_PART);
        part(bytes) * self.predicted_s / speed
    }
}

#[cfg(test)]
mod tests;
