//! Digest of a checkpoint's config and weights. What a weights file hashes to is remembered by the file's identity, so
//! that no start-up reads a terabyte again.

use super::Checkpoint;
use super::error::CheckpointError;
use super::files::{FileIdentity, let_go, read};
use super::names::CONFIG_FILE;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Bytes hashed between two reports of progress.
const PIECE_BYTES: usize = 16 * 1024 * 1024;
/// Files that a cache remembers; the oldest entries make room.
const CACHE_ENTRIES_MAX: usize = 4096;

/// The cache file, as JSON. Losing it costs time, nothing else.
#[derive(Default, Serialize, Deserialize)]
struct Cache {
    entries: Vec<CacheEntry>,
}

#[derive(Serialize, Deserialize)]
struct CacheEntry {
    file: FileIdentity,
    /// BLAKE3 of the file in hexadecimal.
    digest: String,
}

impl Checkpoint {
    /// BLAKE3 over config.json and all weights files, of which a GGUF file is both: equal digests mean the same
    /// model. `cache`: a file that remembers the weights files' digests; it is made if missing, may serve several
    /// checkpoints, and a cache that cannot be read or written only costs time. `progress` gets hashed and total
    /// bytes; it is not called for remembered files.
    pub fn digest(
        &self,
        cache: Option<&Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<[u8; 32], CheckpointError> {
        let config = if self.has_config { read(&self.path.join(CONFIG_FILE))? } else { Vec::new() };
        let mut known = cache.map(Cache::read).unwrap_or_default();
        let digests: Vec<Option<blake3::Hash>> = self.files.iter().map(|file| known.find(&file.identity)).collect();
        let unknown = || self.files.iter().zip(&digests).filter(|(_, digest)| digest.is_none());
        let total: u64 = unknown().map(|(file, _)| file.map.len() as u64).sum();
        let mut done = 0;

        let mut hasher = blake3::Hasher::new_derive_key("baton 2026 checkpoint digest v1");
        hasher.update(&(config.len() as u64).to_le_bytes());
        hasher.update(&config);
        for (file, digest) in self.files.iter().zip(&digests) {
            let digest = digest.unwrap_or_else(|| {
                let mut weights = blake3::Hasher::new();
                for (index, piece) in file.map.chunks(PIECE_BYTES).enumerate() {
                    weights.update(piece);
                    let_go(&file.map, index * PIECE_BYTES..index * PIECE_BYTES + piece.len());
                    done += piece.len() as u64;
                    progress(done, total);
                }
                let digest = weights.finalize();
                known.insert(file.identity.clone(), digest);
                digest
            });
            // A single file is the same model under any name.
            let name = if self.has_config { file.name.as_str() } else { "" };
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(digest.as_bytes());
        }
        if let Some(path) = cache.filter(|_| total > 0)
            && let Err(error) = known.write(path)
        {
            tracing::warn!(path = %path.display(), %error, "the weights' digests cannot be remembered");
        }
        Ok(*hasher.finalize().as_bytes())
    }
}

impl Cache {
    fn read(path: &Path) -> Self {
        match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "the file of remembered digests is broken; starting anew");
                Self::default()
            }),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "the remembered digests cannot be read");
                }
                Self::default()
            }
        }
    }

    fn find(&self, file: &FileIdentity) -> Option<blake3::Hash> {
        let entry = self.entries.iter().find(|entry| entry.file == *file)?;
        blake3::Hash::from_hex(&entry.digest).ok()
    }

    fn insert(&mut self, file: FileIdentity, digest: blake3::Hash) {
        // An older version of the same file is gone for good.
        self.entries.retain(|entry| (entry.file.device, entry.file.inode) != (file.device, file.inode));
        if self.entries.len() >= CACHE_ENTRIES_MAX {
            self.entries.remove(0);
        }
        self.entries.push(CacheEntry { file, digest: digest.to_hex().to_string() });
    }

    /// Replaces the file in one step, so that a reader never sees half of it.
    fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let partial = path.with_extension(format!("{}.partial", std::process::id()));
        std::fs::write(&partial, serde_json::to_vec(self)?)?;
        std::fs::rename(&partial, path)
    }
}
