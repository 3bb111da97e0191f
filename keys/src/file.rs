//! The file of keys: JSON, with hashes in place of the keys.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Every key begins so: people, and scanners for leaked secrets, know it by that.
const PREFIX: &str = "baton-";
/// Random bytes of a key: too many to find one by trying.
const RANDOM_BYTES: usize = 24;
/// Hexadecimal digits of a hash that name its key in lists and logs.
const ID_DIGITS: usize = 12;
/// Largest file of keys: more than 100,000 of them.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Rights of the file: its owner may read and write it.
const FILE_MODE: u32 = 0o600;

/// Why a file of keys is of no use.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// It is larger than any file of keys.
    #[error("{0} has more than {FILE_BYTES_MAX} bytes: it is no file of keys")]
    Large(PathBuf),
    /// It is not what `baton keys` writes.
    #[error("{path} is no file of keys (`baton keys add` makes one): {source}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// A key is there twice.
    #[error("{path}: the key {id} is there twice")]
    Twice {
        /// The file.
        path: PathBuf,
        /// The key's name.
        id: String,
    },
    /// It cannot stay what it is to its owner.
    #[error("{path} would change its owner or its rights: change it as its owner or as root ({source})")]
    Owner {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
}

/// A file of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFile {
    /// The keys, in the order in which they were added.
    pub keys: Vec<KeyEntry>,
}

/// What a file says of a key. A limit of 0 is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEntry {
    /// The key's hash.
    pub hash: KeyHash,
    /// The client that has the key. Cached prompts are shared within a tenant only.
    pub tenant: String,
    /// Models that it may ask; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Most requests a minute.
    #[serde(default, skip_serializing_if = "is_none")]
    pub requests_per_minute: u32,
    /// Most tokens a minute: those of prompts and those of answers.
    #[serde(default, skip_serializing_if = "is_none")]
    pub tokens_per_minute: u32,
    /// Most requests that are open at once.
    #[serde(default, skip_serializing_if = "is_none")]
    pub concurrent: u32,
    /// Whether it is an operator's: it may make admin calls from other hosts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
}

/// A hash of a key: BLAKE3, bound to this purpose. Keys are random, so no salt is needed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; blake3::OUT_LEN]);

impl KeyEntry {
    /// Makes the entry of a key that may ask all models, without limits, and is no operator's.
    pub fn new(hash: KeyHash, tenant: String) -> Self {
        let (requests_per_minute, tokens_per_minute, concurrent) = (0, 0, 0);
        Self { hash, tenant, models: Vec::new(), requests_per_minute, tokens_per_minute, concurrent, admin: false }
    }
}

impl KeyFile {
    /// Reads the file at `path`. Errors: [`KeyFileError`].
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let io = |source| KeyFileError::Io { path: path.to_owned(), source };
        if fs::metadata(path).map_err(io)?.len() > FILE_BYTES_MAX {
            return Err(KeyFileError::Large(path.to_owned()));
        }
        Self::parse(path, &fs::read(path).map_err(io)?)
    }

    /// Parses what the file at `path` holds. Errors: [`KeyFileError`].
    pub(super) fn parse(path: &Path, json: &[u8]) -> Result<Self, KeyFileError> {
        let file: Self =
            serde_json::from_slice(json).map_err(|source| KeyFileError::Syntax { path: path.to_owned(), source })?;
        let mut seen = HashSet::new();
        match file.keys.iter().find(|key| !seen.insert(key.hash)) {
            Some(key) => Err(KeyFileError::Twice { path: path.to_owned(), id: key.hash.id() }),
            None => Ok(file),
        }
    }

    /// Changes the file at `path`, which need not be there yet, and returns what `change` returns. One process changes
    /// it at a time, and a reader sees it as it was before or after. It keeps its owner, its rights and, behind a link,
    /// its place. Errors: [`KeyFileError`]; the file is as before then.
    pub fn change<T>(path: &Path, change: impl FnOnce(&mut Self) -> T) -> Result<T, KeyFileError> {
        let real = fs::canonicalize(path);
        let path = real.as_deref().unwrap_or(path);
        let io = |source| KeyFileError::Io { path: path.to_owned(), source };
        let beside = |end: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        let lock = created(&beside(".lock")).map_err(io)?;
        lock.lock().map_err(io)?;
        let before = fs::metadata(path).ok();
        let keep = |file: &File| match &before {
            Some(before) => keep(file, before).map_err(|source| KeyFileError::Owner { path: path.to_owned(), source }),
            None => Ok(()),
        };
        // Who may change the file next needs the lock, too.
        keep(&lock)?;
        let mut file = match Self::read(path) {
            Err(KeyFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Self::default(),
            read => read?,
        };
        let result = change(&mut file);
        let partial = beside(".partial");
        let mut out = created(&partial).map_err(io)?;
        keep(&out)?;
        let json = serde_json::to_vec_pretty(&file).expect("keys have names and numbers");
        out.write_all(&json).and_then(|()| out.write_all(b"\n")).and_then(|()| out.sync_all()).map_err(io)?;
        fs::rename(&partial, path).map_err(io)?;
        Ok(result)
    }
}

/// Makes a key at random, and its hash. Errors: the system gives no random numbers.
pub fn new_key() -> Result<(String, KeyHash), KeyFileError> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).map_err(KeyFileError::Random)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = format!("{PREFIX}{digits}");
    let hash = KeyHash::of(&key);
    Ok((key, hash))
}

impl KeyHash {
    /// Returns the hash of a key.
    pub fn of(key: &str) -> Self {
        Self(blake3::derive_key("baton 2026 api key v1", key.as_bytes()))
    }

    /// Returns the name of the key, which tells nothing about the key.
    pub fn id(&self) -> String {
        let mut id = self.to_string();
        id.truncate(ID_DIGITS);
        id
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from(self.0).to_hex())
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyHash({})", self.id())
    }
}

impl FromStr for KeyHash {
    type Err = blake3::HexError;

    fn from_str(hex: &str) -> Result<Self, Self::Err> {
        Ok(Self(*blake3::Hash::from_hex(hex)?.as_bytes()))
    }
}

impl Serialize for KeyHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyHash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Creates or empties a file that is its owner's alone.
fn created(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)
}

/// Gives a file the owner and the rights that another one has.
fn keep(file: &File, before: &Metadata) -> io::Result<()> {
    let now = file.metadata()?;
    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
        fchown(file, Some(before.uid()), Some(before.gid()))?;
    }
    file.set_permissions(before.permissions())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(limit: &u32) -> bool {
    *limit == 0
}
