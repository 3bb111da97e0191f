//! The model that is served: its files, its weights once for all workers, and its card.

use crate::config::{Config, Device};
use crate::model_dir;
use crate::progress::Progress;
use domain::layout::BLOCK_TOKENS_DEFAULT;
use domain::{KvLayout, SamplingParams, Scope};
use engine::cpu::CpuModel;
use engine::models::ModelFiles;
use engine::sim::{self, CostModel, Preset, Vocabulary};
use engine::spec::ModelSpec;
use engine::text::{ChatTemplate, Tokenizer};
use router::ModelCard;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// What computes it.
pub(super) enum Engine {
    /// Its weights, for all workers.
    Cpu(Arc<CpuModel>),
    /// The times of another model on a card, and the tokens that it says: those that its tokenizer knows but for the ones
    /// that end a sequence.
    Sim(CostModel, Vocabulary),
}

/// A loaded model.
pub(super) struct Model {
    pub(super) name: String,
    pub(super) spec: ModelSpec,
    pub(super) layout: KvLayout,
    /// Digest of config and weights.
    pub(super) digest: [u8; 32],
    pub(super) engine: Engine,
    sampling: SamplingParams,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    created: u64,
}

impl Model {
    pub(super) fn load(config: &Config) -> Result<Self, Box<dyn Error>> {
        let dir = model_dir::locate(config.model.path.as_ref())?;
        let files = ModelFiles::load(&dir)?;
        let name = if config.model.name.is_empty() { files.name.clone() } else { config.model.name.clone() };
        let tokenizer = Tokenizer::open(&dir)?;
        let template = ChatTemplate::open(&dir)?;
        let spec = files.spec.clone();
        let block_tokens = Some(config.engine.block_tokens).filter(|&tokens| tokens > 0);
        let (layout, digest, engine) = match config.engine.device {
            Device::Sim => {
                let preset = Preset::named(&config.sim.preset).ok_or("sim.preset is no preset")?;
                let size = u32::try_from(spec.vocab.min(tokenizer.vocab_size()))?;
                let vocabulary = Vocabulary::new(size, spec.eos.iter().copied());
                let vocabulary = vocabulary.ok_or("the model's vocabulary has nothing but ends")?;
                let layout = sim::layout(preset.shape.layers, block_tokens.unwrap_or(BLOCK_TOKENS_DEFAULT));
                (layout, sim::DIGEST, Engine::Sim(CostModel::new(preset), vocabulary))
            }
            _ => {
                let layout = spec.kv_layout(config.model.kv_dtype.resolve(spec.dtype), block_tokens);
                let (digest, weights) = load_weights(&files, &name)?;
                (layout, digest, Engine::Cpu(Arc::new(weights)))
            }
        };
        let created = created(&files.dir);
        Ok(Self { name, spec, layout, digest, engine, sampling: files.sampling, tokenizer, template, created })
    }

    /// What the router tells of it. `context_tokens`: the longest sequence that the workers take; `scope`: what their
    /// block identities are derived under.
    pub(super) fn card(self, context_tokens: u32, scope: Scope) -> ModelCard {
        ModelCard {
            name: self.name,
            created: self.created,
            tokenizer: self.tokenizer,
            template: self.template,
            sampling: self.sampling,
            eos: self.spec.eos,
            context_tokens,
            vocab: self.spec.vocab as u32,
            scope,
        }
    }

    /// Whether it can chat.
    pub(super) fn has_template(&self) -> bool {
        self.template.is_some()
    }
}

/// The digest of config and weights, and the weights; says on the terminal how far it is.
fn load_weights(files: &ModelFiles, name: &str) -> Result<([u8; 32], CpuModel), Box<dyn Error>> {
    let cache = model_dir::digest_cache();
    let mut progress = Progress::begin(format!("reading {name}"));
    let digest = files.checkpoint.digest(cache.as_deref(), &mut |done, total| progress.update(done, total))?;
    progress.end();
    let bytes = files.checkpoint.bytes();
    let mut progress = Progress::begin(format!("loading {name}"));
    let weights = CpuModel::load(files.spec.clone(), &files.checkpoint, &mut |share| {
        progress.update((f64::from(share) * bytes as f64) as u64, bytes);
    })?;
    progress.end();
    Ok((digest, weights))
}

/// When the model's directory was written, in seconds since the Unix epoch; 0 where the file system does not say.
fn created(dir: &Path) -> u64 {
    let modified = dir.metadata().and_then(|metadata| metadata.modified()).ok();
    modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |age| age.as_secs())
}
