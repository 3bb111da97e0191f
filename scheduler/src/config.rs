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

/// A rule that limits of a scheduler break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A limit that must not be zero is zero.
    #[error("block_tokens, running_max and waiting_max must be at least 1")]
    Zero,
    /// A chunk is no whole number of blocks.
    #[error("chunk_tokens ({chunk_tokens}) must be a multiple of block_tokens ({block_tokens})")]
    Chunk {
        /// The limit that is wrong.
        chunk_tokens: u32,
        /// Tokens per KV block.
        block_tokens: u32,
    },
    /// The running sequences could not all sample in one step.
    #[error(
        "samples_max ({samples_max}) must be at least running_max ({running_max}): every running sequence may sample \
         in the same step"
    )]
    Samples {
        /// The limit that is too low.
        samples_max: u32,
        /// Sequences that run at once.
        running_max: u32,
    },
    /// Decoding sequences could use up every step, so that no prompt is computed.
    #[error(
        "step_tokens_max ({step_tokens_max}) must be at least running_max + block_tokens - 1 ({step_tokens_min}), or \
         decoding sequences could starve a prompt"
    )]
    StepTokens {
        /// The limit that is too low.
        step_tokens_max: u32,
        /// The lowest value that is allowed.
        step_tokens_min: u32,
    },
}

impl SchedulerConfig {
    /// Checks that the limits can be kept together without starving a sequence. Errors: the rule that is broken.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self { step_tokens_max, chunk_tokens, running_max, waiting_max, block_tokens, samples_max } = *self;
        if block_tokens == 0 || running_max == 0 || waiting_max == 0 {
            return Err(ConfigError::Zero);
        }
        if chunk_tokens == 0 || chunk_tokens % block_tokens != 0 {
            return Err(ConfigError::Chunk { chunk_tokens, block_tokens });
        }
        if samples_max < running_max {
            return Err(ConfigError::Samples { samples_max, running_max });
        }
        // In addition to a prompt, at most `running_max - 1` sequences decode. What they leave must hold a block of the
        // prompt.
        let step_tokens_min = running_max.saturating_add(block_tokens - 1);
        if step_tokens_max < step_tokens_min {
            return Err(ConfigError::StepTokens { step_tokens_max, step_tokens_min });
        }
        Ok(())
    }
}
