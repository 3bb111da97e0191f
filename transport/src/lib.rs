//! The transfer layer: an [`Agent`] reads bytes of its peers into its own registered memory, and carries small
//! messages between them.
//!
//! The destination of a transfer is always the caller's own memory. There is no call that writes into a peer's, so a
//! late write cannot exist; a late read is harmless to the owner and the reader throws its result away.
//!
//! What is deliberately absent: any decision about which bytes to read and whether they are valid (that is
//! `kv-manager`'s). The only thing decided here is the lane.

mod agent;
mod copy;
mod event;
mod hub;
mod lane;
mod memory;
mod mover;
mod transfer;
mod watch;

pub use agent::{Agent, AgentConfig, ConnectError, SendError};
pub use event::{AgentEvent, Completion, TransferError, TransferId, TransferReport};
pub use hub::Hub;
pub use lane::{Lane, LaneParseError, LaneStatus, Probe};
pub use memory::{Memory, RegionId};
pub use transfer::{Copy, PostError, PrepareError, ReadBatch, Transfer};

#[cfg(test)]
mod tests;
