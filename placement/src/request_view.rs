//! Open requests as operators see them.

use crate::journey::Journey;
use crate::waiting::WaitingRequest;
use domain::{Epoch, RequestId, WorkerId};

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// No worker has it.
    Waiting,
    /// Its prompt waits at a worker, or is computed.
    Prefilling,
    /// The client has its first tokens, and the decode worker takes it over.
    HandingOff,
    /// It decodes.
    Decoding,
    /// It decodes, and another decode worker takes it over.
    Moving,
}

/// An open request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestView {
    /// The request.
    pub id: RequestId,
    /// How far it is.
    pub state: RequestState,
    /// The attempt; 0 while it waits.
    pub epoch: Epoch,
    /// Computes the prompt for another worker.
    pub prefill: Option<WorkerId>,
    /// Makes the tokens.
    pub decode: Option<WorkerId>,
    /// The worker that takes it over.
    pub taker: Option<WorkerId>,
    /// Its worker drains, and no other has room for it.
    pub stuck: bool,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Tokens that the client has, over all choices.
    pub output_tokens: u32,
    /// Attempts so far.
    pub attempts: u32,
}

impl RequestView {
    /// Describes a request that no worker has.
    pub(crate) fn waiting(waits: &WaitingRequest) -> Self {
        Self {
            id: waits.request.id,
            state: RequestState::Waiting,
            epoch: Epoch(0),
            prefill: None,
            decode: None,
            taker: None,
            stuck: false,
            prompt_tokens: waits.request.prompt.len() as u32,
            output_tokens: 0,
            attempts: 0,
        }
    }
}

impl Journey {
    /// Describes the request as it is now.
    pub(crate) fn view(&self) -> RequestView {
        let state = if self.moving.is_some() {
            RequestState::Moving
        } else if self.awaits_first() {
            RequestState::Prefilling
        } else if self.attempt.decode_started {
            RequestState::Decoding
        } else {
            RequestState::HandingOff
        };
        let usage = self.usage();
        RequestView {
            id: self.request.id,
            state,
            epoch: self.epoch,
            prefill: self.attempt.prefill,
            decode: Some(self.attempt.decode),
            taker: self.moving.map(|(to, _)| to),
            stuck: self.stuck.is_some(),
            prompt_tokens: usage.prompt_tokens,
            output_tokens: usage.output_tokens,
            attempts: usage.attempts,
        }
    }
}
