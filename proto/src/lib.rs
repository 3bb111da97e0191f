#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod admin;
mod checks;
mod error;
#[rustfmt::skip]
#[path = "generated/baton.v1.rs"]
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated; the .proto files carry the docs")]
mod generated;
pub mod handoff;
pub mod queue;
pub mod rpc;
pub mod session;
pub mod tls;

pub use error::WireError;
