//! Lanes: the ways to read a peer's bytes, and the reasons why a faster one was not taken.

pub(crate) mod copy_threads;
pub(crate) mod lane_queue;
pub(crate) mod local;
pub(crate) mod nvlink;
pub(crate) mod rails;
pub(crate) mod rdma;
pub(crate) mod shm;
pub(crate) mod tcp;

use domain::Encoding;
use kv_memory::DeviceId;
use std::fmt;
use std::str::FromStr;

/// A way to read bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Lane {
    /// Both ends are one process.
    Local,
    /// Memory of devices of other processes of the host, mapped for this one's device, which copies out of it.
    Nvlink,
    /// Host memory of another process of the host, mapped read-only.
    Shm,
    /// One-sided reads over libibverbs.
    Rdma,
    /// The owner streams on request.
    Tcp,
}

/// Lanes between workers, the fastest by nature first.
const RANKING: [Lane; 5] = [Lane::Local, Lane::Nvlink, Lane::Shm, Lane::Rdma, Lane::Tcp];

impl Lane {
    /// How many there are.
    pub(crate) const COUNT: usize = RANKING.len();

    /// Returns the name in configuration, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Lane::Local => "local",
            Lane::Nvlink => "nvlink",
            Lane::Shm => "shm",
            Lane::Rdma => "rdma",
            Lane::Tcp => "tcp",
        }
    }

    /// Returns every lane, the fastest by nature first.
    ///
    /// ```
    /// use transport::Lane;
    ///
    /// let lanes: Vec<_> = Lane::all().collect();
    /// assert_eq!(lanes[0], Lane::Local);
    /// assert!(lanes.iter().all(|lane| lane.name().parse() == Ok(*lane)));
    /// ```
    pub fn all() -> impl Iterator<Item = Lane> {
        RANKING.into_iter()
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A lane's name that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no lane `{0}`; the lanes are local, nvlink, shm, rdma, tcp")]
pub struct LaneParseError(String);

impl FromStr for Lane {
    type Err = LaneParseError;
    fn from_str(text: &str) -> Result<Self, LaneParseError> {
        RANKING.into_iter().find(|lane| lane.name() == text).ok_or_else(|| LaneParseError(text.to_owned()))
    }
}

/// What the probe at connect time measured. Zeros where the peer has no memory to read.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Probe {
    /// Bytes a second of large reads.
    pub bytes_per_s: f64,
    /// Seconds of the smallest read.
    pub latency_s: f64,
}

/// The lane taken to a peer, and why no faster one.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneStatus {
    /// The peer.
    pub peer: String,
    /// The lane taken.
    pub lane: Lane,
    /// Whether TLS encrypts what it brings.
    pub tls: bool,
    /// How KV comes over it.
    pub encoding: Encoding,
    /// Whose memory is read or written by way of the host's.
    pub staging: Staging,
    /// As measured at connect.
    pub probe: Probe,
    /// What it is expected to bring in a second: by the setting, or by what its ports promise. `None`: nothing is.
    pub expected_bytes_per_s: Option<f64>,
    /// Every lane that is faster by nature, with the reason why it was not taken.
    pub passed_over: Vec<PassedOver>,
}

/// The ends whose memory is a device's that the lane does not reach: its bytes go through host memory, by a copier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staging {
    /// The peer's device.
    pub peer: Option<DeviceId>,
    /// The reader's own device.
    pub own: Option<DeviceId>,
}

impl Staging {
    /// Returns whether either is.
    pub fn is_some(self) -> bool {
        self.peer.is_some() || self.own.is_some()
    }
}

impl fmt::Display for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.peer, self.own) {
            (None, None) => f.write_str("no"),
            (Some(peer), None) => write!(f, "from the peer's {peer}"),
            (None, Some(own)) => write!(f, "to this worker's {own}"),
            (Some(peer), Some(own)) => write!(f, "from the peer's {peer} to this worker's {own}"),
        }
    }
}

/// A lane that was not taken, though it is faster by nature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// The lane.
    pub lane: Lane,
    /// Why, as a kind.
    pub why: WhyPassed,
    /// Why, for people.
    pub reason: String,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.lane, self.reason)
    }
}

/// Kinds of reasons why a lane was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WhyPassed {
    /// `transport.lanes` forbids it.
    Forbidden,
    /// It is one for agents of one process.
    Elsewhere,
    /// An end has memory of a kind that it does not read.
    Memory,
    /// It was reached, and another one was faster.
    Slower,
    /// An end will have none of the other.
    Refused,
    /// It was not reached.
    Unreached,
}

impl WhyPassed {
    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Elsewhere => "elsewhere",
            Self::Memory => "memory",
            Self::Slower => "slower",
            Self::Refused => "refused",
            Self::Unreached => "unreached",
        }
    }
}
