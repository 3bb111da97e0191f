//! The loaded model, on the processors or on a card.

use crate::error::BenchError;
use crate::settings::CardChoice;
use engine::cpu::CpuModel;
use engine::cuda::{Card, CudaModel, KernelSet};
use engine::models::ModelFiles;
use engine::quant::WeightFormat;
use engine::spec::ModelSpec;
use engine::timed::LinearSize;
use std::sync::Arc;

/// A model where it is computed.
#[derive(Clone)]
pub(crate) enum Model {
    /// In the host's memory.
    Processor(Arc<CpuModel>),
    /// In a card's, with the kernels that compute it.
    Card(Arc<CudaModel>, KernelSet),
}

impl Model {
    /// Loads it; `progress` is called with the share of it that is done. Errors: there is no card, or no memory.
    pub(crate) fn load(
        files: &ModelFiles,
        card: Option<&CardChoice>,
        progress: &mut dyn FnMut(f32),
    ) -> Result<Self, BenchError> {
        let spec = files.spec.clone();
        Ok(match card {
            None => Self::Processor(Arc::new(CpuModel::load(spec, &files.checkpoint, progress)?)),
            Some(choice) => {
                let card = Card::open(choice.number, choice.kernels.as_deref())?;
                Self::Card(Arc::new(CudaModel::load(card, spec, &files.checkpoint, progress)?), choice.set)
            }
        })
    }

    pub(crate) fn spec(&self) -> &ModelSpec {
        match self {
            Self::Processor(model) => model.spec(),
            Self::Card(model, _) => model.spec(),
        }
    }

    /// Returns the number format of most of the weights.
    pub(crate) fn format(&self) -> WeightFormat {
        match self {
            Self::Processor(model) => model.format(),
            Self::Card(model, _) => model.format(),
        }
    }

    pub(crate) fn linears(&self) -> Vec<LinearSize> {
        match self {
            Self::Processor(model) => model.linears().collect(),
            Self::Card(model, _) => model.linears().collect(),
        }
    }

    /// Returns the bytes of weights that a decode step reads.
    pub(crate) fn linear_bytes(&self) -> u64 {
        self.linears().iter().map(|linear| linear.bytes as u64).sum()
    }
}
