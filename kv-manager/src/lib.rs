#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod change_tracking_map;
mod config;
mod eviction;
mod fetch;
mod incarnations;
mod index;
mod lease;
mod manager;
mod pins;
mod pool;
mod sequence;
pub mod sizing;
mod tenants;
pub mod tiers;

pub use config::{EvictionPolicy, GroupConfig, KvConfig, Quotas, Watermarks};
pub use fetch::{Fetch, FetchCommand, FetchConfig, FetchError, FetchEvent, FetchState, Piece};
pub use incarnations::{Heard, Incarnations};
pub use manager::{Admit, CaughtUp, Grow, IndexChanges, KvManager, OfferParts, Pinned, Room};
pub use pool::GroupStats;
