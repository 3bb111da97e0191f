//! How a request or a sequence ended, and which party ended it.

use serde::{Deserialize, Serialize};

/// The party that ended a request or a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Ender {
    /// The model: a stop token or a stop string.
    Done,
    /// The client: it hung up or cancelled.
    Client,
    /// A limit of the request: `max_tokens`, the context length, its deadline.
    Limit,
    /// A worker: it failed, or could not keep its promise.
    Worker,
    /// The service: shutdown, overload, a client that reads too slowly.
    Us,
}

/// What the client is told as `finish_reason`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Finish {
    /// A stop token or a stop string.
    Stop,
    /// `max_tokens` or the context length.
    Length,
    /// No regular end; the reason is an error.
    Error,
}

/// The one end of a sequence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct End {
    /// The party that ended it.
    pub by: Ender,
    /// What the client is told.
    pub finish: Finish,
    /// For people; empty on a regular end.
    pub detail: String,
}

impl End {
    /// Makes the end of a sequence that the model ended.
    pub fn stop() -> Self {
        Self { by: Ender::Done, finish: Finish::Stop, detail: String::new() }
    }

    /// Makes the end of a sequence at a token limit.
    pub fn length() -> Self {
        Self { by: Ender::Limit, finish: Finish::Length, detail: String::new() }
    }

    /// Makes an irregular end.
    pub fn error(by: Ender, detail: impl Into<String>) -> Self {
        Self { by, finish: Finish::Error, detail: detail.into() }
    }
}
