//! Keys of the API: which client asks, for which models, and how much.
//!
//! A file has a hash of each key, its tenant and its limits. It is read again when it changes: a new key works within
//! a second, and a revoked one ends within it, its open answers too. Without a file everybody may ask.
//!
//! - `file`: the file, as `baton keys` writes and the router reads it.
//! - `meter`: the limits of one key, as pure arithmetic over time.
//! - `ring`: the keys that are known now.
//!
//! What is deliberately absent: the clients of the operations listener, which are not clients of the API.

mod file;
mod meter;
mod ring;
#[cfg(test)]
mod tests;

pub use file::{KeyEntry, KeyFile, KeyFileError, KeyHash, new_key};
pub use ring::Keys;
pub(crate) use ring::{Admission, Key};
