//! What the requests of all dialects have in common: fields that are checked one by one, limits, the conversation that
//! a template makes a prompt of, and the request that comes of it.
//!
//! What is deliberately absent: sockets, waiting, how one dialect spells its fields (`dialects`), and the answers
//! (`answer`).

mod conversation;
mod fields;
mod limits;
mod options;
mod request;
mod structure;
mod tools;

pub(crate) use conversation::Conversation;
pub(crate) use fields::{Fields, sort, typed};
pub(crate) use limits::Limits;
pub(crate) use options::{Best, Options, Output, at_least, in_vocabulary, model, stop_strings, text};
pub(crate) use request::{ParsedRequest, Prompt};
pub(crate) use structure::{Structure, only};
pub(crate) use tools::{TOOLS_BYTES_MAX, Tool, call_id, earlier_call, offer, set_effort, switch_thinking, think};
