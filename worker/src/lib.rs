#![doc = include_str!("../README.md")]

mod acquaintance;
mod attempts;
mod clock;
mod commands;
mod config;
mod core;
mod fetches;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod inbox;
mod lane_meters;
mod machine;
mod memory;
mod meters;
mod offers;
mod outbox;
mod plan;
mod rates;
mod reports;
mod retry;
mod role;
mod sequence;
mod serve;
mod sessions;
mod sources;
mod space;
mod step_loop;
mod tier_meters;
mod tiers;
mod transport;

pub use attempts::Attempt;
pub use clock::Clock;
pub use commands::{Answer, Command, PIN_MAX, Prefix};
pub use config::{OUTBOX_BYTES, WorkerConfig};
pub use core::{Core, shares_prompt};
pub use fetches::{FetchKind, FetchProgress, Fetches};
pub use inbox::{Inbound, Inbox, SessionInput, WorkerInput, inbox};
pub use machine::Machine;
pub use offers::{Offers, Taker};
pub use outbox::SessionSend;
pub use role::Role;
pub use sequence::{PROMPT, Sequence};
pub use serve::{Identity, serve};
pub use sessions::SessionId;
pub use step_loop::{StartError, Worker, WorkerParts, agent_config, join};
pub use tiers::{
    DiskConfig, DiskError, FolderError, HostConfig, HostError, Record, Shared, StoreConfig, TierEnd, TierMover,
    TierParts, open_disk_tier, open_host_tier, open_object_tier,
};
pub use transport::{ReadError, Transport};
