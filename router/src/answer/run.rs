//! An HTTP request's sequences while their updates come in.

use super::text::{SequenceText, TextDelta};
use crate::access::Access;
use crate::api::ParsedRequest;
use crate::brain::{Note, Update};
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::{Choice, End, Finish, RequestId};
use engine::text::Detokenizer;
use keys::{Admission, KeyError};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Most updates that are turned into bytes at once.
const BATCH_MAX: usize = 256;

/// Where deltas of an answer go.
pub(super) trait Sink {
    /// Takes more of a sequence.
    fn delta(&mut self, sequence: usize, delta: &TextDelta);
    /// Takes the end of a sequence, for the reason `finish`.
    fn finish(&mut self, sequence: usize, finish: &'static str);
}

/// The handler's end of what it gave to the brain. Dropping it is hanging up.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Ids of the prompts.
    pub(crate) ids: Vec<RequestId>,
    /// What comes back.
    pub(crate) updates: mpsc::Receiver<Update>,
    /// The way to the brain.
    pub(crate) notes: mpsc::Sender<Note>,
    /// What the log will say of the request, when its answer is over, too.
    pub(crate) _access: Arc<Access>,
}

/// What a request took, as clients are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Taken {
    pub(super) prompt_tokens: usize,
    pub(super) cached_tokens: usize,
    pub(super) output_tokens: usize,
}

/// An HTTP request's sequences.
#[derive(Debug)]
pub(crate) struct Run {
    waiting: Waiting,
    /// What its tokens are taken from.
    admission: Admission,
    choices: usize,
    /// Choices of the first prompt, then of the second, and so on.
    sequences: Vec<Sequence>,
    prompt_tokens: usize,
    cached_tokens: usize,
    /// Prompts that have not ended.
    open: usize,
    /// Updates that came and were not looked at.
    batch: Vec<Update>,
    /// Sequences that a stop string ended and of which the brain does not know.
    stopped: Vec<usize>,
}

#[derive(Debug)]
struct Sequence {
    text: SequenceText,
    finished: bool,
}

impl Run {
    /// Begins the run of `ask`, which `waiting` waits for, by `admission`.
    pub(crate) fn new(ask: &ParsedRequest, card: &ModelCard, waiting: Waiting, admission: Admission) -> Self {
        let choices = usize::from(ask.options.choices);
        let mut sequences = Vec::with_capacity(choices * ask.prompts.len());
        for prompt in &ask.prompts {
            let before = if ask.options.goes_on { &prompt.tokens[..] } else { &[] };
            let detokenizer = Detokenizer::new(card.tokenizer.clone(), before, ask.options.special_tokens);
            for _ in 0..choices {
                let stops = ask.options.stops.clone();
                let text = SequenceText::new(detokenizer.clone(), stops, prompt.params.clone());
                sequences.push(Sequence { text, finished: false });
            }
        }
        Self {
            choices,
            sequences,
            prompt_tokens: ask.prompts.iter().map(|prompt| prompt.tokens.len()).sum(),
            cached_tokens: 0,
            open: waiting.ids.len(),
            batch: Vec::with_capacity(BATCH_MAX),
            stopped: Vec::new(),
            waiting,
            admission,
        }
    }

    /// Returns the number of sequences.
    pub(super) fn sequences(&self) -> usize {
        self.sequences.len()
    }

    /// Returns whether every prompt has ended.
    pub(super) fn over(&self) -> bool {
        self.open == 0
    }

    /// Returns the tokens that the answer took so far.
    pub(super) fn taken(&self) -> Taken {
        Taken {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            output_tokens: self.sequences.iter().map(|sequence| sequence.text.tokens() as usize).sum(),
        }
    }

    /// Waits until workers have every prompt, or something was computed: an answer that has begun waits for no
    /// prompt. Errors: a prompt was refused or failed before, so that the client can still be told by the status.
    pub(crate) async fn placed(&mut self) -> Result<(), ApiError> {
        let mut placed = 0;
        while placed < self.waiting.ids.len() {
            let seen = self.batch.len();
            self.receive().await?;
            for update in &self.batch[seen..] {
                match update {
                    Update::Placed => placed += 1,
                    Update::Rejected { why, detail } => return Err(ApiError::rejected(*why, detail)),
                    Update::End { end, .. } if end.finish == Finish::Error => return Err(ApiError::ended(end)),
                    Update::End { .. } | Update::Token { .. } | Update::SequenceEnd { .. } => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Waits until there are updates for [`Self::advance`]. Nothing is lost where this is dropped.
    pub(super) async fn ready(&mut self) -> Result<(), ApiError> {
        if self.batch.is_empty() { self.receive().await } else { Ok(()) }
    }

    /// Waits for updates and passes them to `sink`. Errors: a prompt failed; nothing more is to be done.
    pub(super) async fn advance(&mut self, sink: &mut impl Sink) -> Result<(), ApiError> {
        self.ready().await?;
        let mut batch = std::mem::take(&mut self.batch);
        let result = batch.drain(..).try_for_each(|update| self.take(update, sink));
        self.batch = batch;
        for sequence in std::mem::take(&mut self.stopped) {
            let request = self.waiting.ids[sequence / self.choices];
            let choice = Choice((sequence % self.choices) as u16);
            // A brain that is over has no sequence left to stop.
            let _ = self.waiting.notes.send(Note::StopChoice { request, choice }).await;
        }
        result
    }

    async fn receive(&mut self) -> Result<(), ApiError> {
        let seen = self.batch.len();
        let received = tokio::select! {
            biased;
            () = self.admission.revoked() => return Err(KeyError::Unknown.into()),
            received = self.waiting.updates.recv_many(&mut self.batch, BATCH_MAX) => received,
        };
        let is_token = |update: &&Update| matches!(update, Update::Token { .. });
        self.admission.take(self.batch[seen..].iter().filter(is_token).count());
        match received {
            0 => Err(ApiError::internal("The router's brain ended.")),
            _ => Ok(()),
        }
    }

    fn take(&mut self, update: Update, sink: &mut impl Sink) -> Result<(), ApiError> {
        match update {
            Update::Placed => Ok(()),
            Update::Token { sequence: at, token, logprobs } => {
                let sequence = &mut self.sequences[at];
                // What comes after a stop string, until the workers know of it.
                if !sequence.finished {
                    let delta = sequence.text.push(token, logprobs);
                    if delta.stopped {
                        self.stopped.push(at);
                        self.finish(at, &delta, "stop", sink);
                    } else {
                        sink.delta(at, &delta);
                    }
                }
                Ok(())
            }
            Update::SequenceEnd { sequence: at, end } => {
                if !self.sequences[at].finished {
                    let delta = self.sequences[at].text.finish();
                    let finish = if delta.stopped { "stop" } else { finish_reason(&end) };
                    self.finish(at, &delta, finish, sink);
                }
                Ok(())
            }
            Update::End { end, .. } if end.finish == Finish::Error => Err(ApiError::ended(&end)),
            Update::End { cached_tokens, .. } => {
                self.cached_tokens += cached_tokens as usize;
                self.open -= 1;
                Ok(())
            }
            Update::Rejected { why, detail } => Err(ApiError::rejected(why, &detail)),
        }
    }

    fn finish(&mut self, at: usize, delta: &TextDelta, finish: &'static str, sink: &mut impl Sink) {
        self.sequences[at].finished = true;
        sink.delta(at, delta);
        sink.finish(at, finish);
    }
}

fn finish_reason(end: &End) -> &'static str {
    match end.finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::Error => "error",
    }
}
