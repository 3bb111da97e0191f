#![doc = include_str!("../README.md")]

mod checksum;
mod copier;
mod copier_threads;
mod copy;
mod device;
mod encoding;
mod frame;
mod guarded;
mod host_copier;
mod host_range;
mod memory;
mod node;
mod peer_mapping;
mod peer_memory;
mod private;
mod sealed;
mod writable_mapping;

pub use checksum::{checksum, checksum_racing, copy_summed, fold};
pub use copier::{
    COPIES_QUEUED_MAX, Copied, Copier, CopyError, CopyOrder, FetchOrder, FetchRange, Fetched, PoolRange, Reply, SumOf,
    Ticket,
};
pub use copier_threads::{CopierDevice, CopierThreads, Hand};
pub use copy::{LINE, copy_racing, copy_racing_cached, fetch_ahead, fetch_to_write};
pub use device::{DeviceFile, DeviceId, DeviceKind};
pub use encoding::{decode_parts, decode_record, decode_summed, encode_parts, encode_record, encode_summed};
pub use frame::Frame;
pub use guarded::GuardedMemory;
pub use host_range::HostRange;
pub use memory::{DevicePlace, Exports, Memory, Place, host_range};
pub use node::prefer_node;
pub use peer_mapping::{MapError, PeerMapping};
pub use peer_memory::PeerMemory;
pub use private::PrivateMemory;
pub use sealed::SealedMemory;
