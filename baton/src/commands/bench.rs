//! `baton bench`.

mod device;
mod engine;
pub(super) mod file;
mod parts;
mod progress;
mod serve;
mod source;
mod tiers;
mod transfer;

pub(crate) use device::device;
pub(crate) use engine::engine;
pub(crate) use serve::serve;
pub(crate) use tiers::tiers;
pub(crate) use transfer::transfer;
