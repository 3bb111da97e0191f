//! The model as its clients see it: all that a router needs of it.

use crate::config::{Config, Router};
use crate::model_dir;
use domain::Token;
use domain::session::ModelShape;
use engine::models::ModelDescription;
use engine::spec::ModelSpec;
use engine::text::{ChatTemplate, Tokenizer};
use router::{ModelCard, OutputForms};
use std::error::Error;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Reads what the configured model is, with the name that clients call it. Errors: it is not there, or is no model.
pub(super) fn described(config: &Config) -> Result<ModelDescription, Box<dyn Error>> {
    let located = model_dir::locate(config.model.path.as_ref())?;
    let mut model = ModelDescription::read(&located.path)?;
    if let Some(name) = Some(config.model.name.clone()).filter(|name| !name.is_empty()).or(located.name) {
        model.name = name;
    }
    Ok(model)
}

/// Reads the tokenizer and the template, of which `router` says how messages and answers are read. Errors: they cannot
/// be read.
pub(super) fn model_card(model: &ModelDescription, router: &Router) -> Result<ModelCard, Box<dyn Error>> {
    let tokenizer = Tokenizer::open(&model.path)?;
    let template = ChatTemplate::open(&model.path)?;
    Ok(ModelCard {
        name: model.name.clone(),
        created: created(&model.path),
        forms: OutputForms::of(&router.tool_parser, &router.reasoning_parser, template.as_ref())?,
        template,
        specials: router.special_tokens.into(),
        sampling: model.sampling.clone(),
        eos: ends(&model.spec, &tokenizer),
        shape: shape(&model.spec),
        tokenizer,
    })
}

/// The tokens that end an answer: those that the model's configuration names, and the tokenizer's own.
pub(super) fn ends(spec: &ModelSpec, tokenizer: &Tokenizer) -> Vec<Token> {
    let own = tokenizer.eos().filter(|token| !spec.eos.contains(token));
    spec.eos.iter().copied().chain(own).collect()
}

/// By what a router knows its model again.
pub(super) fn shape(spec: &ModelSpec) -> ModelShape {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    ModelShape { vocab: number(spec.vocab), layers: number(spec.layers), hidden: number(spec.hidden) }
}

/// When the model's directory or file was written, in seconds since the Unix epoch; 0 where the file system does
/// not say.
fn created(path: &Path) -> u64 {
    let modified = path.metadata().and_then(|metadata| metadata.modified()).ok();
    modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |age| age.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_end_that_only_the_tokenizer_names_is_one() {
        let bundled = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-rust"));
        let ends_with = |config: &str| {
            let dir = tempfile::TempDir::new().expect("a directory");
            // All that a router needs: no weights.
            for file in ["config.json", "generation_config.json", "tokenizer.json"] {
                fs::copy(bundled.join(file), dir.path().join(file)).expect("copied");
            }
            fs::write(dir.path().join("tokenizer_config.json"), config).expect("written");
            let model = ModelDescription::read(dir.path()).expect("it can be read");
            model_card(&model, &Config::default().router).expect("it can be read").eos
        };
        assert_eq!(ends_with("{}"), [3]);
        assert_eq!(ends_with(r#"{"eos_token": "<|end|>"}"#), [3], "each once");
        assert_eq!(ends_with(r#"{"eos_token": "<|assistant|>"}"#), [3, 2]);
    }
}
