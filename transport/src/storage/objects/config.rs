//! Settings of a mover of objects.

use std::fmt;
use std::io;
use std::time::Duration;

/// Settings of a mover of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectConfig {
    /// Name for people.
    pub name: String,
    /// Where the store is: `https://HOST[:PORT]`, or `http://` where the network is trusted.
    pub endpoint: String,
    /// Region that requests are signed for; most stores other than Amazon's take any.
    pub region: String,
    /// Bucket of all objects.
    pub bucket: String,
    /// Who asks.
    pub credentials: ObjectCredentials,
    /// Requests under way at once. At least 1.
    pub requests_max: usize,
    /// Transfers posted and not ended; one more is refused.
    pub posted_max: usize,
    /// Longer reads and writes are cut into requests of so many bytes; at least [`ObjectConfig::PART_BYTES_MIN`].
    pub part_bytes: usize,
    /// How long a connection may take, and how long the store may say nothing while it is waited for, before the
    /// request is repeated.
    pub silence_max: Duration,
    /// How long a request may take with its repetitions.
    pub give_up: Duration,
}

impl ObjectConfig {
    /// Parts of an object that is written in several cannot have fewer bytes, by the rules of S3.
    pub const PART_BYTES_MIN: usize = 5 << 20;
}

/// Who asks a store.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectCredentials {
    /// Access key.
    pub key_id: String,
    /// Its secret.
    pub secret: String,
    /// Token of a session, where the key is of one.
    pub token: Option<String>,
}

impl fmt::Debug for ObjectCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectCredentials").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// Why no mover of objects has such settings.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObjectConfigError {
    /// The store refuses smaller parts than it says.
    #[error("parts of objects have {least} bytes at least, not {bytes}", least = ObjectConfig::PART_BYTES_MIN)]
    PartTooSmall { bytes: usize },
    /// The client of the store refuses a setting.
    #[error(transparent)]
    Store(object_store::Error),
    /// The system has no authorities that the store's certificate could be of.
    #[error("no certificates to trust (install ca-certificates): {0}")]
    NoAuthorities(io::Error),
}

impl From<ObjectConfigError> for io::Error {
    fn from(error: ObjectConfigError) -> Self {
        let kind = match &error {
            ObjectConfigError::NoAuthorities(error) => error.kind(),
            ObjectConfigError::PartTooSmall { .. } | ObjectConfigError::Store(_) => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}
