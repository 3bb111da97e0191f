//! What can be wrong with the devices of this host, and with what is made on them.

use super::verbs::{RdmaLibraryError, VerbsError};
use kv_memory::DeviceId;
use rustix::io::Errno;
use std::io;

/// Why the lane cannot be taken, or nothing can be read over one port of it now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    /// libibverbs cannot be used.
    #[error(transparent)]
    Library(#[from] RdmaLibraryError),
    /// The kernel has no RDMA.
    #[error("no device: the kernel has no RDMA (modprobe ib_uverbs)")]
    NoKernel,
    /// There is none.
    #[error("no device")]
    NoDevice,
    /// There is none of the names in the configuration.
    #[error("no device of the name {}", .0.join(" or "))]
    NoneNamed(Vec<String>),
    /// No port can be used, each for a reason of its own.
    #[error("{}", joined(.0))]
    NoneOf(Vec<NamedError>),
    /// The system does not open a device.
    #[error("{}{}", .0.errno, fix_of_open(.0.errno))]
    NotOpened(VerbsError),
    /// The configuration names a port that the device does not have.
    #[error("it has no such port")]
    NoPort,
    /// The port is down.
    #[error("its port is not active")]
    NotActive,
    /// The port has no address that is set, or not the one that the configuration names.
    #[error("its port has no GID that could be used")]
    NoGid,
    /// A call fails.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// libibverbs has no call for memory of another device.
    #[error("memory of a device cannot be registered: libibverbs lacks ibv_reg_dmabuf_mr (rdma-core 34)")]
    NoDmaBuf,
    /// Its driver exports memory to no network card.
    #[error("memory of {0} cannot be registered: its driver exports it to no network card")]
    NotExported(DeviceId),
    /// Memory is not registered.
    #[error("{bytes} bytes{} cannot be registered: {} ({})", kind.name(), source.errno, kind.fix())]
    NotRegistered { bytes: usize, kind: MemoryKind, source: VerbsError },
    /// A device has no completion queue as long as a rail needs.
    #[error("its device has room for {room} completions, where {needed} are needed")]
    NoRoom { room: u32, needed: u32 },
    /// The system has no random numbers, which the first packet's number is made of.
    #[error("no random numbers: {0}")]
    Random(io::Error),
    /// The owner offers no queue pairs on this rail.
    #[error("the owner has no queue pairs for it now")]
    NoOwnerPairs,
    /// The owner offers another number of queue pairs than the reader.
    #[error("{answered} queue pairs answer {offered}")]
    Pairs { answered: usize, offered: usize },
    /// One of both devices does no reads.
    #[error("its device serves no reads")]
    NoReads,
    /// The memory that trials read to is not registered.
    #[error("nowhere to read to")]
    NoScratch,
    /// A queue pair that is new does not take the reads that try it.
    #[error("there is no room for the reads that try it")]
    NoRoomToTry,
    /// The system refuses something that is not a device's.
    #[error("{0}")]
    System(io::Error),
}

/// An error of one port or device, by name.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {error}")]
pub(crate) struct NamedError {
    name: String,
    #[source]
    error: DeviceError,
}

/// Where memory that is registered lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    Host,
    /// On another device, which a kernel module lets the card address.
    Peer,
    /// On another device, whose driver exports it.
    DmaBuf,
}

impl DeviceError {
    /// Says which port or device it is about.
    pub(super) fn of(self, name: impl Into<String>) -> NamedError {
        NamedError { name: name.into(), error: self }
    }
}

impl From<NamedError> for DeviceError {
    fn from(error: NamedError) -> Self {
        Self::NoneOf(vec![error])
    }
}

impl MemoryKind {
    fn name(self) -> &'static str {
        match self {
            Self::Host => "",
            Self::Peer | Self::DmaBuf => " of a device",
        }
    }

    /// Returns what most often fixes it where memory is refused.
    fn fix(self) -> &'static str {
        match self {
            Self::Host => "ulimit -l: locked memory",
            Self::Peer => "modprobe nvidia_peermem",
            Self::DmaBuf => "kernel, rdma-core and the card's driver must take a dma-buf",
        }
    }
}

/// Says what fixes it where a device is not opened, if that is known.
fn fix_of_open(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS | Errno::PERM => " (who runs this may not use /dev/infiniband)",
        Errno::NOENT => " (it is not in /dev/infiniband: for a container, --device /dev/infiniband)",
        _ => "",
    }
}

/// Lists errors in one line.
pub(super) fn joined(errors: &[NamedError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
