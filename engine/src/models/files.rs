//! A model's directory or GGUF file: what it is and its open weights.

use super::config::{Config, ConfigError, TIED};
use super::error::ModelError;
use super::families::read_spec;
use super::gguf;
use super::quantisation::MODELOPT_FILE;
use super::tensors::{EMBEDDING, HEAD};
use crate::checkpoint::gguf::GgufFile;
use crate::checkpoint::{CONFIG_FILE, Checkpoint, CheckpointError, OtherParts, Quantisation};
use crate::quant::WeightFormat;
use crate::spec::ModelSpec;
use domain::{Dtype, SamplingParams};
use std::path::{Path, PathBuf};

/// Name of the file with the tokens that end a generation.
pub(crate) const GENERATION_FILE: &str = "generation_config.json";

/// A model in a Hugging Face directory or a GGUF file.
#[derive(Debug)]
pub struct ModelFiles {
    /// The directory or file.
    pub path: PathBuf,
    /// Its own name: what the model is called unless told otherwise.
    pub name: String,
    /// What the model is. Its number format is the one that most bytes of the weights are in. Where those are quantised
    /// it is bf16, or f16 where config.json says so.
    pub spec: ModelSpec,
    /// How requests are sampled that do not say: what generation_config.json recommends, else the API's defaults.
    pub sampling: SamplingParams,
    /// Its weights.
    pub checkpoint: Checkpoint,
}

/// What a model is, without its weights: of a directory, only the small files are read.
#[derive(Debug)]
pub struct ModelDescription {
    /// The directory or file.
    pub path: PathBuf,
    /// Its own name: what the model is called unless told otherwise.
    pub name: String,
    /// What the model is. Its number format is the one that config.json names; the weights may be in another.
    pub spec: ModelSpec,
    /// How requests are sampled that do not say.
    pub sampling: SamplingParams,
    /// How the weights of a directory are quantised, if they are.
    pub quantisation: Option<Quantisation>,
    /// Whether the files say in words that the output projection is the embedding, or that it is not.
    says_tied: bool,
}

impl ModelFiles {
    /// Opens the model in a GGUF file or in a directory: config.json, generation_config.json where there is one,
    /// and the weights.
    pub fn load(path: &Path) -> Result<Self, ModelError> {
        let (description, checkpoint) = if GgufFile::is_at(path) {
            let file = GgufFile::open(path)?;
            (ModelDescription::of_gguf(&file)?, Checkpoint::from_gguf(file)?)
        } else {
            let (description, checkpoint) = (ModelDescription::of_dir(path)?, Checkpoint::open(path)?);
            match description.quantisation {
                Some(quantisation) => (description, checkpoint.with_quantisation(quantisation)),
                None => (description, checkpoint),
            }
        };
        Self::new(description, checkpoint)
    }

    /// Opens a GGUF file of `length` bytes of which only the first have come. Of weights, no bytes can be read; factors
    /// of rotary embeddings that lie among them count as 1.
    ///
    /// # Errors
    ///
    /// The model is not served, or too few bytes have come ([`GgufError`](crate::checkpoint::gguf::GgufError)).
    pub fn load_head(path: &Path, length: u64) -> Result<Self, ModelError> {
        let file = GgufFile::open_head(path, length)?;
        let description = ModelDescription::of_gguf(&file)?;
        Self::new(description, Checkpoint::from_gguf(file)?)
    }

    fn new(description: ModelDescription, checkpoint: Checkpoint) -> Result<Self, ModelError> {
        let ModelDescription { path, name, mut spec, sampling, says_tied, .. } = description;
        // The weights know better than config.json, which tools that convert weights forget to update.
        spec.dtype = match checkpoint.format() {
            Some(WeightFormat::Plain(dtype)) => dtype,
            Some(_) if spec.dtype == Dtype::F16 => Dtype::F16,
            Some(_) => Dtype::Bf16,
            None => spec.dtype,
        };
        spec.tied = spec.tied && !has_own_head(&checkpoint, says_tied)?;
        let OtherParts { tensors, bytes } = checkpoint.other_parts();
        if tensors > 0 {
            tracing::warn!(
                tensors,
                bytes,
                "this model reads more than text, such as images; its language model alone is served"
            );
        }
        Ok(Self { path, name, spec, sampling, checkpoint })
    }
}

impl ModelDescription {
    /// Reads what the model in a GGUF file or in a directory is: config.json, and generation_config.json where there
    /// is one. The weights of a directory need not be there.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        if GgufFile::is_at(path) { Self::of_gguf(&GgufFile::open(path)?) } else { Self::of_dir(path) }
    }

    fn of_gguf(file: &GgufFile) -> Result<Self, ModelError> {
        let description = Self::new(file.path(), gguf::read_spec(file)?, SamplingParams::default());
        let name = file.split_stem().unwrap_or_else(|| description.name.clone());
        Ok(Self { name, ..description })
    }

    fn of_dir(dir: &Path) -> Result<Self, ModelError> {
        let config_path = dir.join(CONFIG_FILE);
        let config = parse(&config_path)?;
        let generation_path = dir.join(GENERATION_FILE);
        let generation = if generation_path.is_file() { Some(parse(&generation_path)?) } else { None };
        let described = read_spec(&config, generation.as_ref()).and_then(|spec| Ok((spec, config.quantisation()?)));
        let (spec, mut quantisation) = described.map_err(|source| ModelError::Config { path: config_path, source })?;
        let modelopt_path = dir.join(MODELOPT_FILE);
        if quantisation.is_none() && modelopt_path.is_file() {
            quantisation = parse(&modelopt_path)?
                .modelopt_quantisation()
                .map_err(|source| ModelError::Config { path: modelopt_path, source })?;
        }
        let sampling = sampling_defaults(generation.as_ref())
            .map_err(|source| ModelError::Config { path: generation_path, source })?;
        let says_tied = config.get(TIED).is_some();
        Ok(Self { quantisation, says_tied, ..Self::new(dir, spec, sampling) })
    }

    fn new(path: &Path, spec: ModelSpec, sampling: SamplingParams) -> Self {
        let named = path.canonicalize().ok().and_then(|path| {
            let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
            Some(name?.to_string_lossy().into_owned())
        });
        let name = named.unwrap_or_else(|| spec.family.to_owned());
        Self { path: path.to_owned(), name, spec, sampling, quantisation: None, says_tied: false }
    }
}

/// Returns whether there is an output projection that differs from the embedding. It counts, though config.json says
/// that there is none. `says_tied`: config.json says it in words, and not by its family's default.
///
/// # Errors
///
/// There is one that cannot be read, unless config.json says in words that there is none.
///
/// Source: Hugging Face transformers, `modeling_utils.py`, `tie_weights`.
fn has_own_head(checkpoint: &Checkpoint, says_tied: bool) -> Result<bool, ModelError> {
    let head = match checkpoint.tensor(HEAD) {
        Ok(head) => head,
        Err(CheckpointError::NoTensor { .. }) => return Ok(false),
        Err(source) if says_tied => {
            tracing::warn!("the embedding stands for the output projection, as {CONFIG_FILE} says: {source}");
            return Ok(false);
        }
        Err(source) => return Err(ModelError::Head { source }),
    };
    let embedding = checkpoint.tensor(EMBEDDING)?;
    Ok(head.is_here()
        && embedding.is_here()
        && (head.format != embedding.format || head.rows(0..head.height()) != embedding.rows(0..embedding.height())))
}

/// Returns what generation_config.json recommends: `do_sample: false` and a temperature of 0 are greedy, a `top_k` of
/// -1 or 0 is off, and a value that is not there is the API's.
pub(super) fn sampling_defaults(generation: Option<&Config>) -> Result<SamplingParams, ConfigError> {
    let mut params = SamplingParams::default();
    let Some(generation) = generation else { return Ok(params) };
    let number = |key: &str, default: f32| generation.not_negative(key, default.into()).map(|value| value as f32);
    params.temperature = number("temperature", params.temperature)?;
    if !generation.flag("do_sample", true)? {
        params.temperature = 0.0;
    }
    // A sum of no probabilities would be reached by no token; what is meant is the most probable one.
    params.top_p = number("top_p", params.top_p)?.clamp(f32::MIN_POSITIVE, 1.0);
    params.top_k = generation.count_or_off("top_k")?.unwrap_or(params.top_k);
    params.min_p = number("min_p", params.min_p)?.min(1.0);
    params.repetition_penalty =
        generation.positive("repetition_penalty", Some(params.repetition_penalty.into()))? as f32;
    Ok(params)
}

fn parse(path: &Path) -> Result<Config, ModelError> {
    let bytes = std::fs::read(path).map_err(|source| ModelError::Read { path: path.to_owned(), source })?;
    Config::parse(&bytes).map_err(|source| ModelError::Config { path: path.to_owned(), source })
}
