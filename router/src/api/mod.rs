//! The OpenAI API's requests: from a body to what the brain takes, with every field checked.
//!
//! What is deliberately absent: sockets, waiting, and the answers (those are `answer`'s).

mod ask;
mod chat;
mod completion;
mod fields;
mod limits;
mod options;
mod prefix;

pub(crate) use ask::{Endpoint, ParsedRequest, ask, is_quick};
pub(crate) use limits::Limits;
pub(crate) use prefix::prefix;

#[cfg(test)]
mod tests;
