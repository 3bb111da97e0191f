//! A folder of what was compiled before.
//!
//! A file is named by a digest of all that it was made of. It begins with a digest of its own bytes, so that what was
//! cut short or changed is not loaded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of a digest at the beginning of a file.
const DIGEST: usize = blake3::OUT_LEN;

/// The folder.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// The name of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(blake3::Hash);

impl Key {
    /// Makes the name of what is made of these parts.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        Self(hasher.finalize())
    }
}

impl Cache {
    /// Takes a folder, which need not be there yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns what was kept. `None`: nothing, or something broken.
    pub fn get(&self, key: Key) -> Option<Vec<u8>> {
        let mut bytes = fs::read(self.path(key)).ok()?;
        let digest: [u8; DIGEST] = bytes.get(..DIGEST)?.try_into().ok()?;
        (blake3::hash(&bytes[DIGEST..]) == digest).then(|| bytes.split_off(DIGEST))
    }

    /// Keeps an image. It appears whole or not at all. Errors: of the file system.
    pub fn put(&self, key: Key, image: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let path = self.path(key);
        let own = path.with_extension(std::process::id().to_string());
        let bytes = [blake3::hash(image).as_bytes(), image].concat();
        fs::write(&own, bytes).and_then(|()| fs::rename(&own, path)).inspect_err(|_| {
            let _ = fs::remove_file(&own);
        })
    }

    fn path(&self, Key(hash): Key) -> PathBuf {
        self.folder.join(format!("{}.cubin", hash.to_hex()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_broken_is_not_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::new(folder.path().join("kernels"));
        let (key, other) = (Key::of(["a", "bc"]), Key::of(["ab", "c"]));
        assert_ne!(key, other, "parts do not run into each other");
        assert_eq!(cache.get(key), None);
        cache.put(key, b"image").expect("it is written");
        assert_eq!(cache.get(key).as_deref(), Some(&b"image"[..]));
        assert_eq!(cache.get(other), None);
        let path = cache.path(key);
        let whole = fs::read(&path).expect("it is there");
        for broken in [&whole[..whole.len() - 1], &whole[..10], b""] {
            fs::write(&path, broken).expect("it is written");
            assert_eq!(cache.get(key), None, "{} bytes", broken.len());
        }
        cache.put(key, b"image").expect("it is written");
        assert_eq!(cache.get(key).as_deref(), Some(&b"image"[..]));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let cache = Cache::new(file.path());
        assert!(cache.put(Key::of(["a"]), b"image").is_err());
        assert_eq!(cache.get(Key::of(["a"])), None);
    }
}
