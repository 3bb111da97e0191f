#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod directory;
mod eviction;
mod fetch;
mod index;
mod lease;
mod lives;
mod manager;
mod pins;
mod pool;
mod sequence;
mod tenants;
pub mod tiers;

pub use config::{EvictionPolicy, GroupConfig, KvConfig, Quotas, Watermarks};
pub use fetch::{Fetch, FetchCommand, FetchConfig, FetchEvent, FetchState, Piece};
pub use lives::{Heard, Lives};
pub use manager::{Admit, CaughtUp, Grow, IndexChanges, KvManager, OfferParts, Pinned};
pub use pool::GroupStats;
