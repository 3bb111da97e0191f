//! Where the model is: the directory, the GGUF file or the model of a hub that a person names. If none is named, it is
//! the chat model that was fetched for the first steps, or else the bundled model.

use crate::hub_model::{self, PullError};
use engine::checkpoint::gguf::GgufFile;
use hub::{Hub, HubError, ModelName, Preview};
use std::path::{Path, PathBuf};

/// The bundled model, from a place where a copy of the project's data may lie.
const BUNDLED: &str = "models/tiny-rust";
/// The chat model that `scripts/fetch-model` fetches, from the same place.
const FETCHED: &str = "models/fetched/SmolLM2-135M-Instruct-Q4_1.gguf";
/// Where the project was built.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// What every model directory has.
const CONFIG_FILE: &str = "config.json";

/// Why there is no model directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModelDirError {
    /// Nothing is there.
    #[error(
        "there is no model at {0}: name a GGUF file, a Hugging Face directory (the one that holds {CONFIG_FILE}), or a model \
         of a hub such as org/name"
    )]
    Missing(PathBuf),
    /// A directory, but not of a model.
    #[error("{dir} holds no {CONFIG_FILE}, which says what the model is: {}", hint(.dir))]
    NoConfig {
        /// The directory.
        dir: PathBuf,
    },
    /// The bundled model is in none of its places.
    #[error("the bundled model is not found; looked in {}; name a model with --model DIR", list(.0))]
    NotBundled(Vec<PathBuf>),
    /// A hub is not asked, or does not answer.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// It is not fetched from a hub.
    #[error(transparent)]
    Pull(#[from] PullError),
}

/// A model that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    /// The directory, or the GGUF file.
    pub(crate) path: PathBuf,
    /// The name by which a hub knows it; `None`: it lies under a name of its own.
    pub(crate) name: Option<String>,
}

/// Finds the model at `path`, which may be a directory, a file in it, a GGUF file, or the name of a model on a hub. An
/// empty path means the fetched chat model, or else the bundled model. What is missing of a hub's model is fetched.
pub(crate) fn locate(path: &Path) -> Result<Located, ModelDirError> {
    let here = |path| Located { path, name: None };
    if path.as_os_str().is_empty() {
        return unnamed(&bases()).map(here);
    }
    match (named(path), hub_name(path)) {
        (Err(ModelDirError::Missing(_)), Some(name)) => {
            let path = hub_model::cached_or_pulled(&name)?;
            Ok(Located { path, name: Some(name.to_string()) })
        }
        (found, _) => found.map(here),
    }
}

/// What can be looked at of a model.
pub(crate) enum Look {
    /// All of it is here.
    Here(Located),
    /// It is on a hub, and what describes it is here.
    OnHub(ModelName, Box<Preview>),
}

/// As [`locate`], but no weights are fetched.
pub(crate) fn look(path: &Path) -> Result<Look, ModelDirError> {
    let Some(name) = hub_name(path).filter(|_| !path.exists()) else { return locate(path).map(Look::Here) };
    let hub = Hub::from_env()?;
    match hub.cached(&name) {
        Some(path) => Ok(Look::Here(Located { path, name: Some(name.to_string()) })),
        None => {
            let preview = hub_model::preview(&hub, &name)?;
            Ok(Look::OnHub(name, Box::new(preview)))
        }
    }
}

/// Returns the name that a path may be on a hub: one whose folder exists here is a path that was mistyped.
fn hub_name(path: &Path) -> Option<ModelName> {
    let name = path.to_str()?.parse::<ModelName>().ok()?;
    let org = name.repo.split('/').next()?;
    (!Path::new(org).is_dir()).then_some(name)
}

/// Where digests of weights are remembered, so that no start reads all of them again; `None` without a home directory.
pub(crate) fn digest_cache() -> Option<PathBuf> {
    std::env::home_dir().map(|home| home.join(".cache/baton/digests.json"))
}

/// Returns where responses are kept if no other place is set; `None` without a home directory.
pub(crate) fn response_folder() -> Option<PathBuf> {
    std::env::home_dir().map(|home| home.join(".cache/baton/responses"))
}

/// Returns where compiled kernels of cards are kept, so that no start compiles them once more; `None` without a home
/// directory.
pub(crate) fn kernel_cache() -> Option<PathBuf> {
    std::env::home_dir().map(|home| home.join(".cache/baton/kernels"))
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
    if dir.join(CONFIG_FILE).is_file() {
        Ok(dir.to_owned())
    } else {
        Err(ModelDirError::NoConfig { dir: dir.to_owned() })
    }
}

/// Says what to do about a directory without config.json, by what it holds instead.
fn hint(dir: &Path) -> String {
    let entries = dir.read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let ends = |end: &str| names.iter().find(|name| name.ends_with(end));
    let has = |name: &str| names.iter().any(|other| other == name);
    if let Some(file) = ends(".gguf") {
        format!("name a GGUF file in it, such as {}", dir.join(file).display())
    } else if has("adapter_config.json") {
        "it is an adapter (LoRA); merge it into its model (`merge_and_unload` of peft) and name the result".to_owned()
    } else if has("model_index.json") {
        "it is a pipeline of models that make pictures; name a language model".to_owned()
    } else if has("params.json") {
        "it is in the form of its makers; fetch the model in the form of Hugging Face, or a GGUF of it".to_owned()
    } else if let Some(file) = ends(".bin").or_else(|| ends(".pth")).or_else(|| ends(".safetensors")) {
        format!("{file} is there, but weights alone are no model; fetch the other files, too")
    } else {
        "name the directory of a Hugging Face model, or a GGUF file".to_owned()
    }
}

/// Returns the model that is taken when none is named.
fn unnamed(bases: &[PathBuf]) -> Result<PathBuf, ModelDirError> {
    let places = |name: &str| bases.iter().map(|base| base.join(name)).collect::<Vec<_>>();
    let fetched = places(FETCHED).into_iter().find(|path| is_checked(path));
    let bundled = || places(BUNDLED).into_iter().find(|path| path.join(CONFIG_FILE).is_file());
    fetched.or_else(bundled).ok_or_else(|| ModelDirError::NotBundled(places(BUNDLED)))
}

/// Returns whether the checksum of a fetched file was right: the script touches a file beside it then.
fn is_checked(path: &Path) -> bool {
    let modified = |path: &Path| path.metadata().and_then(|metadata| metadata.modified());
    let mark = path.with_added_extension("checked");
    matches!((modified(path), modified(&mark)), (Ok(file), Ok(mark)) if mark > file)
}

/// Where the project's data may lie, in order: here, where the binary was installed or built, where its source is.
fn bases() -> Vec<PathBuf> {
    let mut bases = vec![PathBuf::new()];
    if let Some(dir) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        bases.extend([dir.to_owned(), dir.join("../share/baton"), dir.join("../..")]);
    }
    bases.push(PathBuf::from(SOURCE));
    bases
}

fn list(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn without_a_name_a_fetched_model_is_found_once_it_is_checked() {
        let dir = tempfile::TempDir::new().expect("a directory");
        let found = || unnamed(&[dir.path().to_owned()]).expect("one is found");
        let [bundled, fetched] = [BUNDLED, FETCHED].map(|name| dir.path().join(name));
        let write = |path: &Path, at_s: u64| {
            fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it can be made");
            let file = fs::File::create(path).expect("it can be written");
            file.set_modified(UNIX_EPOCH + Duration::from_secs(at_s)).expect("its time can be set");
        };
        write(&bundled.join(CONFIG_FILE), 0);
        assert_eq!(found(), bundled);
        write(&fetched, 20);
        assert_eq!(found(), bundled, "nobody looked at its checksum");
        let mark = fetched.with_added_extension("checked");
        write(&mark, 10);
        assert_eq!(found(), bundled, "it has changed since");
        write(&mark, 30);
        assert_eq!(found(), fetched);
    }

    #[test]
    fn a_file_stands_for_its_directory() {
        let dir = Path::new(SOURCE).join(BUNDLED);
        let path = |path: &Path| locate(path).expect("it is there").path;
        assert_eq!(path(&dir), dir);
        assert_eq!(path(&dir.join("model.safetensors")), dir);
    }

    #[test]
    fn a_gguf_file_stands_for_itself() {
        let file = Path::new(SOURCE).join("tests/reference/gguf/mixed.gguf");
        assert_eq!(locate(&file).expect("it is there"), Located { path: file, name: None });
    }

    #[test]
    fn what_is_no_model_is_said() {
        assert!(matches!(locate(Path::new("no/such/model")), Err(ModelDirError::Missing(_))));
        let source = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(matches!(locate(source), Err(ModelDirError::NoConfig { .. })));
    }

    #[test]
    fn a_directory_without_a_config_says_what_to_do() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = || named(dir.path()).expect_err("there is no config.json").to_string();
        let holds = |file: &str| std::fs::write(dir.path().join(file), b"").expect("it is written");
        assert!(error().contains("directory of a Hugging Face model"), "{}", error());
        for (file, said) in [
            ("pytorch_model.bin", "pytorch_model.bin is there"),
            ("params.json", "the form of its makers"),
            ("model_index.json", "make pictures"),
            ("adapter_config.json", "an adapter (LoRA)"),
            ("model-Q4_K_M.gguf", "model-Q4_K_M.gguf"),
        ] {
            holds(file);
            assert!(error().contains(said), "{}", error());
        }
    }

    #[test]
    fn a_name_of_a_hub_is_no_mistyped_path() {
        assert!(hub_name(Path::new("org/name:Q4_K_M")).is_some());
        assert_eq!(hub_name(Path::new("src/nothing")), None, "the folder is here: tests run in the crate's");
        assert_eq!(hub_name(Path::new("./org/name")), None);
        assert_eq!(hub_name(Path::new("/org/name")), None);
    }

    #[test]
    fn every_place_is_listed() {
        let error = unnamed(&["a".into(), "b/c".into()]).expect_err("nothing is there");
        assert!(error.to_string().contains("looked in a/models/tiny-rust, b/c/models/tiny-rust;"), "{error}");
    }
}
