//! The model that is served: what computes it, once for all workers of the process.

use super::model_card::ends;
use crate::config::{Config, Device};
use crate::model_dir;
use crate::output::human_bytes;
use crate::progress::Progress;
use crate::repacking;
use domain::layout::BLOCK_TOKENS_DEFAULT;
use domain::{Dtype, KvLayout};
use engine::cpu::CpuModel;
use engine::cuda::{Card, CudaModel};
use engine::grammar::Grammars;
use engine::models::bind::LoadError;
use engine::models::{ModelDescription, ModelFiles};
use engine::sim::{self, CostModel, Preset, Vocabulary};
use engine::spec::ModelSpec;
use engine::text::Tokenizer;
use std::error::Error;
use std::sync::Arc;

/// What computes it.
pub(super) enum Engine {
    /// Its weights, for all workers.
    Cpu(Arc<CpuModel>),
    /// Its weights on a card, for all workers.
    Cuda(Arc<CudaModel>),
    /// The times of another model on a card, and the tokens that it says: those that its tokenizer knows but for
    /// the ones that end a sequence.
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
    /// Compiles grammars for its tokens. `None`: it has no tokenizer.
    pub(super) grammars: Option<Arc<Grammars>>,
}

impl Model {
    /// Loads what workers need; says on the terminal how far it is. Errors: the weights cannot be read, or a
    /// setting does not suit them.
    pub(super) fn load(config: &Config, model: ModelDescription) -> Result<Self, Box<dyn Error>> {
        let ModelDescription { path, name, spec, .. } = model;
        let block_tokens = Some(config.engine.block_tokens).filter(|&tokens| tokens > 0);
        let (spec, layout, digest, engine) = match config.engine.device {
            Device::Sim => {
                let preset = Preset::named(&config.sim.preset).ok_or("sim.preset is no preset")?;
                let tokenizer = Tokenizer::open(&path)?;
                let size = u32::try_from(spec.vocab.min(tokenizer.vocab_size()))?;
                let vocabulary = Vocabulary::new(size, ends(&spec, &tokenizer));
                let vocabulary = vocabulary.ok_or("the model's vocabulary has nothing but ends")?;
                let layout = sim::layout(preset.shape.layers, block_tokens.unwrap_or(BLOCK_TOKENS_DEFAULT));
                (spec, layout, sim::DIGEST, Engine::Sim(CostModel::new(preset), vocabulary))
            }
            Device::Cuda => {
                let card = Card::open(config.engine.card, model_dir::kernel_cache().as_deref())?;
                tracing::info!("{}", card.describe());
                let files = ModelFiles::load(&path)?;
                let layout = files.spec.kv_layout(config.model.kv_dtype.resolve(Dtype::Bf16), block_tokens);
                let layout = layout.with_encoding(config.kv.encoding);
                let (digest, weights) = load(&files, &name, |progress| {
                    CudaModel::load(card, files.spec.clone(), &files.checkpoint, progress)
                })?;
                tracing::info!("weights on the card: {}", weights.shares().told(human_bytes));
                (files.spec, layout, digest, Engine::Cuda(Arc::new(weights)))
            }
            Device::Cpu => {
                let files = ModelFiles::load(&path)?;
                let layout = files.spec.kv_layout(config.model.kv_dtype.resolve(files.spec.dtype), block_tokens);
                let layout = layout.with_encoding(config.kv.encoding);
                // What cannot be loaded is known before all of it is read.
                let plan = CpuModel::plan(&files.spec, &files.checkpoint)?;
                if let Some(told) = repacking::told(&plan) {
                    tracing::info!("{name}: {told}");
                }
                let (digest, weights) =
                    load(&files, &name, |progress| CpuModel::load(files.spec.clone(), &files.checkpoint, progress))?;
                (files.spec, layout, digest, Engine::Cpu(Arc::new(weights)))
            }
        };
        let vocab = match &engine {
            Engine::Cpu(_) | Engine::Cuda(_) => spec.vocab,
            Engine::Sim(_, vocabulary) => vocabulary.size() as usize,
        };
        let grammars = Tokenizer::open(&path).ok().map(|tokenizer| Arc::new(Grammars::new(&tokenizer, vocab)));
        Ok(Self { name, spec, layout, digest, engine, grammars })
    }
}

/// Returns the digest of config and weights, and the weights as `weights` loads them. It is given what to tell the
/// share that is done.
fn load<M>(
    files: &ModelFiles,
    name: &str,
    weights: impl FnOnce(&mut dyn FnMut(f32)) -> Result<M, LoadError>,
) -> Result<([u8; 32], M), Box<dyn Error>> {
    let cache = model_dir::digest_cache();
    let mut progress = Progress::begin(format!("reading {name}"));
    let digest = files.checkpoint.digest(cache.as_deref(), &mut |done, total| progress.update(done, total))?;
    progress.end();
    let bytes = files.checkpoint.bytes();
    let mut progress = Progress::begin(format!("loading {name}"));
    let weights = weights(&mut |share| progress.update((f64::from(share) * bytes as f64) as u64, bytes))?;
    progress.end();
    Ok((digest, weights))
}
