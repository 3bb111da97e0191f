//! One prompt's client as the brain sees it: a bounded queue of updates, and what is measured on the way.

use crate::http::{Admitted, Place};
use domain::plan::TokenLogprobs;
use domain::session::TokenRow;
use domain::{Choice, End, RequestId, Time, Token};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use placement::Rejected;
use std::sync::Arc;
use telemetry::metrics;
use telemetry::metrics::{Counter, Histogram};
use tokio::sync::mpsc::{self, OwnedPermit};

/// What a client learns. `sequence` counts over all the prompts of its HTTP request.
#[derive(Debug)]
pub(crate) enum Update {
    /// A prompt was placed: workers have it.
    Placed,
    /// The next token of a sequence.
    Token {
        /// The sequence.
        sequence: usize,
        /// The token.
        token: Token,
        /// Where asked for.
        logprobs: Option<TokenLogprobs>,
        /// At the first token: prompt tokens that a cache had.
        cached_tokens: u32,
    },
    /// A sequence ended regularly.
    SequenceEnd {
        /// The sequence.
        sequence: usize,
        /// The party that ended it, and the finish reason.
        end: End,
    },
    /// A prompt's request ended: nothing more of it comes.
    End {
        /// The party that ended it, and the finish reason.
        end: End,
        /// Prompt tokens that a cache had.
        cached_tokens: u32,
    },
    /// A prompt's request was refused before any token.
    Rejected {
        /// Why, as a kind.
        why: Rejected,
        /// Why, for people.
        detail: String,
    },
}

/// The queue to one HTTP request, which all its prompts share.
#[derive(Clone, Debug)]
pub(crate) struct Updates {
    queue: mpsc::Sender<Update>,
}

impl Updates {
    /// Makes a queue of `buffer` updates. Room for the beginnings and ends of `prompts` prompts is set aside in
    /// addition.
    pub(crate) fn new(buffer: usize, prompts: usize) -> (Self, mpsc::Receiver<Update>) {
        let (queue, receiver) = mpsc::channel(buffer + 2 * prompts);
        (Self { queue }, receiver)
    }
}

/// What is measured at every token; looked up once.
pub(super) struct Meters {
    first: Histogram,
    between: Histogram,
    tokens: Counter,
}

impl Meters {
    pub(super) fn new() -> Self {
        Self {
            first: metrics::time_to_first_token(),
            between: metrics::inter_token(),
            tokens: metrics::output_tokens(),
        }
    }
}

/// Whether an update fitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Delivered {
    /// It waits for the client, or the client is gone.
    Yes,
    /// The client's queue is full.
    Full,
}

/// What an open request holds. It is given back with its client.
#[derive(Debug)]
pub(crate) struct Held {
    /// The place among the open requests.
    pub(crate) _place: Place,
    /// The connection that the answer goes to.
    pub(crate) _connection: Arc<Admitted>,
}

/// The client of one prompt.
#[derive(Debug)]
pub(crate) struct Client {
    queue: mpsc::Sender<Update>,
    /// Room for the end: a client that reads too slowly still learns that it does.
    end: OwnedPermit<Update>,
    /// Room to tell that it is placed, until that is told.
    placed: Option<OwnedPermit<Update>>,
    /// Sequences of earlier prompts of the same HTTP request.
    sequence_base: usize,
    arrived: Time,
    /// When each sequence had its last token.
    last: Vec<Option<Time>>,
    _held: Held,
}

impl Client {
    /// Makes the client of a prompt with `choices` sequences, which follow `sequence_base` others in the answer.
    /// `None` if no room was set aside for its beginning and end.
    pub(crate) fn new(
        updates: &Updates,
        sequence_base: usize,
        choices: u16,
        arrived: Time,
        held: Held,
    ) -> Option<Self> {
        let queue = updates.queue.clone();
        let end = queue.clone().try_reserve_owned().ok()?;
        let placed = Some(queue.clone().try_reserve_owned().ok()?);
        Some(Self { queue, end, placed, sequence_base, arrived, last: vec![None; choices.into()], _held: held })
    }

    /// Returns when its request arrived.
    pub(super) fn arrived(&self) -> Time {
        self.arrived
    }

    /// Waits until the client's receiver is gone.
    pub(super) fn gone(&self, request: RequestId) -> BoxFuture<'static, RequestId> {
        let queue = self.queue.clone();
        async move {
            queue.closed().await;
            request
        }
        .boxed()
    }

    /// Tells that the prompt was placed; `false`: it was told before.
    pub(super) fn placed(&mut self) -> bool {
        let placed = self.placed.take();
        placed.map(|placed| placed.send(Update::Placed)).is_some()
    }

    pub(super) fn token(&mut self, now: Time, choice: Choice, row: TokenRow, meters: &Meters) -> Delivered {
        let index = usize::from(choice.0);
        match self.last[index].replace(now) {
            Some(last) => meters.between.record(now.since(last).as_secs_f64()),
            None => meters.first.record(now.since(self.arrived).as_secs_f64()),
        }
        meters.tokens.increment(1);
        let sequence = self.sequence_base + index;
        let TokenRow { token, logprobs, cached_tokens, .. } = row;
        self.deliver(Update::Token { sequence, token, logprobs, cached_tokens })
    }

    pub(super) fn choice_end(&mut self, choice: Choice, end: End) -> Delivered {
        let sequence = self.sequence_base + usize::from(choice.0);
        self.deliver(Update::SequenceEnd { sequence, end })
    }

    /// Sends the last update.
    pub(super) fn end(self, end: End, cached_tokens: u32) {
        self.end.send(Update::End { end, cached_tokens });
    }

    /// Sends the last update of a prompt that was refused before its first token.
    pub(super) fn reject(self, why: Rejected, detail: String) {
        self.end.send(Update::Rejected { why, detail });
    }

    fn deliver(&self, update: Update) -> Delivered {
        match self.queue.try_send(update) {
            // A client that is gone is noticed by `gone`.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Delivered::Yes,
            Err(mpsc::error::TrySendError::Full(_)) => Delivered::Full,
        }
    }
}
