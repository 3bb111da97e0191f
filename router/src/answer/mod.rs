//! Answers: from the updates of a request to the bytes that its client gets, whole or as a stream of events.
//!
//! What is deliberately absent: sampling and ends by token (the workers' matter), and what becomes of a request.

mod events;
mod form;
mod run;
mod text;
mod whole;

pub(crate) use events::events;
pub(crate) use form::Head;
pub(crate) use run::{Run, Waiting};
pub(crate) use whole::whole;

#[cfg(test)]
mod tests;
