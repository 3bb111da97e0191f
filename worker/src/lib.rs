//! What prefill and decode workers share: the step loop and the mechanisms it drives.
//!
//! A [`Worker`] is one OS thread that owns everything of its worker: the KV manager, the scheduler, the sequences and
//! the device. Everything else sends it [`Inbound`] messages. What a worker does with a prompt that has ended, or with
//! an offer that arrived, is its [`Role`]'s matter; the two sides of a handoff are the mechanisms [`Offers`] (of the
//! owner) and [`Fetches`] (of the reader) that roles compose.
//!
//! [`serve`] gives it sessions with routers of other processes; it is the one part that runs on tokio.
//!
//! What is deliberately absent: HTTP, text, placement, and any decision that a core could take.

mod acquaintance;
mod attempts;
mod clock;
mod commands;
mod config;
mod core;
mod fetches;
mod inbox;
mod lane_meters;
mod loading;
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
pub use transport::{ReadError, Transport};
