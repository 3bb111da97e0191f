//! Limits of a scheduler.

/// Limits, all inclusive. [`SchedulerConfig::check`] says how they must fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// Input tokens of a step.
    pub step_tokens_max: u32,
    /// Prompt tokens of one sequence in a step; a multiple of `block_tokens`.
    pub chunk_tokens: u32,
    /// Sequences that run at once; a prompt counts once for each token that it will sample.
    pub running_max: u32,
    /// New jobs of all kinds that wait at once; beyond it they are refused. Preempted ones, bounded by
    /// `running_max`, do not count.
    pub waiting_max: u32,
    /// Tokens per KV block.
    pub block_tokens: u32,
    /// Samples of a step.
    pub samples_max: u32,
}

impl SchedulerConfig {
    /// Returns whether the limits can be kept together without starving anyone. Errors: the rule that is broken, in
    /// words.
    pub fn check(&self) -> Result<(), String> {
        let Self { step_tokens_max, chunk_tokens, running_max, waiting_max, block_tokens, samples_max } = *self;
        if block_tokens == 0 || running_max == 0 || waiting_max == 0 {
            return Err("block_tokens, running_max and waiting_max must be at least 1".into());
        }
        if chunk_tokens == 0 || chunk_tokens % block_tokens != 0 {
            return Err(format!("chunk_tokens ({chunk_tokens}) must be a multiple of block_tokens ({block_tokens})"));
        }
        if samples_max < running_max {
            return Err(format!(
                "samples_max ({samples_max}) must be at least running_max ({running_max}): every running sequence may \
                 sample in the same step"
            ));
        }
        // Beside a prompt at most `running_max - 1` sequences decode; what they leave must hold a block of the prompt.
        let step_tokens_min = running_max.saturating_add(block_tokens - 1);
        if step_tokens_max < step_tokens_min {
            return Err(format!(
                "step_tokens_max ({step_tokens_max}) must be at least running_max + block_tokens - 1 \
                 ({step_tokens_min}), or decoding sequences could starve a prompt"
            ));
        }
        Ok(())
    }
}
