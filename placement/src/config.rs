//! Limits and estimates of a placement.

use std::time::Duration;

/// What a placement is given at start.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementConfig {
    /// Tokens per KV block: what one entry of a chain stands for.
    pub block_tokens: u32,
    /// KV bytes of a token over all groups.
    pub token_bytes: u64,
    /// Attempts at a request, the first included.
    pub attempts_max: u32,
    /// How long a lease lives without renewal; doubles after a handoff that lapsed.
    pub lease: Duration,
    /// Requests open at once; beyond it they are rejected.
    pub requests_max: usize,
    /// Entries of the prefix index over all workers; beyond it the worker with the most of them loses the end of
    /// the prefix that was used longest ago.
    pub index_blocks_max: usize,
    /// Whether prompts go through prefill workers.
    pub handoff: HandoffPolicy,
    /// Whether beginnings of prompts are fetched from workers that have them cached.
    pub fetch: FetchPolicy,
    /// A worker hears of this router, and is heard of, at least this often.
    pub heartbeat: Duration,
    /// A worker that says nothing for so long is lost.
    pub silence_max: Duration,
    /// What is assumed of a worker while neither it nor any other has measured.
    pub defaults: Rates,
}

/// What of a [`PlacementConfig`] can change while the placement runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementLimits {
    /// Attempts at a request. An open request that has had more ends with its next failure.
    pub attempts_max: u32,
    /// Requests open at once. Those that are open go on.
    pub requests_max: usize,
    /// Entries of the prefix index. Those beyond it are forgotten at once.
    pub index_blocks_max: usize,
    /// Whether prompts go through prefill workers, for attempts from now on.
    pub handoff: HandoffPolicy,
    /// Whether beginnings of prompts are fetched, for attempts from now on.
    pub fetch: FetchPolicy,
}

impl PlacementConfig {
    /// Returns the same with these limits.
    pub fn with(self, limits: PlacementLimits) -> Self {
        let PlacementLimits { attempts_max, requests_max, index_blocks_max, handoff, fetch } = limits;
        Self { attempts_max, requests_max, index_blocks_max, handoff, fetch, ..self }
    }
}

/// Whether prompts go through prefill workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandoffPolicy {
    /// Where that is predicted to cost less.
    #[default]
    Auto,
    /// Whenever a prefill worker is up.
    Always,
    /// Never: decode workers compute the prompts themselves.
    Never,
}

/// Whether a worker that computes a prompt fetches what another one has cached of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FetchPolicy {
    /// Where that is predicted to cost less than computing it.
    #[default]
    Auto,
    /// Wherever another worker has more of it.
    Always,
    /// Never.
    Never,
}

/// Speeds of a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Prompt tokens a second.
    pub prefill_tokens_per_s: f64,
    /// Seconds of a decode step.
    pub decode_step_s: f64,
    /// Bytes a second at which KV is fetched.
    pub fetch_bytes_per_s: f64,
    /// Tokens a second whose KV comes from the worker's host tier.
    pub host_tokens_per_s: f64,
    /// Tokens a second whose KV comes from its disk.
    pub disk_tokens_per_s: f64,
    /// Seconds that a handoff, or the fetch of a prefix, costs beside its bytes: messages, validation, a step's delay.
    pub handoff_s: f64,
}

impl Default for Rates {
    /// Guesses for a small model on a few CPU cores. They matter until the first reports only, but for `handoff_s`.
    fn default() -> Self {
        Self {
            prefill_tokens_per_s: 2_000.0,
            decode_step_s: 0.02,
            fetch_bytes_per_s: 1e9,
            host_tokens_per_s: 200_000.0,
            disk_tokens_per_s: 50_000.0,
            handoff_s: 0.002,
        }
    }
}
