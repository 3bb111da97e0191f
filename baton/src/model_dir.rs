//! Where the model is: the directory or GGUF file that a person names, or the bundled model.

use engine::checkpoint::gguf::GgufFile;
use std::path::{Path, PathBuf};

/// The bundled model, from a place where a copy of the project's data may lie.
const BUNDLED: &str = "models/tiny-rust";
/// Where the project was built.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// What every model directory has.
const CONFIG_FILE: &str = "config.json";

/// Why there is no model directory.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ModelDirError {
    /// Nothing is there.
    #[error("there is no model at {0}: name a GGUF file or a Hugging Face directory, the one that holds {CONFIG_FILE}")]
    Missing(PathBuf),
    /// A directory, but not of a model.
    #[error(
        "{0} holds no {CONFIG_FILE}, which says what the model is: name the directory of a Hugging Face model, or a GGUF file"
    )]
    NoConfig(PathBuf),
    /// The bundled model is in none of its places.
    #[error("the bundled model is not found; looked in {}; name a model with --model DIR", list(.0))]
    NotBundled(Vec<PathBuf>),
}

/// The directory of the model at `path`, which may be a file of it, or its GGUF file; an empty path means the bundled
/// model.
pub(crate) fn locate(path: &Path) -> Result<PathBuf, ModelDirError> {
    if path.as_os_str().is_empty() { bundled(&places()) } else { named(path) }
}

/// Where digests of weights are remembered, so that no start reads all of them again; `None` without a home directory.
pub(crate) fn digest_cache() -> Option<PathBuf> {
    std::env::home_dir().map(|home| home.join(".cache/baton/digests.json"))
}

fn named(path: &Path) -> Result<PathBuf, ModelDirError> {
    if !path.exists() {
        return Err(ModelDirError::Missing(path.to_owned()));
    }
    if GgufFile::is_at(path) {
        return Ok(path.to_owned());
    }
    let dir = match path.parent() {
        Some(parent) if path.is_file() && parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) if path.is_file() => parent,
        _ => path,
    };
    if dir.join(CONFIG_FILE).is_file() { Ok(dir.to_owned()) } else { Err(ModelDirError::NoConfig(dir.to_owned())) }
}

fn bundled(places: &[PathBuf]) -> Result<PathBuf, ModelDirError> {
    let found = places.iter().find(|place| place.join(CONFIG_FILE).is_file());
    found.cloned().ok_or_else(|| ModelDirError::NotBundled(places.to_vec()))
}

/// Where the bundled model may lie, in order: here, where the binary was installed or built, where its source is.
fn places() -> Vec<PathBuf> {
    let mut bases = vec![PathBuf::new()];
    if let Some(dir) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        bases.extend([dir.to_owned(), dir.join("../share/baton"), dir.join("../..")]);
    }
    bases.push(PathBuf::from(SOURCE));
    bases.iter().map(|base| base.join(BUNDLED)).collect()
}

fn list(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_model_is_found_without_a_name() {
        let dir = locate(Path::new("")).expect("it lies in the source");
        assert!(dir.join(CONFIG_FILE).is_file());
    }

    #[test]
    fn a_file_stands_for_its_directory() {
        let dir = Path::new(SOURCE).join(BUNDLED);
        assert_eq!(locate(&dir), Ok(dir.clone()));
        assert_eq!(locate(&dir.join("model.safetensors")), Ok(dir));
    }

    #[test]
    fn a_gguf_file_stands_for_itself() {
        let file = Path::new(SOURCE).join("tests/reference/gguf/mixed.gguf");
        assert_eq!(locate(&file), Ok(file));
    }

    #[test]
    fn what_is_no_model_is_said() {
        let nowhere = PathBuf::from("no/such/model");
        assert_eq!(locate(&nowhere), Err(ModelDirError::Missing(nowhere)));
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(locate(&source), Err(ModelDirError::NoConfig(source)));
    }

    #[test]
    fn every_place_is_listed() {
        let error = bundled(&["a".into(), "b/c".into()]).expect_err("nothing is there");
        assert!(error.to_string().contains("looked in a, b/c;"), "{error}");
    }
}
