//! Connections between processes: the control connection of each peer, and the sockets that bytes come over.

pub(crate) mod control;
pub(crate) mod socket;
pub(crate) mod tls;
