//! A model's directory: what it is and its open weights.

use super::config::{Config, ConfigError};
use super::read_spec;
use crate::checkpoint::{CONFIG_FILE, Checkpoint, CheckpointError};
use crate::spec::ModelSpec;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the file with the tokens that end a generation.
pub(crate) const GENERATION_FILE: &str = "generation_config.json";

/// A model in a Hugging Face directory.
#[derive(Debug)]
pub struct ModelFiles {
    /// The directory.
    pub dir: PathBuf,
    /// The directory's own name: what the model is called unless told otherwise.
    pub name: String,
    /// What the model is. Its number format is the one that most bytes of the weights are in.
    pub spec: ModelSpec,
    /// Its weights.
    pub checkpoint: Checkpoint,
}

/// Why a model cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file of it cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of it describes something that cannot be run.
    #[error("{path}: {source}")]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ConfigError,
    },
    /// Its weights cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl ModelFiles {
    /// Opens the model in `dir`: config.json, generation_config.json where there is one, and the weights.
    pub fn load(dir: &Path) -> Result<Self, ModelError> {
        let config_path = dir.join(CONFIG_FILE);
        let config = parse(&config_path)?;
        let generation_path = dir.join(GENERATION_FILE);
        let generation = if generation_path.is_file() { Some(parse(&generation_path)?) } else { None };
        let mut spec = read_spec(&config, generation.as_ref())
            .map_err(|source| ModelError::Config { path: config_path, source })?;
        let checkpoint = Checkpoint::open(dir)?;
        // The weights know better than config.json, which tools that convert weights forget to update.
        spec.dtype = checkpoint.dtype().unwrap_or(spec.dtype);
        let named = dir.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let name = named.unwrap_or_else(|| spec.family.to_owned());
        Ok(Self { dir: dir.to_owned(), name, spec, checkpoint })
    }
}

fn parse(path: &Path) -> Result<Config, ModelError> {
    let bytes = std::fs::read(path).map_err(|source| ModelError::Read { path: path.to_owned(), source })?;
    Config::parse(&bytes).map_err(|source| ModelError::Config { path: path.to_owned(), source })
}
