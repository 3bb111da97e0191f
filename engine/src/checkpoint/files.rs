//! The files of a checkpoint: their names, their maps, and what tells one version of a file from another.

use super::error::CheckpointError;
use memmap2::{Mmap, MmapMut};
use serde::{Deserialize, Serialize};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Most bytes that are read of the beginning of a file.
const HEAD_BYTES_MAX: u64 = 64 << 20;

/// What tells one version of a file from another without reading it. A write changes `mtime` and `ctime`; `ctime`
/// cannot be set back by programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileIdentity {
    pub(super) device: u64,
    pub(super) inode: u64,
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
}

impl FileIdentity {
    /// Of a file's metadata.
    pub(super) fn of(metadata: &Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(ns);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            mtime_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            ctime_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A mapped file of weights.
#[derive(Debug)]
pub(super) struct WeightsFile {
    /// Name inside the directory.
    pub(super) name: String,
    pub(super) map: Mmap,
    pub(super) identity: FileIdentity,
}

impl WeightsFile {
    /// Maps the file at `path`.
    pub(super) fn open_at(path: &Path) -> io::Result<Self> {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let (map, identity) = map(path)?;
        Ok(Self { name, map, identity })
    }
}

impl WeightsFile {
    /// Copies the first bytes of a file into memory: one that is still being written must not be mapped.
    pub(super) fn read_head(path: &Path) -> io::Result<Self> {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let file = File::open(path)?;
        let identity = FileIdentity::of(&file.metadata()?);
        let mut bytes = Vec::new();
        file.take(HEAD_BYTES_MAX).read_to_end(&mut bytes)?;
        let mut map = MmapMut::map_anon(bytes.len().max(1))?;
        map[..bytes.len()].copy_from_slice(&bytes);
        Ok(Self { name, map: map.make_read_only()?, identity })
    }
}

/// Maps the file at `path`.
fn map(path: &Path) -> io::Result<(Mmap, FileIdentity)> {
    let file = File::open(path)?;
    let identity = FileIdentity::of(&file.metadata()?);
    // SAFETY: the map is read-only and private to its holder. Rust asks that the bytes under it do not change;
    // `super::Checkpoint` documents that files must not be written in place while it lives, which no part of this
    // program does, and a file that is replaced (the usual way to update one) leaves the mapped one as it is.
    let map = unsafe { Mmap::map(&file) }?;
    Ok((map, identity))
}

/// Has the pages of these bytes leave the process's memory; the file and the system's cache of it keep them.
pub(super) fn let_go(map: &Mmap, bytes: Range<usize>) {
    #[cfg(target_os = "linux")]
    // SAFETY: the map is private and nobody wrote to it, so what is read there again is the file's, as before. A
    // hint that is refused costs memory, nothing else.
    let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, bytes.start, bytes.len()) };
    #[cfg(not(target_os = "linux"))]
    let _ = (map, bytes);
}

/// Reads all of a small file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    std::fs::read(path).map_err(|source| CheckpointError::Read { path: path.to_owned(), source })
}
