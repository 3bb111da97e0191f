//! Which files of a model Baton reads. Pure: a listing in, files out.

use crate::listing::{HubFile, Listing};
use crate::name::ModelName;
use crate::walk::files_below;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The weights of a model that has one file of them.
const WEIGHTS: &str = "model.safetensors";
/// Which weights lie in which file, of a model that has many.
const INDEX: &str = "model.safetensors.index.json";
/// The description of every model that is no GGUF file.
const CONFIG: &str = "config.json";
/// Templates beside the first one.
const TEMPLATES: &str = "additional_chat_templates/";

/// The files to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// In the order in which they are fetched, small ones first.
    pub files: Vec<HubFile>,
    /// The GGUF file to open, the first of its parts; `None`: the folder is the model.
    pub opens: Option<String>,
}

/// Why nothing can be selected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// A repository of GGUF files, and none is named.
    #[error("{repo} holds {} GGUF models; name one of them, such as {repo}:{}:{}", .choices.len(), .choices[0].0, show(.choices))]
    Ambiguous {
        /// `org/name`.
        repo: String,
        /// Paths of the files (the first part of each), and bytes.
        choices: Vec<(String, u64)>,
    },
    /// The file that was named is not there.
    #[error("{repo} holds no GGUF file {file:?}; there {}", there_are(.choices))]
    NoSuchFile {
        /// `org/name`.
        repo: String,
        /// What was named.
        file: String,
        /// Paths of the files (the first part of each), and bytes.
        choices: Vec<(String, u64)>,
    },
    /// A part of a model that is split is missing.
    #[error("{repo} holds only {found} of the {expected} parts of {file}")]
    PartsMissing {
        /// `org/name`.
        repo: String,
        /// The first part.
        file: String,
        /// How many parts are there.
        found: usize,
        /// How many the names promise.
        expected: usize,
    },
    /// Nothing that Baton reads.
    #[error("{repo} holds {what}, and Baton reads safetensors with a config.json, and GGUF")]
    NoWeights {
        /// `org/name`.
        repo: String,
        /// What it holds instead.
        what: &'static str,
    },
}

/// Selects what Baton reads of a model.
///
/// # Errors
///
/// The repository holds no model that Baton reads, or more than one and `name` says not which.
pub fn select(listing: &Listing, name: &ModelName) -> Result<Selection, SelectError> {
    match &name.file {
        Some(file) => select_gguf(listing, name, file),
        None if has_safetensors(listing) => Ok(select_folder(listing)),
        None => {
            let mut choices = gguf_models(listing);
            match choices.len() {
                0 => Err(SelectError::NoWeights { repo: name.repo.clone(), what: what_else(listing) }),
                1 => gguf_parts(listing, name, &choices.remove(0).0),
                _ => Err(SelectError::Ambiguous { repo: name.repo.clone(), choices }),
            }
        }
    }
}

/// Selects one GGUF file by its path, or by the quantisation that its name holds.
fn select_gguf(listing: &Listing, name: &ModelName, file: &str) -> Result<Selection, SelectError> {
    if file.ends_with(".gguf") && listing.file(file).is_some() {
        return gguf_parts(listing, name, file);
    }
    let choices = gguf_models(listing);
    let named: Vec<_> = choices.iter().filter(|(path, _)| holds_word(path, file)).collect();
    match named.as_slice() {
        [(path, _)] => gguf_parts(listing, name, path),
        _ => Err(SelectError::NoSuchFile { repo: name.repo.clone(), file: file.to_owned(), choices }),
    }
}

/// Selects the safetensors of a model, and every small file that may describe them.
fn select_folder(listing: &Listing) -> Selection {
    let many = listing.file(INDEX).is_some();
    let is_weights = |path: &str| {
        if many { path.starts_with("model-") && path.ends_with(".safetensors") } else { path == WEIGHTS }
    };
    let is_small = |path: &str| {
        let (json, template) = (path.ends_with(".json"), path.ends_with(".jinja"));
        (json || template) && !path.contains('/') || template && path.starts_with(TEMPLATES)
    };
    let mut files: Vec<_> =
        listing.files.iter().filter(|file| is_small(&file.path) || is_weights(&file.path)).cloned().collect();
    files.sort_by_key(|file| is_weights(&file.path));
    Selection { files, opens: None }
}

/// Selects all parts of the GGUF model whose first, or only, part is `first`.
fn gguf_parts(listing: &Listing, name: &ModelName, first: &str) -> Result<Selection, SelectError> {
    let paths = match split_of(first) {
        Some((stem, _, parts)) => (1..=parts).map(|part| format!("{stem}-{part:05}-of-{parts:05}.gguf")).collect(),
        None => vec![first.to_owned()],
    };
    let files: Vec<_> = paths.iter().filter_map(|path| listing.file(path)).cloned().collect();
    if files.len() < paths.len() {
        let (repo, file) = (name.repo.clone(), first.to_owned());
        return Err(SelectError::PartsMissing { repo, file, found: files.len(), expected: paths.len() });
    }
    Ok(Selection { files, opens: Some(paths[0].clone()) })
}

/// Returns the GGUF models of a repository: the first part of each, and the bytes of all its parts. Projectors of
/// images are no models.
fn gguf_models(listing: &Listing) -> Vec<(String, u64)> {
    let mut models: Vec<(String, u64)> = Vec::new();
    for file in listing.files.iter().filter(|file| file.path.ends_with(".gguf") && !file.path.contains("mmproj")) {
        match split_of(&file.path) {
            None => models.push((file.path.clone(), file.bytes)),
            Some((stem, _, parts)) => {
                let first = format!("{stem}-00001-of-{parts:05}.gguf");
                match models.iter_mut().find(|(path, _)| *path == first) {
                    Some((_, bytes)) => *bytes += file.bytes,
                    None => models.push((first, file.bytes)),
                }
            }
        }
    }
    models.sort();
    models
}

/// Splits `stem-00002-of-00005.gguf` into stem, number and count. Source: llama.cpp, `llama_split_path`.
fn split_of(path: &str) -> Option<(&str, u32, u32)> {
    let rest = path.strip_suffix(".gguf")?;
    let (rest, count) = rest.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| (text.len() == 5).then(|| text.parse().ok()).flatten();
    Some((stem, digits(number)?, digits(count)?))
}

/// Says whether `word` stands in the name of a file as a whole: `Q4_K` does not in `x-Q4_K_M.gguf`.
fn holds_word(path: &str, word: &str) -> bool {
    let (path, word) = (path.to_ascii_lowercase(), word.to_ascii_lowercase());
    let is_end = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_ascii_alphanumeric() && letter != '_');
    path.match_indices(&word)
        .any(|(at, _)| is_end(path[..at].chars().next_back()) && is_end(path[at + word.len()..].chars().next()))
}

fn has_safetensors(listing: &Listing) -> bool {
    listing.file(CONFIG).is_some() && (listing.file(INDEX).is_some() || listing.file(WEIGHTS).is_some())
}

/// Says what a repository holds that Baton does not read.
fn what_else(listing: &Listing) -> &'static str {
    let has = |end: &str| listing.files.iter().any(|file| file.path.ends_with(end));
    if has("adapter_model.safetensors") {
        "an adapter (LoRA) and no model of its own"
    } else if has(".safetensors") {
        "safetensors without a config.json or under other names"
    } else if has(".bin") || has(".pth") || has(".pt") {
        "weights of PyTorch (pickle)"
    } else if has(".onnx") {
        "ONNX"
    } else {
        "no weights"
    }
}

fn show(choices: &[(String, u64)]) -> String {
    choices.iter().map(|(path, bytes)| format!("\n  {path} ({:.2} GB)", *bytes as f64 / 1e9)).collect()
}

fn there_are(choices: &[(String, u64)]) -> String {
    if choices.is_empty() { "is none".to_owned() } else { format!("are:{}", show(choices)) }
}

/// Finds a complete model in a folder of the cache: the folder itself, or the GGUF file that `name` means.
pub(crate) fn find_complete(snapshot: &Path, name: &ModelName) -> Option<PathBuf> {
    let paths = files_below(snapshot);
    let file = |path: &String| HubFile {
        path: path.clone(),
        bytes: 0,
        checksum: crate::listing::Checksum::GitSha1(String::new()),
    };
    let listing = Listing { commit: String::new(), files: paths.iter().map(file).collect() };
    let selection = select(&listing, name).ok()?;
    match selection.opens {
        Some(file) => Some(snapshot.join(file)),
        None => has_all_weights(snapshot, &paths).then(|| snapshot.to_owned()),
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: std::collections::BTreeMap<String, String>,
}

/// Says whether every file that the index of a model names is there.
fn has_all_weights(snapshot: &Path, paths: &BTreeSet<String>) -> bool {
    if !paths.contains(INDEX) {
        return paths.contains(WEIGHTS);
    }
    let index = std::fs::read(snapshot.join(INDEX)).ok().and_then(|json| serde_json::from_slice::<Index>(&json).ok());
    index.is_some_and(|index| index.weight_map.values().all(|file| paths.contains(file)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::Checksum;

    fn select_of(name: &str, paths: &[&str]) -> Result<(Vec<String>, Option<String>), SelectError> {
        let file =
            |path: &&str| HubFile { path: (*path).to_owned(), bytes: 1 << 30, checksum: Checksum::GitSha1("0".into()) };
        let listing = Listing { commit: "0".repeat(40), files: paths.iter().map(file).collect() };
        let selection = select(&listing, &name.parse().expect("a name"))?;
        Ok((selection.files.into_iter().map(|file| file.path).collect(), selection.opens))
    }

    #[test]
    fn of_a_model_all_that_describes_it_is_read_and_nothing_twice() {
        let paths = [
            "README.md",
            "model.safetensors",
            "config.json",
            "original/consolidated.00.pth",
            "original/params.json",
            "tokenizer.json",
            "chat_template.jinja",
            "additional_chat_templates/tool_use.jinja",
            "pytorch_model.bin",
            "consolidated.safetensors",
        ];
        let (files, opens) = select_of("o/n", &paths).expect("selected");
        let expected = [
            "config.json",
            "tokenizer.json",
            "chat_template.jinja",
            "additional_chat_templates/tool_use.jinja",
            "model.safetensors",
        ];
        assert_eq!((files, opens), (expected.map(str::to_owned).to_vec(), None));
    }

    #[test]
    fn of_many_files_of_weights_those_of_the_index_are_read() {
        let paths = [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "consolidated.safetensors",
        ];
        let (files, _) = select_of("o/n", &paths).expect("selected");
        assert_eq!(files.len(), 4, "{files:?}");
    }

    #[test]
    fn a_gguf_file_is_named_by_its_path_or_by_its_quantisation() {
        let paths = ["m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q8_0.gguf", "mmproj-m.gguf"];
        let one = |path: &str| Ok((vec![path.to_owned()], Some(path.to_owned())));
        assert_eq!(select_of("o/n:m-Q8_0.gguf", &paths), one("m-Q8_0.gguf"));
        assert_eq!(select_of("o/n:q4_k_m", &paths), one("m-Q4_K_M.gguf"));
        assert!(matches!(select_of("o/n:Q4_K", &paths), Err(SelectError::NoSuchFile { .. })));
        let ambiguous = select_of("o/n", &paths).expect_err("which?").to_string();
        assert!(ambiguous.contains("o/n:m-Q4_K_M.gguf") && ambiguous.contains("m-Q8_0.gguf (1.07 GB)"), "{ambiguous}");
        assert_eq!(select_of("o/n", &paths[2..]), one("m-Q8_0.gguf"), "the only one needs no name");
    }

    #[test]
    fn a_split_model_is_all_its_parts() {
        let paths = ["q/m-00001-of-00003.gguf", "q/m-00002-of-00003.gguf", "q/m-00003-of-00003.gguf"];
        let (files, opens) = select_of("o/n", &paths).expect("one model");
        assert_eq!((files.len(), opens.as_deref()), (3, Some("q/m-00001-of-00003.gguf")));
        assert_eq!(
            select_of("o/n", &paths[..2]).expect_err("a part is missing"),
            SelectError::PartsMissing {
                repo: "o/n".to_owned(),
                file: "q/m-00001-of-00003.gguf".to_owned(),
                found: 2,
                expected: 3,
            }
        );
    }

    #[test]
    fn what_is_there_instead_is_said() {
        for (path, said) in [
            ("pytorch_model.bin", "weights of PyTorch (pickle)"),
            ("adapter_model.safetensors", "an adapter (LoRA)"),
            ("README.md", "no weights"),
        ] {
            let error = select_of("o/n", &[path]).expect_err("no model").to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
