//! Binds the tensors of a Hugging Face checkpoint, by their names, to a device's weight store.
//!
//! What is deliberately absent: how weights are packed (the store's matter) and what config.json says (that is in the
//! [`ModelSpec`] already).

use super::decoder::{Decoder, DecoderWeights, LayerWeights};
use crate::checkpoint::{Checkpoint, CheckpointError, TensorView};
use crate::ops::{Linear, LinearPart, Norm, StoreError, WeightStore};
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
        let table = binder.tensor("model.embed_tokens.weight", &[spec.vocab, spec.hidden])?;
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
            None => binder.linear(&[("lm_head", spec.vocab)], spec.hidden, false)?,
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
        let name = |part: &str| format!("model.layers.{index}.{part}");
        let (q, k, v) = (name("self_attn.q_proj"), name("self_attn.k_proj"), name("self_attn.v_proj"));
        let (gate, up) = (name("mlp.gate_proj"), name("mlp.up_proj"));
        let head_norms = if spec.qk_norm {
            let query = self.norm(&name("self_attn.q_norm.weight"), spec.head_dim)?;
            Some((query, self.norm(&name("self_attn.k_norm.weight"), spec.head_dim)?))
        } else {
            None
        };
        Ok(LayerWeights {
            attention_norm: self.norm(&name("input_layernorm.weight"), spec.hidden)?,
            qkv: self.linear(&[(&q, queries), (&k, keys), (&v, keys)], spec.hidden, spec.qkv_bias)?,
            head_norms,
            output: self.linear(&[(&name("self_attn.o_proj"), spec.hidden)], queries, spec.output_bias)?,
            mlp_norm: self.norm(&name("post_attention_layernorm.weight"), spec.hidden)?,
            gate_up: self.linear(&[(&gate, spec.ffn), (&up, spec.ffn)], spec.hidden, spec.mlp_bias)?,
            down: self.linear(&[(&name("mlp.down_proj"), spec.hidden)], spec.ffn, spec.mlp_bias)?,
        })
    }

    /// A linear layer made of the named ones, each with its number of outputs.
    fn linear(&mut self, parts: &[(&str, usize)], inputs: usize, bias: bool) -> Result<Linear, LoadError> {
        let parts = parts
            .iter()
            .map(|&(name, outputs)| {
                let weight = self.tensor(&format!("{name}.weight"), &[outputs, inputs])?;
                let bias = bias.then(|| self.tensor(&format!("{name}.bias"), &[outputs])).transpose()?;
                Ok(LinearPart { weight, bias })
            })
            .collect::<Result<Vec<_>, LoadError>>()?;
        Ok(self.store.linear(&parts)?)
    }

    fn norm(&mut self, name: &str, width: usize) -> Result<Norm, LoadError> {
        let weight = self.tensor(name, &[width])?;
        Ok(self.store.norm(&weight)?)
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
