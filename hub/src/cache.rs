//! The cache on disk, in the layout of `huggingface_hub`. Source: its guide "Understand caching".
//!
//! ```text
//! hub/models--org--name/refs/main                the commit
//!                      /snapshots/<commit>/file  a link to the blob
//!                      /blobs/<checksum>         the bytes
//!    /.locks/models--org--name/<checksum>.lock   held while a blob is fetched
//! ```

use crate::error::HubError;
use crate::listing::{Checksum, is_hex};
use crate::name::ModelName;
use crate::select::find_complete;
use crate::walk::files_below;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Begins the name of a model's folder.
const MODEL: &str = "models--";

/// The cache.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// A model in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedModel {
    /// `org/name`.
    pub repo: String,
    /// Revisions that are named, and their commits.
    pub revisions: Vec<(String, String)>,
    /// Bytes on disk, those of files that are not complete among them.
    pub bytes: u64,
    /// Whether some file is not complete.
    pub incomplete: bool,
}

impl Cache {
    /// Finds the folder that the environment names: `HF_HUB_CACHE`, else `hub` in `HF_HOME`, else in the cache of
    /// the user.
    ///
    /// # Errors
    ///
    /// There is no home directory.
    pub fn locate(variable: impl Fn(&str) -> Option<String>) -> Result<Self, HubError> {
        let folder = match variable("HF_HUB_CACHE") {
            Some(folder) => PathBuf::from(folder),
            None => home(variable).ok_or(HubError::NoHome)?.join("hub"),
        };
        Ok(Self { folder })
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of a complete model: a folder, or a GGUF file.
    pub fn find(&self, name: &ModelName) -> Option<PathBuf> {
        let commit = self.commit(name)?;
        find_complete(&self.snapshot(&name.repo, &commit), name)
    }

    /// Lists the models that lie here, by name.
    ///
    /// # Errors
    ///
    /// The folder cannot be read. One that is missing is empty.
    pub fn list(&self) -> Result<Vec<CachedModel>, HubError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(HubError::io(&self.folder, source)),
        };
        let mut models: Vec<_> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let repo = name.strip_prefix(MODEL)?.replacen("--", "/", 1);
                Some(self.describe(repo))
            })
            .collect();
        models.sort_by(|one, other| one.repo.cmp(&other.repo));
        Ok(models)
    }

    /// Removes a model with all its revisions. Returns the bytes that it took; `None`: it is not there.
    ///
    /// # Errors
    ///
    /// A file cannot be removed.
    pub fn remove(&self, repo: &str) -> Result<Option<u64>, HubError> {
        let folder = self.model(repo);
        if !folder.is_dir() {
            return Ok(None);
        }
        let bytes = self.describe(repo.to_owned()).bytes;
        fs::remove_dir_all(&folder).map_err(|source| HubError::io(&folder, source))?;
        Ok(Some(bytes))
    }

    fn describe(&self, repo: String) -> CachedModel {
        let folder = self.model(&repo);
        let blobs: Vec<_> = fs::read_dir(folder.join("blobs")).into_iter().flatten().flatten().collect();
        let bytes = blobs.iter().filter_map(|blob| blob.metadata().ok()).map(|data| data.len()).sum();
        let incomplete = blobs.iter().any(|blob| blob.path().extension().is_some_and(|end| end == "incomplete"));
        let refs = folder.join("refs");
        let commit = |name: &String| fs::read_to_string(refs.join(name)).map(|commit| commit.trim().to_owned());
        let revision = |name: String| commit(&name).ok().map(|commit| (name, commit));
        let revisions = files_below(&refs).into_iter().filter_map(revision).collect();
        CachedModel { repo, revisions, bytes, incomplete }
    }

    fn model(&self, repo: &str) -> PathBuf {
        self.folder.join(format!("{MODEL}{}", repo.replace('/', "--")))
    }

    /// Returns the commit that a revision names here: itself, or what it named when it was last fetched.
    fn commit(&self, name: &ModelName) -> Option<String> {
        if is_hex(&name.revision, 40) {
            return Some(name.revision.clone());
        }
        let text = fs::read_to_string(self.model(&name.repo).join("refs").join(&name.revision)).ok()?;
        Some(text.trim().to_owned()).filter(|commit| is_hex(commit, 40))
    }

    pub(crate) fn snapshot(&self, repo: &str, commit: &str) -> PathBuf {
        self.model(repo).join("snapshots").join(commit)
    }

    pub(crate) fn blob(&self, repo: &str, checksum: &Checksum) -> PathBuf {
        self.model(repo).join("blobs").join(checksum.hex())
    }

    /// Locks a blob, so that one process at a time fetches it. The lock is held until the file is dropped.
    pub(crate) fn lock(&self, repo: &str, checksum: &Checksum) -> Result<BlobLock, HubError> {
        let folder = self.folder.join(".locks").join(format!("{MODEL}{}", repo.replace('/', "--")));
        make_folder(&folder)?;
        let path = folder.join(format!("{}.lock", checksum.hex()));
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        Ok(BlobLock { file: file.map_err(|source| HubError::io(&path, source))?, path })
    }

    /// Gives a blob its name in a snapshot.
    pub(crate) fn link(&self, repo: &str, commit: &str, path: &str, checksum: &Checksum) -> Result<(), HubError> {
        let link = self.snapshot(repo, commit).join(path);
        make_folder(link.parent().expect("it is in the snapshot's folder"))?;
        let up = "../".repeat(2 + path.matches('/').count());
        let target = PathBuf::from(format!("{up}blobs/{}", checksum.hex()));
        if fs::read_link(&link).is_ok_and(|old| old == target) {
            return Ok(());
        }
        // Another link, or a copy that some tool left, gives way at once and never to nothing.
        let aside = link.with_extension(format!("baton-{}", std::process::id()));
        let _ = fs::remove_file(&aside);
        std::os::unix::fs::symlink(&target, &aside).map_err(|source| HubError::io(&aside, source))?;
        fs::rename(&aside, &link).map_err(|source| HubError::io(&link, source))
    }

    /// Names the commit of a revision, once all of it is there.
    pub(crate) fn name_commit(&self, name: &ModelName, commit: &str) -> Result<(), HubError> {
        if name.revision == commit {
            return Ok(());
        }
        let path = self.model(&name.repo).join("refs").join(&name.revision);
        make_folder(path.parent().expect("it is in the folder of refs"))?;
        let aside = path.with_extension(format!("baton-{}", std::process::id()));
        let written = File::create(&aside).and_then(|mut file| file.write_all(commit.as_bytes()));
        written.and_then(|()| fs::rename(&aside, &path)).map_err(|source| HubError::io(&path, source))
    }
}

/// The lock of a blob.
pub(crate) struct BlobLock {
    file: File,
    path: PathBuf,
}

impl BlobLock {
    /// Takes the lock if no other process has it.
    pub(crate) fn try_take(&self) -> Result<bool, HubError> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Err(fs::TryLockError::Error(source)) => Err(HubError::io(&self.path, source)),
        }
    }
}

/// Returns the folder of all that the hub's tools keep: `HF_HOME`, else `huggingface` in the cache of the user.
pub(crate) fn home(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    folder("HF_HOME")
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("huggingface")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/huggingface")))
}

pub(crate) fn make_folder(folder: &Path) -> Result<(), HubError> {
    fs::create_dir_all(folder).map_err(|source| HubError::io(folder, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_of(variables: &[(&str, &str)]) -> PathBuf {
        let variable = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        Cache::locate(variable).expect("located").folder
    }

    #[test]
    fn the_cache_is_where_other_tools_have_it() {
        assert_eq!(folder_of(&[("HOME", "/h")]), Path::new("/h/.cache/huggingface/hub"));
        assert_eq!(folder_of(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]), Path::new("/c/huggingface/hub"));
        assert_eq!(folder_of(&[("HOME", "/h"), ("HF_HOME", "/f")]), Path::new("/f/hub"));
        assert_eq!(folder_of(&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "/u")]), Path::new("/u"));
        assert!(matches!(Cache::locate(|_| None), Err(HubError::NoHome)));
    }
}
