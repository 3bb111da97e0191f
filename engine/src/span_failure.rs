//! Why a span fails while the rest of its step does not: the same words on every device.

use crate::masks::MASKS_WAIT_MAX;
use crate::sampling::SampleError;
use domain::plan::Span;

/// Why a span failed in a step whose other spans did not.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub(crate) enum SpanFailure {
    /// An input is a token that the step before was to sample and did not.
    #[error("the step before, which sampled an input, failed")]
    Input,
    /// Numbers that the model computed are infinite or NaN.
    #[error("what the model computes for positions {first} to {last} is not finite")]
    NotFinite {
        /// Position of the span's first row.
        first: u32,
        /// Position of its last row.
        last: usize,
    },
    /// No token could be sampled.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A mask of one of its samples did not come in time.
    #[error("a mask of its samples did not come within {} s", MASKS_WAIT_MAX.as_secs())]
    NoMask,
}

impl SpanFailure {
    /// Says that the model has no numbers for a span.
    pub(crate) fn not_finite(span: &Span) -> Self {
        Self::NotFinite { first: span.start, last: span.start as usize + span.inputs.len() - 1 }
    }
}
