//! Model families: what config.json says, which tensors a model has, and the forward pass.
//!
//! [`FAMILIES`] is the table of what is supported. A family's file only reads its config into a
//! [`crate::spec::ModelSpec`]; the forward pass is one definition that follows the spec, and no family knows which
//! device runs it.

pub mod bind;
pub mod config;
pub mod decoder;
mod error;
mod families;
mod family;
mod files;
mod gemma2;
mod gemma3;
mod gguf;
mod granite;
mod info;
mod llama;
mod ministral3;
mod mistral;
mod olmo2;
mod phi3;
mod quantisation;
mod qwen2;
mod qwen3;
mod refusal;
mod rope;
pub mod tensors;
#[cfg(test)]
mod tests;
mod unsupported;
mod wrapper;

pub use error::ModelError;
pub use families::{FAMILIES, read_spec};
pub use family::Family;
pub use files::{ModelDescription, ModelFiles};
pub use info::{ModelInfo, Outline, TensorRow};
pub use refusal::{Feature, Refusal};
