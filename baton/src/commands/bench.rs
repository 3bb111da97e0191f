//! `baton bench`.

mod engine;
mod file;
mod parts;
mod progress;
mod serve;

pub(crate) use engine::engine;
pub(crate) use serve::serve;
