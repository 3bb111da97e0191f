//! A worker, as routers and other workers see it.

use crate::ids::{Incarnation, WorkerId};
use serde::{Deserialize, Serialize};

/// What a worker is there for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Computes prompts and hands them off.
    Prefill,
    /// Takes prompts over (or, short ones, computes them) and makes the tokens.
    Decode,
}

/// Where a worker's transport agent is found. The process comes first, then the host, then the network.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PeerAddress {
    /// Drawn at random by each process: equal numbers mean the same process.
    pub process: u64,
    /// Name of its abstract Unix socket, which reaches as far as the host's network namespace. Empty: none.
    pub unix: String,
    /// `host:port`; several, one for each network, have commas between them. Empty: none.
    pub tcp: String,
}

/// A worker, as its router introduces it to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its id, which stays the same over restarts.
    pub id: WorkerId,
    /// Which life.
    pub incarnation: Incarnation,
    /// For people.
    pub name: String,
    /// What it is there for.
    pub role: Role,
    /// Where its agent is.
    pub address: PeerAddress,
}
