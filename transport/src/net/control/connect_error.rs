//! Why a peer is not connected over a lane, and whether that is the peer's fault.

use super::channel::ChannelError;
use super::hello::IdentityError;
use crate::agent::counts::{Counts, Refusal};
use crate::agent::rdma::RdmaError;
use crate::lanes::lane_queue::LaneReadError;
use crate::lanes::nvlink::{MapRegionError, NotFetched};
use crate::lanes::rdma::{DeviceError, ExchangeError};
use crate::lanes::{Lane, PassedOver, WhyPassed};
use crate::transfer::{PostError, PrepareError};
use crate::wire_error::WireError;
use kv_memory::{CopyError, DeviceId, MapError};
use std::io;

/// Why a peer is not connected, over a lane or a connection of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The peer does not listen on this host.
    #[error("the peer offers no Unix socket")]
    NoUnixSocket,
    /// Nobody listens on this host under the peer's name.
    #[error("no common Unix socket: the peer is on another host, or gone")]
    OtherHost,
    /// The system refuses the peer's Unix socket.
    #[error("its Unix socket cannot be connected: {0}")]
    UnixSocket(io::Error),
    /// The peer listens on no network.
    #[error("the peer offers no address for it")]
    NoAddress,
    /// An address of the peer is not reached, or its TLS handshake fails.
    #[error("{address} cannot be connected: {source}")]
    Address { address: String, source: io::Error },
    /// All that was tried took the time that a dial may take, in seconds.
    #[error("timed out: all that was tried took {0} s")]
    TimedOut(u64),
    /// This worker has no streams: it reads from no other process.
    #[error("this worker listens to no other process")]
    NotListening,
    /// This worker has no RDMA.
    #[error(transparent)]
    Rdma(#[from] RdmaError),
    /// The peer does not take this worker for a member of the cluster, and does not say why.
    #[error(
        "the peer refuses this worker as a stranger: both want the same cluster.secret, TLS \
         (transport.tls_certificate) at both ends or at neither, and without a secret the same user"
    )]
    NotProven,
    /// The peer refuses this worker, and says why.
    #[error("the peer: {0}")]
    Refused(String),
    /// Another worker answers, or one that does not belong to the cluster.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The peer breaks the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The connection broke before the link was ready.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// No region of the peer is in a file.
    #[error("its memory is not in files that could be mapped")]
    NotMappable,
    /// A region of the peer is in memory of a device.
    #[error("the peer's pool is in memory of {0}, which processes cannot map")]
    OfDevice(DeviceId),
    /// This worker's device does not read the peer's memory.
    #[error(transparent)]
    NotFetched(#[from] NotFetched),
    /// The peer is not on this host, and no lane reads memory of devices of others.
    #[error("{0}; fabric handles, by which devices of several hosts read each other, are not used")]
    NoFabric(Box<ConnectError>),
    /// The copier of this worker's device does not bring what measures the link.
    #[error("this worker's device does not fetch: {0}")]
    Copier(#[from] CopyError),
    /// The peer keeps its progress word to itself.
    #[error("it does not show its progress")]
    NoProgress,
    /// A read that measures the link cannot be prepared.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A read that measures the link brings nothing.
    #[error(transparent)]
    Read(#[from] LaneReadError),
    /// A read that measures the link cannot be posted.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A region or the progress word of the peer is not what it claims to be.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The peer breaks the protocol of the lane `rdma`.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// No device of this worker can be connected with one of the peer.
    #[error(transparent)]
    Devices(#[from] DeviceError),
    /// The region that a rail is tried with is registered no more.
    #[error("the region to try it with is gone")]
    RegionGone,
    /// The peer answers a read by something else.
    #[error("an answer that is none")]
    NoAnswer,
    /// One of several connections failed by the peer's fault, which is counted already.
    #[error(transparent)]
    Counted(Box<ConnectError>),
    /// The system refuses something to this worker, or a connection failed.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The system has no random numbers, which a nonce is made of.
    #[error("no random numbers: {0}")]
    Random(io::Error),
    /// The system starts no thread for it.
    #[error("no thread to connect it: {0}")]
    Thread(io::Error),
}

impl ConnectError {
    /// Returns what the peer did wrong, if it did.
    fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Wire(_) | Self::Map(_) | Self::Exchange(_) => Some(Refusal::Protocol),
            Self::NoAnswer => Some(Refusal::Answer),
            Self::Identity(IdentityError::Wire(_)) => Some(Refusal::Protocol),
            Self::Identity(_) => Some(Refusal::Identity),
            Self::Channel(error) => error.refusal(),
            Self::Address { source, .. } | Self::System(source) => {
                (source.kind() == io::ErrorKind::InvalidData).then_some(Refusal::Encryption)
            }
            _ => None,
        }
    }

    /// Returns whether the other end closed the connection without a word.
    pub(super) fn is_closed(&self) -> bool {
        let error = match self {
            Self::Channel(ChannelError::Closed) => return true,
            Self::Channel(ChannelError::Failed(error)) => error,
            Self::Address { source, .. } | Self::System(source) => source,
            _ => return false,
        };
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        matches!(error.kind(), ConnectionReset | BrokenPipe | UnexpectedEof)
    }

    /// The kind of reason why a lane is passed over for it.
    pub(super) fn why_passed(&self) -> WhyPassed {
        match self {
            Self::NotFetched(NotFetched::NotMapped { .. }) => WhyPassed::Unreached,
            Self::NotFetched(_) | Self::OfDevice(_) | Self::NotMappable => WhyPassed::Memory,
            _ if self.refusal().is_some() => WhyPassed::Refused,
            _ => WhyPassed::Unreached,
        }
    }

    /// Counts it once, where it is the other end's fault.
    pub(super) fn count(self, counts: &Counts) -> Self {
        match self.refusal() {
            Some(why) => {
                counts.refused(why);
                Self::Counted(Box::new(self))
            }
            None => self,
        }
    }
}

impl From<MapRegionError> for ConnectError {
    fn from(error: MapRegionError) -> Self {
        match error {
            MapRegionError::NotFetched(error) => Self::NotFetched(error),
            MapRegionError::Wire(error) => Self::Wire(error),
        }
    }
}

/// Why a peer is not connected at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// Every lane was passed over.
    #[error("no lane reaches worker {peer} ({})", reasons(passed_over))]
    NoLane { peer: String, passed_over: Vec<PassedOver> },
    /// Slower lanes than the required one were not tried.
    #[error(
        "transport.require = \"{required}\", but no lane at least as fast reaches worker {peer} ({})",
        reasons(passed_over)
    )]
    NoRequiredLane { required: Lane, peer: String, passed_over: Vec<PassedOver> },
    /// The lane that was found is slower than the one that is taken.
    #[error("{0} is slower")]
    Slower(Lane),
    /// The system refuses something to this worker.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The system starts no thread for it.
    #[error("no thread to dial it, or to compare lanes: {0}")]
    Thread(io::Error),
}

fn reasons(passed_over: &[PassedOver]) -> String {
    passed_over.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
