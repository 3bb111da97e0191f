//! Sampling: tokens and log probabilities of rows of logits, bit for bit those of `engine::sampling::Sampler`.
//!
//! Three kernels: `adjust` writes biases, masks, stop tokens and penalties, and finds the maxima; `weigh` finds what
//! cuts and reports need; `choose` draws and reports. Grids follow from the number of slots for requests alone, so they
//! can stay in a graph. How many requests there are, and what they ask for, lies in device memory.

use super::{LoadError, Loader, source};
use crate::compiler::Source;
use crate::driver::{Args, DriverError, Function, Grid, Stream};
use std::slice;

pub(super) const SOURCES: [Source; 3] =
    [source!("sampling_adjust.cu"), source!("sampling_weigh.cu"), source!("sampling_choose.cu")];

/// Threads of all blocks.
const THREADS: u32 = 256;

/// Ways to weigh a row: for a draw, and for a report.
const JOBS: u32 = 2;

/// Bytes of scratch of one request.
const STATE_BYTES: usize = 101_008;

/// The most blocks that can share a row.
pub const PARTS_MAX: u32 = 16;

/// The most probable tokens that can be reported.
pub const TOP_MAX: usize = 20;

/// As [`SampleRequest::nucleus`]: nothing is cut by the sum of weights.
pub const EVERY_SHARE: u64 = u64::MAX;

/// As [`SampleRequest::report`]: no log probabilities are reported.
pub const NO_REPORT: u32 = u32::MAX;

/// What a request is.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampleKind {
    /// The most probable token is taken.
    #[default]
    Greedy = 0,
    /// A token is drawn.
    Draw = 1,
    /// A token is known, and reported on.
    Score = 2,
}

/// What is asked for of a row of logits. The kernels read an array of these. Addresses are those of the device; numbers
/// are those of `engine::sampling`.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampleRequest {
    /// Logits in f32, `[vocab]`; aligned to 16 bytes they are read faster. They stay as they are.
    pub logits: u64,
    /// Where the row with bias, stop tokens and penalties goes, `[vocab]` in f32, aligned to 16 bytes. 0: none of these
    /// changes it. Each request has a row of its own.
    pub adjusted: u64,
    /// The tokens that are allowed: one bit each, from the lowest of the first 32-bit word on; 0: all are.
    pub mask: u64,
    /// The marks of the history, as [`History`](super::History) makes them; 0: nothing is penalized.
    pub counts: u64,
    /// [`Bias`]es, sorted by token; those of one token are added in their order.
    pub biases: u64,
    /// Tokens that are not sampled, one u32 each, none twice.
    pub stops: u64,
    /// The point of the draw, in units of 2^-64.
    pub uniform: u64,
    /// The share of the sum of weights that is kept, in units of 2^-64, or [`EVERY_SHARE`].
    pub nucleus: u64,
    /// The least weight that is kept.
    pub least: u64,
    /// Number of biases.
    pub bias_count: u32,
    /// Number of stop tokens.
    pub stop_count: u32,
    /// What it is.
    pub kind: SampleKind,
    /// What differences of logits are multiplied by.
    pub scale: f32,
    /// Most probable tokens that are kept; 0: all.
    pub top_k: u32,
    /// Most probable tokens that are reported with the token, at most [`TOP_MAX`], or [`NO_REPORT`].
    pub report: u32,
    /// The token of a [`SampleKind::Score`].
    pub token: u32,
    /// Divides positive and multiplies other logits of tokens that were seen.
    pub repetition: f32,
    /// Subtracted for each time that a token is in the output.
    pub frequency: f32,
    /// Subtracted from tokens in the output.
    pub presence: f32,
    /// The first of the step's inputs that count as output behind the history.
    pub pending_first: u32,
    /// The input behind the last of them.
    pub pending_end: u32,
    /// Unused.
    pub unused: u64,
}

/// A number that is added to the logit of a token.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bias {
    /// The token.
    pub token: u32,
    /// The number.
    pub bias: f32,
}

/// What became of a request.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleResult {
    /// The token that was sampled or scored; 0 where there is none.
    pub token: u32,
    /// [`Self::DONE`] or why there is no token.
    pub status: u32,
    /// Not zero: a logit is infinite or no number.
    pub is_broken: u32,
    /// The largest logit of the row.
    pub max: f32,
    /// Of the token, where a report was asked for.
    pub logprob: f32,
    /// Most probable tokens that are reported.
    pub top_len: u32,
    /// Unused.
    pub unused: [u32; 2],
    /// The most probable tokens, best first, ties by lower token.
    pub top_tokens: [u32; TOP_MAX],
    /// Their log probabilities.
    pub top_logprobs: [f32; TOP_MAX],
}

impl SampleResult {
    /// As [`Self::status`]: the token is there.
    pub const DONE: u32 = 0;
    /// As [`Self::status`]: the largest logit is infinite, or no logit is a number.
    pub const NO_MAXIMUM: u32 = 1;
    /// As [`Self::status`]: the mask allows no token that is possible.
    pub const NOTHING_ALLOWED: u32 = 2;

    /// Reads results as the device wrote them; bytes behind the last whole one are passed over.
    pub fn read(bytes: &[u8]) -> Vec<Self> {
        // SAFETY: all bytes of a result belong to a field, and every value of them is one.
        bytes
            .chunks_exact(size_of::<Self>())
            .map(|own| unsafe { own.as_ptr().cast::<Self>().read_unaligned() })
            .collect()
    }
}

impl SampleRequest {
    /// Returns the bytes that the device has of requests.
    pub fn bytes(requests: &[Self]) -> &[u8] {
        // SAFETY: all bytes of a request belong to a field.
        unsafe { slice::from_raw_parts(requests.as_ptr().cast(), size_of_val(requests)) }
    }

    /// Returns whether the kernel `weigh` has work with it. `vocab`: the size of the vocabulary.
    pub fn is_weighed(&self, vocab: u32) -> bool {
        let is_cut = (1..vocab).contains(&self.top_k) || self.nucleus != EVERY_SHARE;
        self.report != NO_REPORT || self.kind == SampleKind::Draw && is_cut
    }
}

const _: () = assert!(size_of::<SampleRequest>() == 128 && size_of::<SampleResult>() == 192);

/// The kernels.
#[derive(Clone, Debug)]
pub struct Sampling {
    adjust: Function,
    weigh: Function,
    choose: Function,
}

/// Operands, all addresses in device memory and aligned to 16 bytes.
#[derive(Clone, Copy, Debug)]
pub struct SamplingArgs {
    /// [`SampleRequest`]s: samples first, in the order of the plan, then scores.
    pub requests: u64,
    /// One word of 32 bits: the number of requests, at most `slots`.
    pub count: u64,
    /// [`Sampling::scratch_bytes`], which need no value.
    pub scratch: u64,
    /// [`SampleResult`]s, one per request.
    pub results: u64,
    /// The step's inputs, one i32 each: a token, or below zero sample `-1 - input` of the step before.
    pub tokens: u64,
    /// The tokens that the step before sampled, one u32 each.
    pub sampled_before: u64,
    /// Where the tokens of this step's samples go, one u32 each; may be `sampled_before`.
    pub sampled: u64,
    /// Tokens of the vocabulary, at least one and at most 2^24.
    pub vocab: u32,
    /// Most requests.
    pub slots: u32,
    /// Blocks that share a row: a power of two, at most [`PARTS_MAX`] ([`Sampling::parts`]). No bit depends on it.
    pub parts: u32,
    /// Whether a request may need `weigh` ([`SampleRequest::is_weighed`]); where not, it is left out.
    pub weighs: bool,
}

impl Sampling {
    /// Loads them. Errors: [`LoadError`].
    pub fn load(loader: &Loader) -> Result<Self, LoadError> {
        let [adjust, weigh, choose] = &SOURCES;
        Ok(Self {
            adjust: loader.module(adjust)?.function("sample_adjust")?,
            weigh: loader.module(weigh)?.function("sample_weigh")?,
            choose: loader.module(choose)?.function("sample_choose")?,
        })
    }

    /// Returns how many bytes of scratch so many requests take.
    pub const fn scratch_bytes(slots: usize) -> usize {
        slots * STATE_BYTES
    }

    /// Returns how many blocks should share a row where there are so many: enough to occupy a card, and no more.
    pub const fn parts(slots: u32) -> u32 {
        match slots {
            0..=8 => PARTS_MAX,
            9..=64 => 8,
            _ => 4,
        }
    }

    /// Queues them. Errors: of the driver.
    ///
    /// # Safety
    /// The operands must be as [`SamplingArgs`] and [`SampleRequest`] say, and nothing else may use what is written:
    /// scratch, results, `sampled` and adjusted rows.
    pub unsafe fn launch(&self, stream: &Stream, args: &SamplingArgs) -> Result<(), DriverError> {
        let &SamplingArgs { requests, count, scratch, vocab, slots, parts, .. } = args;
        assert!(parts.is_power_of_two() && parts <= PARTS_MAX, "{parts} blocks cannot share a row");
        let grid = |jobs| Grid { blocks: [parts, slots, jobs], overlaps: true, ..Grid::of(0, THREADS) };
        let words = Args::new().address(requests).address(count).address(scratch);
        let adjust = words.address(args.tokens).address(args.sampled_before).number(vocab);
        let choose = words.address(args.results).address(args.sampled).number(vocab);
        // SAFETY: as the caller says.
        unsafe {
            stream.launch(&self.adjust, grid(1), adjust)?;
            if args.weighs {
                stream.launch(&self.weigh, grid(JOBS), words.number(vocab))?;
            }
            stream.launch(&self.choose, grid(JOBS), choose)
        }
    }
}
