//! What a rank holds of a model's cache.

use super::ModelLayout;
use std::ops::Range;

/// A range of layers, and in them a range of heads.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shard {
    /// Model layers.
    pub layers: Range<u16>,
    /// KV heads of each group, since groups may have differently many.
    pub heads: Vec<Range<u32>>,
}

impl Shard {
    /// Returns all of the model.
    pub fn whole(model: &ModelLayout) -> Self {
        let heads = model.groups.iter().map(|group| 0..group.kind.heads()).collect();
        Self { layers: 0..layers_end(model), heads }
    }

    /// Returns whether the model has all that it names, which is at least a layer, and a head of each group.
    pub(super) fn is_of(&self, model: &ModelLayout) -> bool {
        let is_of_group =
            |(heads, group): (&Range<u32>, &super::KvGroup)| !heads.is_empty() && heads.end <= group.kind.heads();
        !self.layers.is_empty()
            && self.layers.end <= layers_end(model)
            && self.heads.len() == model.groups.len()
            && self.heads.iter().zip(&model.groups).all(is_of_group)
    }
}

/// Returns the number behind the last layer.
fn layers_end(model: &ModelLayout) -> u16 {
    model.groups.iter().filter_map(|group| group.layers.last()).max().map_or(0, |&last| last + 1)
}
