//! Adapters of a model.

use std::fmt;
use std::sync::Arc;

/// The name of an adapter: a small change of a model's weights (LoRA), with which a sequence is computed. KV that was
/// computed with one is not that of the model alone, so it is part of the identity of blocks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Adapter(Arc<str>);

impl Adapter {
    /// Returns the adapter of this name. `None`: the name is empty, which stands for the model alone.
    pub fn named(name: &str) -> Option<Self> {
        (!name.is_empty()).then(|| Self(name.into()))
    }

    /// Returns its name, which is not empty.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "adapter {}", self.0)
    }
}
