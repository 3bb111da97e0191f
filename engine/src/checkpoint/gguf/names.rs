//! What a tensor of a GGUF file is called in a Hugging Face checkpoint, and in which order its rows are.
//!
//! Source: llama.cpp, `gguf-py/gguf/tensor_mapping.py` and the converters in `conversion`.

use crate::checkpoint::tensor::RowOrder;

/// A tensor as a Hugging Face checkpoint has it.
pub(in crate::checkpoint) struct HfTensor {
    /// Its name there.
    pub(in crate::checkpoint) name: String,
    /// How its rows are ordered in the GGUF file.
    pub(in crate::checkpoint) order: RowOrder,
}

/// The tensor `name` in files of this architecture whose heads have `head_dim` numbers. `None`: it
/// belongs to no layer's operations.
pub(in crate::checkpoint) fn hf_tensor(architecture: &str, name: &str, head_dim: usize) -> Option<HfTensor> {
    let (stem, end) = name.rsplit_once('.').filter(|(_, end)| ["weight", "bias"].contains(end))?;
    let plain = |name: &str| Some(HfTensor { name: format!("{name}.{end}"), order: RowOrder::AsStored });
    let Some(rest) = stem.strip_prefix("blk.") else {
        return match stem {
            "token_embd" => plain("model.embed_tokens"),
            "output_norm" => plain("model.norm"),
            "output" => plain("lm_head"),
            _ => None,
        };
    };
    let (layer, part) = rest.split_once('.')?;
    let layer: usize = layer.parse().ok()?;
    // The converters of these architectures reorder the rows of queries and keys for a rotary embedding of neighbours.
    let interleaved = ["llama", "mistral3", "granite"].contains(&architecture) && ["attn_q", "attn_k"].contains(&part);
    let order = if interleaved { RowOrder::Interleaved { head_dim } } else { RowOrder::AsStored };
    let both = ["gemma2", "gemma3"].contains(&architecture);
    let part = match part {
        "attn_norm" => "input_layernorm",
        "ffn_norm" if both => "pre_feedforward_layernorm",
        "ffn_norm" | "post_attention_norm" => "post_attention_layernorm",
        "post_ffw_norm" => "post_feedforward_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_qkv" => "self_attn.qkv_proj",
        "attn_output" => "self_attn.o_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" if architecture == "phi3" => "mlp.gate_up_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        _ => return None,
    };
    Some(HfTensor { name: format!("model.layers.{layer}.{part}.{end}"), order })
}
