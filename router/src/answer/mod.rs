//! Answers: from the updates of a request to typed deltas, and on to the bytes that its client gets, whole or as a
//! stream of events. How they are spelled is a dialect's matter, its [`Writer`]'s.
//!
//! What is deliberately absent: sampling and ends by token (the workers' matter), and what becomes of a request.

mod delta;
mod run;
mod sequence;
mod stream;
mod text;
mod whole;
mod writer;

pub(crate) use delta::{Delta, Finish, LoggedToken, Taken, Whole};
pub(crate) use run::{Run, Waiting};
pub(crate) use stream::events;
pub(crate) use whole::whole;
pub(crate) use writer::Writer;

#[cfg(test)]
mod tests;
