//! The commands that answer and end.

mod access;
pub(crate) mod admin;
pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod keys;
pub(crate) mod model;
mod owner;

pub(crate) use owner::OwnerProcess;
