//! The simulated device: a fake model on real KV memory, and a cost model for time.
//!
//! Three parts that know nothing of each other: `model` writes tags into KV pools and makes tokens out of the tags
//! that it reads back, so that a lost, swapped, torn or early-reused block changes the text; `cost` says how long
//! a card of a data centre would take for a plan; `device` joins the two in real time. `oracle` tells from the
//! tokens alone what an undisturbed run says. Who simulates in virtual time takes the first two and leaves
//! `device` aside.
//!
//! The layout is the preset's in its layers alone: tags are two words, so a layer slice is far smaller than a model's,
//! pools are small, and what a transfer moves is not what it would be.
//!
//! What is deliberately absent: weights, logits and everything that sampling does with them. The model is certain
//! of each of its tokens; temperature, penalties and biases change nothing.

mod cost;
mod device;
mod model;
mod oracle;
mod preset;
mod slots;
mod tags;
#[cfg(test)]
mod tests;

pub use cost::{CostModel, StepTime};
pub use device::{Course, SimConfig, SimDevice, SimError};
pub use model::SimModel;
pub use oracle::Oracle;
pub use preset::{Card, Precision, Preset, Shape};
pub use slots::Slots;
pub use tags::Vocabulary;

use domain::{Dtype, Encoding, KvGroup, KvKind, KvLayout, ModelLayout};

/// Numbers of a head in the pools: two single-precision numbers are the 8 bytes of a tag.
pub const HEAD_DIM: u32 = 2;

/// In place of a digest of weights: what the tags are computed by. Changes when that does.
pub const DIGEST: [u8; 32] = *b"baton sim: tags of two words, 1.";

/// Returns the layout of `layers` layers with full attention, one head each, its slices just large enough for tags: 16
/// bytes a token and layer.
pub fn layout(layers: u16, block_tokens: u32) -> KvLayout {
    let group = KvGroup { layers: (0..layers).collect(), kind: KvKind::of_heads(1, HEAD_DIM), window: None };
    KvLayout::whole(ModelLayout { block_tokens, dtype: Dtype::F32, encoding: Encoding::Exact, groups: vec![group] })
}
