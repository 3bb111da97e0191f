//! What the machine does at best, beside which works are told.

use crate::card_limits::{CardLimits, CardSizes};
use crate::error::BenchError;
use crate::model::Model;
use crate::settings::Settings;
use domain::KvLayout;
use engine::cpu::{Arithmetic, Isa, Limits};
use engine::timed::Operation;
use serde::Serialize;

/// Bytes of a card that are read at most, and at least: a pass beside a model is short.
const CARD_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=2 << 30;
/// How often each limit of a card is taken.
const CARD_SAMPLES: usize = 5;

/// The limits of whatever computes.
#[derive(Clone, Debug)]
pub(crate) enum MachineLimits {
    /// Processors and the host's memory.
    Processor(Limits),
    /// A card.
    Card(Box<CardLimits>),
}

/// The limits of the machine, measured before and after; the better counts.
#[derive(Clone, Debug, Serialize)]
pub struct LimitFigures {
    /// A plain loop over memory in huge pages, all threads.
    pub read_gb_per_s: f64,
    /// Fused multiply-adds in registers, all threads; so below. `None`: not measured, on cards.
    pub f32_gflop_per_s: Option<f64>,
    /// `None`: the kernels multiply bf16 as f32.
    pub bf16_gflop_per_s: Option<f64>,
    /// `None`: not known.
    pub int8_gop_per_s: Option<f64>,
    /// The one of these that the weights' format is multiplied with; `None`: not known.
    pub weights_gflop_per_s: Option<f64>,
    /// All limits of the card, where one computes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<CardLimits>,
}

impl MachineLimits {
    /// Measures them. Errors: there is no memory.
    pub(crate) fn measure(settings: &Settings, model: &Model, isa: Isa) -> Result<Self, BenchError> {
        let Some(card) = &settings.card else {
            let limits = Limits::measure(settings.threads, isa).map_err(BenchError::Limits)?;
            return Ok(Self::Processor(limits));
        };
        let bytes = model.linear_bytes().clamp(*CARD_BYTES.start(), *CARD_BYTES.end());
        let sizes = CardSizes { bytes: Some(bytes), samples: CARD_SAMPLES };
        Ok(Self::Card(Box::new(CardLimits::measure(card, sizes)?)))
    }

    /// Returns the better of each of two measurements.
    pub(crate) fn or_better(self, other: Self) -> Self {
        match (self, other) {
            (Self::Processor(one), Self::Processor(other)) => Self::Processor(one.or_better(&other)),
            (Self::Card(one), Self::Card(other)) => Self::Card(Box::new(one.or_better(&other))),
            (one, _) => one,
        }
    }

    /// Returns how many bytes a second memory gives.
    pub(crate) fn read_bytes_per_s(&self) -> f64 {
        match self {
            Self::Processor(limits) => limits.read_bytes_per_s,
            Self::Card(limits) => limits.read_gb_per_s * 1e9,
        }
    }

    /// Returns how many operations a second there are of the kind that an operation needs; `None`: not known.
    pub(crate) fn operations_per_s(&self, operation: Operation, model: &Model, layout: &KvLayout) -> Option<f64> {
        match self {
            Self::Processor(limits) => limits.operations_per_s(match operation {
                Operation::Attention => Arithmetic::of(layout.dtype.into()),
                _ => Arithmetic::of(model.format()),
            }),
            Self::Card(limits) => Some(limits.bf16_tflop_per_s * 1e12),
        }
    }

    /// Returns them as the report has them. `weights`: operations a second of the weights' format.
    pub(crate) fn figures(&self, weights: Option<f64>) -> LimitFigures {
        let giga = |rate: f64| rate / 1e9;
        let read_gb_per_s = giga(self.read_bytes_per_s());
        let weights_gflop_per_s = weights.map(giga);
        match self {
            Self::Processor(limits) => LimitFigures {
                read_gb_per_s,
                f32_gflop_per_s: Some(giga(limits.f32_per_s)),
                bf16_gflop_per_s: limits.bf16_per_s.map(giga),
                int8_gop_per_s: limits.int8_per_s.map(giga),
                weights_gflop_per_s,
                card: None,
            },
            Self::Card(limits) => LimitFigures {
                read_gb_per_s,
                f32_gflop_per_s: None,
                bf16_gflop_per_s: Some(limits.bf16_tflop_per_s * 1e3),
                int8_gop_per_s: None,
                weights_gflop_per_s,
                card: Some(CardLimits::clone(limits)),
            },
        }
    }
}
