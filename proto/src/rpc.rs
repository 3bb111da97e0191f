//! The service `baton.v1.Session` over gRPC: how the bytes of a session travel between processes.
//!
//! Messages come here as bytes and leave as bytes, so that a worker encodes a step's tokens once. All that wait
//! are written together. A connection carries one session.
//!
//! Both ends are strangers until they have proven themselves. Little is read from a stranger ([`Gate`]), it does not
//! stay for long ([`BEGIN_WAIT`]), and it makes room for others ([`PortLimits`]).
//!
//! Without TLS (`crate::tls`), a host on the path between the ends can read prompts and tokens, and can change them. So
//! the network must be trusted then. What is deliberately absent: the proofs themselves, by which the ends show each
//! other that they know the cluster's secret.

mod client;
mod codec;
mod connection_slots;
mod gate;
mod server;
#[cfg(test)]
mod tests;

pub use client::open;
pub use connection_slots::PortLimits;
pub use gate::Gate;
pub use server::{Outgoing, Stranger, serve};
pub use tonic::{Code, Status};

use std::time::Duration;

/// Messages of the other end, in order; an error, or the end, is the end of the session.
pub type Incoming = tonic::Streaming<Vec<u8>>;

/// Largest message, in bytes: a submit of a million tokens, or the snapshot of a cache with as many blocks,
/// several times.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Time for a connection to be made, and for each end to prove itself on it.
pub const BEGIN_WAIT: Duration = Duration::from_secs(5);
/// Of that, the time for each address of the worker's name: where the first leads nowhere, others may still be reached.
const CONNECT_MAX: Duration = Duration::from_secs(1);

const PATH: &str = "/baton.v1.Session/Open";
/// Bytes that may be on their way unread, for a session: tokens of many steps, and most snapshots.
const WINDOW_BYTES: u32 = 4 << 20;
/// An end that is silent for so long is asked whether its host is there. (Whether its work goes on, heartbeats tell.)
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Time for it to answer.
const KEEP_ALIVE_WAIT: Duration = Duration::from_secs(10);
