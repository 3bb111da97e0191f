#![doc = include_str!("../README.md")]

mod agent;
mod bounded_thread;
mod checksum;
mod claims;
mod config;
mod control;
mod copy;
mod counts;
mod crowd;
mod desk;
mod encoding;
mod event;
mod failure;
mod files;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hub;
mod lane;
mod lane_rdma;
mod lane_tcp;
mod link;
mod mapping;
mod memory;
mod metadata;
mod mover;
mod objects;
mod own;
mod own_file;
mod pace;
mod peers;
mod planted;
mod prepared;
mod private;
mod probe;
mod progress_page;
mod rails;
mod random;
mod ranking;
mod sealed;
mod slot;
mod socket;
mod station;
mod storage_pace;
mod timeline;
mod tls;
mod transfer;
mod wake;
mod watch;

pub use agent::Agent;
pub use bounded_thread::{BoundedThread, Late};
pub use checksum::checksum;
pub use config::{AgentConfig, ListenConfig, RdmaConfig, RdmaService, TcpConfig};
pub use copy::copy_racing_cached;
pub use counts::{AgentCounts, RailCounts, Reads, Refusal};
pub use encoding::{decode_record, decode_summed, encode_record, encode_summed};
pub use event::{AgentEvent, Completion, TransferError, TransferId, TransferReport};
pub use failure::{Failure, Fault};
pub use files::{
    Direction, FILE_ALIGN, FileBatch, FileConfig, FileCopy, FileEnd, FileError, FileId, FileMover, FilePrepareError,
    FileReport, FileSpec, FileStatus, FileTransfer, FileWay,
};
pub use hub::Hub;
pub use lane::{Lane, LaneParseError, LaneStatus, PassedOver, Probe, WhyPassed};
pub use lane_rdma::rdma_library;
pub use memory::{DeregisterError, DeviceMemory, Memory, RegionId};
pub use metadata::ImportError;
pub use objects::{
    ObjectConfig, ObjectCredentials, ObjectEnd, ObjectError, ObjectMover, ObjectOutcome, ObjectPiece,
    ObjectPrepareError, ObjectReport, ObjectTransfer, ObjectTrouble, ObjectWork,
};
pub use own_file::{make_own_folder, open_own_file};
pub use peers::SendError;
pub use prepared::Prepared;
pub use private::PrivateMemory;
pub use rails::RailFault;
pub use sealed::SealedMemory;
pub use slot::TransferState;
pub use tls::{TLS_NAME, Tls, TlsError};
pub use transfer::{Copies, Copy, PostError, PrepareError, ReadBatch};
