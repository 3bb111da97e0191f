#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod adapter;
pub mod block;
mod by_identity;
mod claim;
mod dtype;
pub mod encoding;
pub mod end;
pub mod grammar;
pub mod handoff;
mod hello;
pub mod ids;
pub mod layout;
mod peer;
mod phases;
pub mod plan;
pub mod planted_bugs;
pub mod progress;
pub mod request;
pub mod secret;
pub mod session;
pub mod time;
mod tokens;
mod trace;
mod versions;

pub use adapter::Adapter;
pub use block::{BlockHash, BlockLink, BlockRef, Scope, ScopeParts, Tenant, salted_tenant};
pub use by_identity::{ByIdentity, IdentityHasher};
pub use claim::Claim;
pub use dtype::Dtype;
pub use encoding::{Encoding, KvPart};
pub use end::{End, Ender, Finish};
pub use grammar::{GRAMMAR_BYTES_MAX, Grammar, GrammarTooLong};
pub use ids::{
    BlockId, Choice, Epoch, Generation, GroupId, Incarnation, LeaseId, RequestId, SeqKey, SlotId, StepId, Token,
    WorkerId,
};
pub use layout::{KvGroup, KvKind, KvLayout, LAYOUT_VERSION, ModelLayout, Shard};
pub use phases::{PHASES_MAX, Phase, PhaseKind, Phases};
pub use progress::{ProgressMemory, ProgressWord};
pub use request::{Request, SamplingParams};
pub use secret::{Secret, Secrets};
pub use time::Time;
pub use tokens::Tokens;
pub use trace::TraceContext;
pub use versions::{NO_COMMON_VERSION, Versions};
