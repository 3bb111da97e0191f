//! Connections between processes: the control connection of each peer, and the sockets that bytes come over.

pub(crate) mod control;
pub(crate) mod socket;
pub(crate) mod tls;

/// Bytes that an agent reads of an end before that has proven itself, in all.
pub(crate) const HELLO_BYTES_MAX: usize = 4096;
