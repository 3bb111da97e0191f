//! The model as its clients see it: all that a router needs of it.

use super::model::Source;
use domain::session::ModelShape;
use engine::spec::ModelSpec;
use engine::text::{ChatTemplate, Tokenizer};
use router::ModelCard;
use std::error::Error;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Reads the tokenizer and the template. Errors: they cannot be read.
pub(super) fn card(source: &Source) -> Result<ModelCard, Box<dyn Error>> {
    let files = &source.files;
    Ok(ModelCard {
        name: source.name.clone(),
        created: created(&files.path),
        tokenizer: Tokenizer::open(&source.path)?,
        template: ChatTemplate::open(&source.path)?,
        sampling: files.sampling.clone(),
        eos: files.spec.eos.clone(),
        shape: shape(&files.spec),
    })
}

/// By what a router knows its model again.
pub(super) fn shape(spec: &ModelSpec) -> ModelShape {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    ModelShape { vocab: number(spec.vocab), layers: number(spec.layers), hidden: number(spec.hidden) }
}

/// When the model's directory or file was written, in seconds since the Unix epoch; 0 where the file system does not say.
fn created(path: &Path) -> u64 {
    let modified = path.metadata().and_then(|metadata| metadata.modified()).ok();
    modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |age| age.as_secs())
}
