//! `baton bench`.

mod engine;
mod file;
mod parts;
mod progress;
mod serve;
mod transfer;

pub(crate) use engine::engine;
pub(crate) use serve::serve;
pub(crate) use transfer::transfer;
