#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cache;
mod checksum;
mod client;
mod download;
mod error;
mod listing;
mod name;
mod notice;
mod pull;
pub mod select;
mod walk;

pub use cache::{Cache, CachedModel};
pub use error::HubError;
pub use listing::{Checksum, HubFile, Listing};
pub use name::{ModelName, NameError};
pub use notice::Notice;
pub use pull::{Hub, Preview};
