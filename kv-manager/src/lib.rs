//! One worker's KV manager: which block holds what, who may use it and for how long, and both sides of a fetch.
//!
//! - [`KvManager`] owns the block pools of all KV groups: sequences and their block tables, the prefix index, eviction,
//!   and, as the owner of its blocks, the leases that readers hold on them.
//! - [`Fetch`] is the reader's side: a machine per attempt that takes an offer, asks for room, says what to read,
//!   and lets nothing start before the owner called the copy valid.
//! - [`tiers`] are what lies below the device: which blocks are written where, and which are there.
//!
//! One thread owns all of it; nothing here locks. What is deliberately absent: the bytes (engine and transport move them), the
//! clock (time is an argument), the network, and every choice of what to run next (`scheduler`) or where (`placement`).
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
mod tenants;
pub mod tiers;

pub use config::{EvictionPolicy, GroupConfig, KvConfig, Quotas, Watermarks};
pub use fetch::{Fetch, FetchCommand, FetchConfig, FetchEvent, FetchState, Piece};
pub use incarnations::{Heard, Incarnations};
pub use manager::{Admit, CaughtUp, Grow, IndexChanges, KvManager, OfferParts, Pinned};
pub use pool::GroupStats;
