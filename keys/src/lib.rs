#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod file;
mod meter;
mod ring;

#[cfg(test)]
mod tests;

pub use file::{KeyEntry, KeyFile, KeyFileError, KeyHash, new_key};
pub use ring::{Admission, Key, KeyError, Keys, LimitReached, RATE_HEADERS};
