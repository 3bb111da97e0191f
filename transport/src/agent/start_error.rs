//! Why an agent does not start.

use crate::agent::rdma::RdmaError;
use std::io;

/// Why an agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentStartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The Unix socket cannot be opened.
    #[error("cannot listen on the Unix socket @{name}: {source}")]
    UnixSocket {
        /// Its abstract name.
        name: String,
        /// The error of the system.
        source: io::Error,
    },
    /// `transport.listen` has more addresses than an agent listens on.
    #[error("more than {0} addresses to listen on: name fewer in transport.listen")]
    TooManyAddresses(usize),
    /// As many hosts must be told to peers as addresses are listened on.
    #[error(
        "{hosts} hosts are told for {addresses} listened on: name as many in transport.advertise as in transport.listen"
    )]
    Hosts {
        /// Hosts of the setting.
        hosts: usize,
        /// Addresses that the agent listens on.
        addresses: usize,
    },
    /// Neither a secret nor TLS keeps strangers from reading.
    #[error(
        "whoever reaches {address} could read the KV cache: set cluster.secret, or transport.tls_certificate, \
         or cluster.insecure = true to allow it"
    )]
    Unprotected {
        /// The addresses that would be listened on.
        address: String,
    },
    /// An engine's progress word has one agent.
    #[error("the progress word belongs to another agent")]
    ProgressWordTaken,
    /// The lane that the configuration requires cannot be taken.
    #[error("transport.require is rdma, which cannot be taken: {0}")]
    RequiredLane(RdmaError),
    /// The configuration requires `nvlink`, and the worker has no memory that this lane reads into.
    #[error("transport.require is nvlink, which cannot be taken: {0}")]
    NoDevice(String),
    /// A thread cannot be started.
    #[error("the thread {name} cannot be started: {source}")]
    Thread {
        /// Its name.
        name: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refuses memory or descriptors.
    #[error("the system refuses what the agent needs: {0}")]
    System(#[from] io::Error),
}
