//! Why a model cannot be brought from a hub.

use crate::select::SelectError;
use std::io;
use std::path::{Path, PathBuf};

/// Why a model cannot be brought from a hub. Each says what helps.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// Neither `HF_HUB_CACHE` nor `HF_HOME` nor a home directory.
    #[error("there is no home directory to keep models in; set HF_HOME")]
    NoHome,
    /// `HF_ENDPOINT` is no address.
    #[error("HF_ENDPOINT={0:?} is no address such as https://huggingface.co")]
    Endpoint(String),
    /// The hub may not be asked.
    #[error("{name} is not complete in {}, and HF_HUB_OFFLINE forbids to fetch it", .folder.display())]
    Offline {
        /// The model.
        name: String,
        /// The cache.
        folder: PathBuf,
    },
    /// The hub does not answer.
    #[error("{endpoint} is not reached ({tries} tries): {reason}; check the network, HTTPS_PROXY and HF_ENDPOINT")]
    Unreachable {
        /// Address of the hub.
        endpoint: String,
        /// How often it was asked.
        tries: u32,
        /// What the network said.
        reason: String,
    },
    /// No such model, or it is private and no token was given: a hub does not tell these apart.
    #[error("{endpoint} knows no {name}, or it is private: check the name, or set HF_TOKEN")]
    NotFound {
        /// Address of the hub.
        endpoint: String,
        /// The model.
        name: String,
    },
    /// The token is not accepted.
    #[error("{endpoint} does not accept the token for {name}: check HF_TOKEN")]
    Token {
        /// Address of the hub.
        endpoint: String,
        /// The model.
        name: String,
    },
    /// The model wants its licence to be accepted.
    #[error("{name} is gated: ask for access at {endpoint}/{name}, then set HF_TOKEN")]
    Gated {
        /// Address of the hub.
        endpoint: String,
        /// The model.
        name: String,
    },
    /// The hub answers, but not with what was asked for.
    #[error("{url} answers with status {status} ({tries} tries)")]
    Status {
        /// What was asked for.
        url: String,
        /// Status of HTTP.
        status: u16,
        /// How often it was asked.
        tries: u32,
    },
    /// The transfer of a file breaks again and again.
    #[error(
        "{file} breaks off at byte {at} of {bytes} ({tries} tries without progress): {reason}; the next run goes on there"
    )]
    Broken {
        /// The file.
        file: String,
        /// Bytes that arrived.
        at: u64,
        /// Bytes that it has.
        bytes: u64,
        /// How often it was tried.
        tries: u32,
        /// What the network said at last.
        reason: String,
    },
    /// A file arrived and is not what the hub said.
    #[error("{file} arrived with another checksum than the hub's, twice: the hub, or a proxy on the way, changes it")]
    Checksum {
        /// The file.
        file: String,
    },
    /// What the hub says of the model cannot be read.
    #[error("{url} gives no usable answer: {reason}")]
    Listing {
        /// What was asked for.
        url: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The disk has not enough room.
    #[error("{} has {} free, and {} more are needed; free some, or set HF_HOME", .folder.display(), gigabytes(*.free), gigabytes(.needed.saturating_sub(*.free)))]
    NoRoom {
        /// The cache.
        folder: PathBuf,
        /// Bytes that are free.
        free: u64,
        /// Bytes that the files have that are not here yet.
        needed: u64,
    },
    /// Nothing that Baton reads.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The certificates of this host cannot be used.
    #[error("TLS cannot be used: {0}")]
    Tls(String),
    /// The disk.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl HubError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}
