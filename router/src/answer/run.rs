//! An HTTP request's sequences while their updates come in.

use super::delta::{Delta, Finish, Taken};
use super::sequence::Sequence;
use super::text::SequenceText;
use crate::access::Access;
use crate::api::ParsedRequest;
use crate::brain::{Note, Update};
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::{Choice, RequestId};
use engine::text::Detokenizer;
use keys::{Admission, KeyError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Most updates that are turned into bytes at once.
const BATCH_MAX: usize = 256;

/// Where deltas of an answer go.
pub(super) trait Sink {
    /// Learns that something was computed, before all else. `taken` has the tokens of the prompts.
    fn begin(&mut self, taken: Taken);
    /// Takes more of a sequence.
    fn delta(&mut self, sequence: usize, delta: &Delta);
    /// Takes the end of a sequence.
    fn finish(&mut self, sequence: usize, finish: Finish);
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
    pub(crate) access: Arc<Access>,
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
    /// When something was computed, after the request's arrival.
    first_after: Option<Duration>,
    /// Nothing of the answer is told.
    is_silent: bool,
    /// Prompts that have not ended.
    open: usize,
    /// Updates that came and were not looked at.
    batch: Vec<Update>,
    /// Sequences that a stop string ended and of which the brain does not know.
    stopped: Vec<usize>,
}

impl Run {
    /// Begins the run of `ask`, which `waiting` waits for, by `admission`.
    pub(crate) fn new(ask: &ParsedRequest, card: &ModelCard, waiting: Waiting, admission: Admission) -> Self {
        let choices = usize::from(ask.options.choices);
        let mut sequences = Vec::with_capacity(ask.sequences());
        for prompt in &ask.prompts {
            let before = if ask.options.goes_on { &prompt.tokens[..] } else { &[] };
            let options = &ask.options;
            let detokenizer = Detokenizer::new(card.tokenizer.clone(), before, options.special_tokens.clone());
            for _ in 0..choices {
                let text = SequenceText::new(detokenizer.clone(), options, prompt.params.clone());
                let parser = options.output.as_ref().and_then(|output| output.parser(&prompt.tokens, card));
                let one_call = options.output.as_ref().is_some_and(|it| it.one_call);
                sequences.push(Sequence::new(text, parser, one_call, options.tells_tokens));
            }
        }
        Self {
            choices,
            sequences,
            prompt_tokens: ask.prompts.iter().map(|prompt| prompt.tokens.len()).sum(),
            cached_tokens: 0,
            first_after: None,
            is_silent: ask.options.max_tokens == Some(0),
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

    /// Returns the number of sequences of each prompt.
    pub(super) fn choices(&self) -> usize {
        self.choices
    }

    /// Returns the mean log probability of a sequence's tokens.
    pub(super) fn mean_logprob(&self, sequence: usize) -> f64 {
        self.sequences[sequence].mean_logprob()
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
            output_tokens: self.sequences.iter().map(Sequence::tokens).sum(),
            reasoning_tokens: self.sequences.iter().map(Sequence::reasoning_tokens).sum(),
            first_after: self.first_after.unwrap_or_default(),
            after: self.waiting.access.age(),
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
                    Update::End { end, .. } if end.finish == domain::Finish::Error => return Err(ApiError::ended(end)),
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
            Update::Token { sequence: at, token, logprobs, cached_tokens } => {
                self.begin(cached_tokens, sink);
                let sequence = &mut self.sequences[at];
                // What comes after the end, until the workers know of it, is not shown.
                if !sequence.is_over && !self.is_silent {
                    let (delta, end) = sequence.push(token, logprobs);
                    show(at, &delta, sink);
                    if let Some(end) = end {
                        self.stopped.push(at);
                        sink.finish(at, end);
                    }
                }
                Ok(())
            }
            Update::SequenceEnd { sequence: at, end } => {
                self.begin(0, sink);
                if !self.sequences[at].is_over {
                    let is_length = end.finish == domain::Finish::Length || self.is_silent;
                    let ended = if is_length { Finish::Length } else { Finish::Stop };
                    let (delta, finish) = self.sequences[at].finish(ended);
                    show(at, &delta, sink);
                    sink.finish(at, finish);
                }
                Ok(())
            }
            Update::End { end, .. } if end.finish == domain::Finish::Error => Err(ApiError::ended(&end)),
            Update::End { cached_tokens, .. } => {
                self.cached_tokens += cached_tokens as usize;
                self.open -= 1;
                Ok(())
            }
            Update::Rejected { why, detail } => Err(ApiError::rejected(why, &detail)),
        }
    }

    fn begin(&mut self, cached_tokens: u32, sink: &mut impl Sink) {
        if self.first_after.is_none() {
            self.first_after = Some(self.waiting.access.age());
            sink.begin(Taken { cached_tokens: cached_tokens as usize, ..self.taken() });
        }
    }
}

/// Passes on what can be shown, if there is something.
fn show(at: usize, delta: &Delta, sink: &mut impl Sink) {
    if !delta.is_empty() {
        sink.delta(at, delta);
    }
}
