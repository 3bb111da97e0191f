//! Names of models on a hub.

use std::fmt;
use std::str::FromStr;

/// The branch that is meant where none is named.
const REVISION: &str = "main";

/// The name of a model: `org/name`, with `:file.gguf` or `:Q4_K_M` for one of its GGUF files, and with `@revision` for
/// a branch, a tag or a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelName {
    /// `org/name`.
    pub repo: String,
    /// A GGUF file of it, or the quantisation that its name holds. `None`: the model itself.
    pub file: Option<String>,
    /// A branch, a tag or a commit.
    pub revision: String,
}

/// Why a text is no name of a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no name of a model on a hub: {reason}; write org/name, org/name:file.gguf or org/name@revision")]
pub struct NameError {
    name: String,
    reason: &'static str,
}

impl FromStr for ModelName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let refused = |reason| NameError { name: text.to_owned(), reason };
        let (rest, revision) = text.split_once('@').unwrap_or((text, REVISION));
        let (repo, file) = match rest.split_once(':') {
            Some((repo, file)) => (repo, Some(file)),
            None => (rest, None),
        };
        match repo.split_once('/') {
            Some((org, name)) if is_word(org) && is_word(name) => {}
            Some(_) => return Err(refused("an organisation and a name have letters, digits, '-', '_' and '.'")),
            None => return Err(refused("there is no '/'")),
        }
        if !is_path(revision) {
            return Err(refused("the revision is no name of a branch"));
        }
        if file.is_some_and(|file| !is_path(file)) {
            return Err(refused("the file is no path in a repository"));
        }
        Ok(Self { repo: repo.to_owned(), file: file.map(str::to_owned), revision: revision.to_owned() })
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repo)?;
        if let Some(file) = &self.file {
            write!(f, ":{file}")?;
        }
        if self.revision != REVISION { write!(f, "@{}", self.revision) } else { Ok(()) }
    }
}

/// Says whether `text` may be a part of a repository's name.
fn is_word(text: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    !text.is_empty() && !text.starts_with(['.', '-']) && text.chars().all(letter) && !text.contains("..")
}

/// Says whether `text` stays inside of the folder that it is joined to: no part is empty, `.`, `..` or hidden.
pub(crate) fn is_path(text: &str) -> bool {
    let plain = |letter: char| !letter.is_control() && !"\\?#%:*\"<>|".contains(letter);
    text.chars().all(plain) && text.split('/').all(|part| !part.is_empty() && !part.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (text, repo, file, revision) in [
            ("org/name", "org/name", None, "main"),
            ("org/name:a.gguf", "org/name", Some("a.gguf"), "main"),
            ("org/name:Q4_K_M@v1", "org/name", Some("Q4_K_M"), "v1"),
            ("Org-1/Name_2.5@refs/pr/1", "Org-1/Name_2.5", None, "refs/pr/1"),
        ] {
            let name: ModelName = text.parse().expect("a name");
            assert_eq!(
                (name.repo.as_str(), name.file.as_deref(), name.revision.as_str()),
                (repo, file, revision),
                "{text}"
            );
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn what_leaves_its_folder_is_no_name() {
        for text in
            ["name", "/name", "org/", "../name", "org/..", "a/b/c", "org/n:../x", "org/n@../x", "o/n:", "o/n@", "~/x"]
        {
            assert!(text.parse::<ModelName>().is_err(), "{text}");
        }
    }
}
