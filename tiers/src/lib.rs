#![doc = include_str!("../README.md")]

mod disk;
mod file_meters;
mod framed_store;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod host;
mod model_key;
mod mover;
mod mover_thread;
mod object;
mod records;
#[cfg(test)]
mod rig;
mod shell_word;
mod store_error;

pub use disk::{DiskConfig, DiskError, open_disk_tier};
pub use handle::TierHandle;
pub use host::{FolderError, HostConfig, HostError, Shared, open_host_tier};
pub use mover::{LOAD_WAIT_MAX, TierEvent, TierMover, TierOwner, TierParts};
pub use object::{StoreConfig, open_object_tier};
pub use records::Record;
