//! What the files of a model directory are called.

/// Name of the weights where they are one file.
pub(crate) const WEIGHTS_FILE: &str = "model.safetensors";
/// Name of the table that says which file holds which tensor, where they are many.
pub(crate) const INDEX_FILE: &str = "model.safetensors.index.json";
/// Name of the model's description.
pub(crate) const CONFIG_FILE: &str = "config.json";
