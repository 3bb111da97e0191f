//! Binds the tensors of a Hugging Face checkpoint, by their names, to a device's weight store.
//!
//! What is deliberately absent: how weights are packed (the store's matter) and what config.json says (that is in the
//! [`ModelSpec`] already).

use super::decoder::{Decoder, DecoderWeights, LayerWeights};
use super::tensors::{EMBEDDING, NormNames, qk_norm_widths};
use crate::checkpoint::{Checkpoint, CheckpointError, TensorView};
use crate::ops::{Linear, LinearMatrix, Norm, StoreError, WeightStore};
use crate::spec::ModelSpec;

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A tensor is missing or unreadable.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A tensor has another shape than config.json implies.
    #[error("tensor {name:?} has the shape {found:?}, config.json implies {expected:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape by config.json.
        expected: Vec<usize>,
        /// Its shape in the checkpoint.
        found: Vec<usize>,
    },
    /// The device cannot run such a model.
    #[error("the device cannot run this model: {0}")]
    Unsupported(String),
    /// The weights do not fit the device.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Decoder {
    /// Puts all weights that `spec` asks for into `store`. `progress` is called with the share that is done, 0 to 1.
    pub fn bind(
        spec: &ModelSpec,
        checkpoint: &Checkpoint,
        store: &mut impl WeightStore,
        progress: &mut dyn FnMut(f32),
    ) -> Result<Self, LoadError> {
        let mut binder = Binder { spec, checkpoint, store };
        // The embedding and the head count as a layer each.
        let parts = (spec.layers + 2) as f32;
        progress(0.0);
        let table = binder.tensor(EMBEDDING, &[spec.vocab, spec.hidden])?;
        let (embedding, tied_head) = if spec.tied {
            let (embedding, head) = binder.store.tied_embedding(&table)?;
            (embedding, Some(head))
        } else {
            (binder.store.embedding(&table)?, None)
        };
        let mut layers = Vec::with_capacity(spec.layers);
        for index in 0..spec.layers {
            progress((index + 1) as f32 / parts);
            layers.push(binder.layer(index)?);
        }
        progress((spec.layers + 1) as f32 / parts);
        let norm = binder.norm("model.norm.weight", spec.hidden)?;
        let head = match tied_head {
            Some(head) => head,
            None => binder.linear(&[("lm_head".to_owned(), spec.vocab)], spec.hidden, false)?,
        };
        progress(1.0);
        Ok(Self::new(spec, DecoderWeights { embedding, layers, norm, head }))
    }
}

/// The three sides of binding.
struct Binder<'a, S> {
    spec: &'a ModelSpec,
    checkpoint: &'a Checkpoint,
    store: &'a mut S,
}

impl<'a, S: WeightStore> Binder<'a, S> {
    fn layer(&mut self, index: usize) -> Result<LayerWeights, LoadError> {
        let spec = self.spec;
        let (queries, keys) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let width = spec.feed_forward[index].width();
        let name = |part: &str| format!("model.layers.{index}.{part}");
        let norms = NormNames::of(spec.norms);
        let head_norms = match qk_norm_widths(spec) {
            Some((query, key)) => {
                let query = self.norm(&name("self_attn.q_norm.weight"), query)?;
                Some((query, self.norm(&name("self_attn.k_norm.weight"), key)?))
            }
            None => None,
        };
        let (qkv, gate_up) = if spec.fused {
            let (qkv, gate_up) = (name("self_attn.qkv_proj"), name("mlp.gate_up_proj"));
            (vec![(qkv, queries + 2 * keys)], vec![(gate_up, 2 * width)])
        } else {
            let (q, k, v) = (name("self_attn.q_proj"), name("self_attn.k_proj"), name("self_attn.v_proj"));
            let (gate, up) = (name("mlp.gate_proj"), name("mlp.up_proj"));
            (vec![(q, queries), (k, keys), (v, keys)], vec![(gate, width), (up, width)])
        };
        Ok(LayerWeights {
            attention_norm: self.layer_norm(index, norms.attention)?,
            qkv: self.linear(&qkv, spec.hidden, spec.qkv_bias)?,
            head_norms,
            output: self.linear(&[(name("self_attn.o_proj"), spec.hidden)], queries, spec.output_bias)?,
            attention_post_norm: self.layer_norm(index, norms.attention_post)?,
            mlp_norm: self.layer_norm(index, norms.mlp)?,
            gate_up: {
                let matrices = self.matrices(&gate_up, spec.hidden, spec.mlp_bias)?;
                self.store.gate_up(&matrices)?
            },
            down: self.linear(&[(name("mlp.down_proj"), spec.hidden)], width, spec.mlp_bias)?,
            mlp_post_norm: self.layer_norm(index, norms.mlp_post)?,
        })
    }

    /// A norm of layer `index` over the residual stream, where the family has it.
    fn layer_norm(&mut self, index: usize, name: Option<&str>) -> Result<Option<Norm>, LoadError> {
        let hidden = self.spec.hidden;
        name.map(|name| self.norm(&format!("model.layers.{index}.{name}.weight"), hidden)).transpose()
    }

    /// A linear layer made of the named ones, each with its number of outputs.
    fn linear(&mut self, parts: &[(String, usize)], inputs: usize, bias: bool) -> Result<Linear, LoadError> {
        let parts = self.matrices(parts, inputs, bias)?;
        Ok(self.store.linear(&parts)?)
    }

    /// Returns the named matrices, each with its number of outputs.
    fn matrices(
        &self,
        parts: &[(String, usize)],
        inputs: usize,
        bias: bool,
    ) -> Result<Vec<LinearMatrix<'a>>, LoadError> {
        let matrix = |&(ref name, outputs): &(String, usize)| {
            let weight = self.tensor(&format!("{name}.weight"), &[outputs, inputs])?;
            let bias = bias.then(|| self.tensor(&format!("{name}.bias"), &[outputs])).transpose()?;
            Ok(LinearMatrix { weight, bias })
        };
        parts.iter().map(matrix).collect()
    }

    fn norm(&mut self, name: &str, width: usize) -> Result<Norm, LoadError> {
        let weight = self.tensor(name, &[width])?;
        Ok(self.store.norm(&weight, self.spec.norm_offset)?)
    }

    /// The tensor `name`, which must have this shape.
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'a>, LoadError> {
        let tensor = self.checkpoint.tensor(name)?;
        if tensor.shape != shape {
            return Err(LoadError::Shape { name: name.to_owned(), expected: shape.to_vec(), found: tensor.shape });
        }
        Ok(tensor)
    }
}
