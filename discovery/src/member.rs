//! A worker of the cluster, as discovery knows it.

use domain::WorkerId;
use domain::session::Role;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A worker of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Stays the same over its restarts.
    pub id: WorkerId,
    /// What it is there for.
    pub role: Role,
    /// For people; unique in the cluster.
    pub name: String,
    /// Where it is.
    pub endpoint: Endpoint,
}

/// Where a worker is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// A thread of this process.
    InProcess,
    /// `host:port` of its session service.
    Address(String),
}

/// A change of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This worker is there.
    Up(Member),
    /// This worker is not there any more.
    Down(WorkerId),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::InProcess => f.write_str("in this process"),
            Endpoint::Address(address) => f.write_str(address),
        }
    }
}
