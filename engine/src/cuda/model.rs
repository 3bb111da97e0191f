//! A model's weights in a card's memory.

use super::card::Card;
use super::kernels::{GROUP_MAX, HEAD_DIMS, Kernels};
use super::store::Store;
use super::weights::{Shares, Weights, form_of};
use crate::checkpoint::Checkpoint;
use crate::models::bind::LoadError;
use crate::models::decoder::Decoder;
use crate::models::tensors::{EMBEDDING, tensors};
use crate::ops::Linear;
use crate::quant::WeightFormat;
use crate::spec::ModelSpec;
use crate::timed::LinearSize;
use cuda::kernels::{AttentionShape, WeightForm};
use std::sync::Arc;

/// Numbers that products take at once: rows of weights are a multiple of it.
const INPUTS_STEP: usize = 32;

/// Weights of a model and how they are used.
pub struct CudaModel {
    pub(super) card: Arc<Card>,
    pub(super) kernels: Kernels,
    pub(super) spec: ModelSpec,
    pub(super) decoder: Decoder,
    pub(super) weights: Weights,
    /// The number format that most of the weights have in the checkpoint.
    pub(super) format: WeightFormat,
}

impl CudaModel {
    /// Brings the weights of `checkpoint` to a card. `progress` is called with the share that is done, 0 to 1. Errors:
    /// a tensor is missing or has the wrong shape, the kernels cannot do the model's shape, or there is no memory.
    pub fn load(
        card: Arc<Card>,
        spec: ModelSpec,
        checkpoint: &Checkpoint,
        progress: &mut dyn FnMut(f32),
    ) -> Result<Self, LoadError> {
        let shape = check_shape(&spec)?;
        let (forms, table) = forms(&spec, checkpoint)?;
        let kernels = Kernels::load(&card.loader, shape, &forms, table);
        let kernels = kernels.map_err(|error| LoadError::Unsupported(error.to_string()))?;
        let mut store = Store::new(&card)?;
        let decoder = Decoder::bind(&spec, checkpoint, &mut store, progress)?;
        let weights = store.weights;
        let format = checkpoint.format().unwrap_or(WeightFormat::Plain(spec.dtype));
        Ok(Self { card, kernels, spec, decoder, weights, format })
    }

    /// Returns the model.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Returns the card that it is on.
    pub fn card(&self) -> &Arc<Card> {
        &self.card
    }

    /// Returns the number format that most of the weights have in the checkpoint.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// Returns all linear layers.
    pub fn linears(&self) -> impl Iterator<Item = LinearSize> + '_ {
        self.weights.linears.iter().enumerate().map(|(index, linear)| LinearSize {
            role: self.decoder.role(Linear(index)),
            inputs: linear.inputs,
            outputs: linear.outputs,
            bytes: linear.matrices.iter().map(|matrix| matrix.weights.len()).sum(),
        })
    }

    /// Returns the bytes of the card's memory that the weights take.
    pub fn weight_bytes(&self) -> u64 {
        self.weights.shares.bytes()
    }

    /// Returns them by number format.
    pub fn shares(&self) -> &Shares {
        &self.weights.shares
    }
}

/// Returns the forms that a model's matrices have on a card, and that of its embedding. Errors: a tensor is missing, or
/// unreadable.
fn forms(spec: &ModelSpec, checkpoint: &Checkpoint) -> Result<(Vec<WeightForm>, WeightForm), LoadError> {
    let mut forms = Vec::new();
    let table = form_of(checkpoint.tensor(EMBEDDING)?.format);
    let is_product = |name: &str| name != EMBEDDING || spec.tied;
    for tensor in tensors(spec).iter().filter(|tensor| tensor.shape.len() == 2 && is_product(&tensor.name)) {
        let form = form_of(checkpoint.tensor(&tensor.name)?.format);
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    Ok((forms, table))
}

/// Returns the shape of a model's attention. Errors: no kernel does the model's shape.
pub(super) fn check_shape(spec: &ModelSpec) -> Result<AttentionShape, LoadError> {
    let refuse = |reason: String| Err(LoadError::Unsupported(reason));
    if !HEAD_DIMS.contains(&spec.head_dim) {
        let dims = HEAD_DIMS.map(|dim| dim.to_string()).join(", ");
        return refuse(format!("heads of {} numbers; the cuda device has kernels for {dims}", spec.head_dim));
    }
    let (heads, kv_heads, dim) = (spec.heads as u32, spec.kv_heads as u32, spec.head_dim as u32);
    let Some(shape) = AttentionShape::new(heads, kv_heads, dim) else {
        return refuse(format!(
            "{heads} query heads and {kv_heads} KV heads; the cuda device has kernels for up to {GROUP_MAX} query heads a KV head"
        ));
    };
    let widths = [("hidden_size", spec.hidden), ("the attention's width", spec.heads * spec.head_dim)];
    let mlp = spec.feed_forward.iter().map(|feed_forward| ("intermediate_size", feed_forward.width()));
    match widths.into_iter().chain(mlp).find(|(_, width)| !width.is_multiple_of(INPUTS_STEP)) {
        Some((what, width)) => refuse(format!("{what} is {width}; the cuda device needs multiples of {INPUTS_STEP}")),
        None => Ok(shape),
    }
}
