//! Why an object transfer failed, in the words of whoever must fix it.

use std::fmt;

/// Characters of what the store or the system said, at most.
const DETAIL_CHARS_MAX: usize = 400;

/// Why an object transfer did not do what it was to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The caller cancelled it, or the mover ended.
    #[error("cancelled")]
    Cancelled,
    /// What carried it out panicked, of a bug or in the caller's sink. Its memory is not touched any more; what it
    /// wrote may have reached the store.
    #[error("what moves objects panicked, as the log says")]
    Panicked,
    /// The store did not do it, after all repetitions.
    #[error("{endpoint}, bucket {bucket}, object {key}: {trouble} ({detail}). To fix it: {}", trouble.fix())]
    Failed {
        /// Where the store is.
        endpoint: String,
        /// Bucket that was asked.
        bucket: String,
        /// Key of the object.
        key: String,
        /// What kind of trouble it is.
        trouble: ObjectTrouble,
        /// What the store or the system said last.
        detail: String,
    },
}

/// Kinds of trouble with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectTrouble {
    /// No connection.
    Unreachable,
    /// Connections break while requests are under way.
    Broken,
    /// The store says nothing for too long, or is too slow.
    Slow,
    /// The store asks to be asked less.
    Busy,
    /// The credentials do not do.
    Refused,
    /// There is no such bucket.
    NoBucket,
    /// The object has not the bytes that were asked for.
    Mismatch,
    /// Anything else that the store says.
    Store,
}

impl ObjectTrouble {
    /// Returns what whoever runs the service can do about it.
    fn fix(self) -> &'static str {
        match self {
            Self::Unreachable => "see that the endpoint is right and answers on this network",
            Self::Broken => "see whether the store, or a proxy before it, ends connections",
            Self::Slow => "see how the store and the way to it are doing, or wait longer for it",
            Self::Busy => "have fewer requests under way, or raise the store's limit",
            Self::Refused => "see that the credentials are right and may read and write this bucket",
            Self::NoBucket => "make the bucket, or name another",
            Self::Mismatch => "see who else writes to this bucket, and whether the store answers ranges",
            Self::Store => "see what the store says",
        }
    }
}

impl fmt::Display for ObjectTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "the store cannot be reached",
            Self::Broken => "the connection to the store broke",
            Self::Slow => "the store is too slow",
            Self::Busy => "the store is asked too much",
            Self::Refused => "the store refuses access",
            Self::NoBucket => "there is no such bucket",
            Self::Mismatch => "the store has other bytes than were asked for",
            Self::Store => "the store failed",
        })
    }
}

/// Returns what a store or the system said, in one line that is not too long.
pub(super) fn detail(said: &str) -> String {
    said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(DETAIL_CHARS_MAX).collect()
}
