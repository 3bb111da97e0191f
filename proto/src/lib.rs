//! Bytes of the messages that processes of a cluster send each other.
//!
//! The `.proto` files are the one definition of the wire; the code in `generated` is made from them by
//! `cargo xtask proto` and committed, so that a build needs no generator. [`session`] and [`handoff`] turn the messages
//! of `domain` into bytes and back: every field, checked on the way in, so that nobody else sees a wire type.
//!
//! [`rpc`] carries the bytes of a session between processes; at each end, and within a process, they wait in a [`queue`].
//!
//! What is deliberately absent: any meaning of the messages.
#![forbid(unsafe_code)]

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

pub use error::WireError;
