//! What a hub says of a model: the commit that a revision names, and its files.

use crate::name::is_path;
use serde::Deserialize;

/// Longest answer of a hub about a model, in bytes.
pub(crate) const LISTING_BYTES_MAX: u64 = 64 << 20;

/// A model on a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The commit, 40 hexadecimal digits.
    pub commit: String,
    /// Its files.
    pub files: Vec<HubFile>,
}

/// A file of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubFile {
    /// Path in the repository.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// What its bytes must add up to.
    pub checksum: Checksum,
}

/// A checksum, in lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Of a large file (Git LFS).
    Sha256(String),
    /// Of a small one: the identity of its blob in Git.
    GitSha1(String),
}

impl Checksum {
    /// Returns the digits. They name the file in the cache.
    pub fn hex(&self) -> &str {
        match self {
            Self::Sha256(hex) | Self::GitSha1(hex) => hex,
        }
    }
}

/// Why an answer of a hub cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListingError {
    #[error("it is no description of a model: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the commit {0:?} is no commit")]
    Commit(String),
    #[error("the file {0:?} has a path that leaves the model's folder")]
    Path(String),
    #[error("the file {0:?} has no size or no checksum")]
    Incomplete(String),
}

#[derive(Deserialize)]
struct RawListing {
    sha: String,
    #[serde(default)]
    siblings: Vec<RawFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawFile {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<RawLfs>,
}

#[derive(Deserialize)]
struct RawLfs {
    sha256: String,
    size: u64,
}

impl Listing {
    /// Reads the answer of `/api/models/{repo}/revision/{revision}?blobs=true`. Hidden files are left out.
    ///
    /// # Errors
    ///
    /// It is not JSON of that form, or names files outside of the model's folder.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, ListingError> {
        let raw: RawListing = serde_json::from_slice(json)?;
        if !is_hex(&raw.sha, 40) {
            return Err(ListingError::Commit(raw.sha));
        }
        let visible = raw.siblings.into_iter().filter(|file| !file.rfilename.starts_with('.'));
        let files = visible.map(HubFile::from_raw).collect::<Result<_, _>>()?;
        Ok(Self { commit: raw.sha, files })
    }

    /// Returns the file with this path, if there is one.
    pub fn file(&self, path: &str) -> Option<&HubFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl HubFile {
    /// Returns whether it holds weights.
    pub(crate) fn is_weights(&self) -> bool {
        self.path.ends_with(".safetensors") || self.path.ends_with(".gguf")
    }

    fn from_raw(raw: RawFile) -> Result<Self, ListingError> {
        let path = raw.rfilename;
        if !is_path(&path) {
            return Err(ListingError::Path(path));
        }
        let (bytes, checksum) = match (raw.lfs, raw.size, raw.blob_id) {
            (Some(lfs), ..) if is_hex(&lfs.sha256, 64) => (lfs.size, Checksum::Sha256(lfs.sha256)),
            (None, Some(size), Some(id)) if is_hex(&id, 40) => (size, Checksum::GitSha1(id)),
            _ => return Err(ListingError::Incomplete(path)),
        };
        Ok(Self { path, bytes, checksum })
    }
}

/// Says whether `text` is `digits` lower-case hexadecimal digits.
pub(crate) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn listing(file: &str) -> Result<Listing, ListingError> {
        Listing::parse(format!(r#"{{"sha": "{COMMIT}", "siblings": [{file}]}}"#).as_bytes())
    }

    #[test]
    fn files_have_the_checksum_that_the_hub_knows() {
        let small = listing(&format!(r#"{{"rfilename": "a.json", "size": 5, "blobId": "{COMMIT}"}}"#)).expect("read");
        assert_eq!(small.files[0].checksum, Checksum::GitSha1(COMMIT.to_owned()));
        let sha = "ab".repeat(32);
        let lfs = format!(
            r#"{{"rfilename": "m.gguf", "size": 5, "blobId": "{COMMIT}", "lfs": {{"sha256": "{sha}", "size": 7}}}}"#
        );
        let large = listing(&lfs).expect("read");
        assert_eq!((large.files[0].bytes, &large.files[0].checksum), (7, &Checksum::Sha256(sha)));
    }

    #[test]
    fn what_would_leave_the_folder_is_refused() {
        for path in ["../a", "a/../b", "/a", "a//b"] {
            let file = format!(r#"{{"rfilename": "{path}", "size": 5, "blobId": "{COMMIT}"}}"#);
            // A path that begins with a dot is hidden, and left out.
            assert!(listing(&file).map_or(true, |listing| listing.files.is_empty()), "{path}");
        }
        assert!(Listing::parse(br#"{"sha": "../../x", "siblings": []}"#).is_err());
        assert!(listing(r#"{"rfilename": "a.json", "size": 5, "blobId": "../x"}"#).is_err());
        assert!(listing(r#"{"rfilename": "a.json"}"#).is_err());
    }
}
