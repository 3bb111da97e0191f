#![doc = include_str!("../README.md")]

mod agent;
mod bounded_thread;
mod clock;
mod failure;
mod fields;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod lanes;
mod net;
mod planted_bugs;
mod random;
mod regions;
mod speed;
mod storage;
mod transfer;
mod wake;
mod wire_error;

pub use agent::Agent;
pub use agent::config::{AgentConfig, ListenConfig, RdmaConfig, RdmaService, TcpConfig};
pub use agent::counts::{AgentCounts, RailCounts, Reads, Refusal};
pub use agent::event::{AgentEvent, Completion, TransferError, TransferId, TransferReport};
pub use agent::metadata::ImportError;
pub use agent::peers::SendError;
pub use agent::rdma::RdmaError;
pub use agent::start_error::AgentStartError;
pub use bounded_thread::{BoundedThread, Late};
pub use failure::{Failure, Fault};
pub use kv_memory::{
    Copier, CopyError, CopyOrder, DeviceFile, DeviceId, DeviceKind, DevicePlace, Exports, FetchOrder, Fetched, Frame,
    GuardedMemory, Memory, PeerMemory, Place, PoolRange, PrivateMemory, SealedMemory, SumOf, Ticket, checksum,
    copy_racing_cached, decode_record, decode_summed, encode_record, encode_summed, host_range, prefer_node,
};
pub use lanes::local::Hub;
pub use lanes::rails::RailFault;
pub use lanes::rdma::{RdmaLibraryError, rdma_library};
pub use lanes::{Lane, LaneParseError, LaneStatus, PassedOver, Probe, Staging, WhyPassed};
pub use net::tls::{TLS_NAME, Tls, TlsError};
pub use regions::{DeregisterError, RegionId};
pub use storage::files::{
    Direction, FILE_ALIGN, FileBatch, FileConfig, FileCopy, FileEnd, FileError, FileId, FileMover, FilePrepareError,
    FileReport, FileSpec, FileStatus, FileTransfer, FileWay,
};
pub use storage::objects::{
    ListedObject, ObjectConfig, ObjectCredentials, ObjectEnd, ObjectError, ObjectMover, ObjectOutcome, ObjectPiece,
    ObjectPrepareError, ObjectReport, ObjectTransfer, ObjectTrouble, ObjectWork, open_store,
};
pub use storage::own_file::{make_own_folder, open_own_file};
pub use transfer::plan_slot::TransferState;
pub use transfer::prepared::Prepared;
pub use transfer::run_times::{RUN_TIMES_MAX, RunTime};
pub use transfer::{Copies, Copy, PostError, PrepareError, ReadBatch};
pub use wire_error::WireError;
