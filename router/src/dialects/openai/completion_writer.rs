//! The answer to a completion.

use super::form::{Object, Usage, finish_reason};
use super::logprobs::{CompletionLogprobs, Logged};
use crate::answer::{Delta, Finish, LoggedToken, Taken, Whole, Writer};
use crate::api::ParsedRequest;
use crate::config::ModelCard;
use crate::dialects::Head;
use crate::error::ApiError;
use bytes::{BufMut, BytesMut};
use domain::Token;
use engine::text::Tokenizer;
use serde::Serialize;
use std::sync::Arc;

/// Writes the answer to a completion.
pub(super) struct CompletionWriter {
    head: Head,
    tokenizer: Tokenizer,
    /// The client asked for log probabilities.
    logprobs: bool,
    /// The client asked for the usage.
    usage: bool,
    /// Sequences of each prompt that are told.
    choices: usize,
    /// What the answers to each prompt begin with; none: they begin with nothing.
    echo: Vec<String>,
    /// The tokens of each prompt, where the client asked for tokens.
    prompts: Option<Vec<Arc<[Token]>>>,
    /// Of which sequences a chunk is written.
    begun: Vec<bool>,
}

/// A sequence of an answer, or a chunk of it.
#[derive(Serialize)]
struct Choice<'a> {
    index: usize,
    text: String,
    logprobs: Option<CompletionLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [Token]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [Token]>,
}

impl CompletionWriter {
    /// Begins the answer to `asked`.
    pub(super) fn new(head: Head, asked: &ParsedRequest, card: &ModelCard) -> Self {
        let options = &asked.options;
        let prompts = || asked.prompts.iter().map(|prompt| prompt.tokens.clone()).collect();
        Self {
            head,
            tokenizer: card.tokenizer.clone(),
            logprobs: options.best.map_or(options.params.logprobs.is_some(), |best| best.tells_logprobs),
            usage: options.include_usage,
            choices: usize::from(options.best.map_or(options.choices, |best| best.choices)),
            echo: options.echo.clone(),
            prompts: options.tells_tokens.then(prompts),
            begun: vec![false; asked.sequences()],
        }
    }

    fn logged<'a>(&'a self, tokens: &'a [LoggedToken]) -> Option<CompletionLogprobs<'a>> {
        self.logprobs.then(|| Logged { tokenizer: &self.tokenizer, tokens }.into())
    }

    /// Returns what the answer begins with whose sequence this is.
    fn echo(&self, index: usize) -> &str {
        self.echo.get(index / self.choices).map_or("", String::as_str)
    }

    fn prompt(&self, index: usize) -> Option<&[Token]> {
        self.prompts.as_ref().map(|prompts| &*prompts[index / self.choices])
    }

    fn chunk<C: Serialize>(&self, choices: C, usage: Option<Usage>, out: &mut BytesMut) {
        let usage = self.usage.then_some(usage);
        super::event(out, &Object::new("text_completion", &self.head, choices, usage));
    }

    /// Appends a chunk of a sequence. Its first one has what the answer begins with.
    fn choice(&mut self, index: usize, delta: &Delta, finish_reason: Option<&'static str>, out: &mut BytesMut) {
        let is_first = !std::mem::replace(&mut self.begun[index], true);
        let text = delta.text();
        let choice = Choice {
            index,
            text: if is_first { self.echo(index).to_owned() + &text } else { text },
            logprobs: self.logged(&delta.logprobs).filter(|_| finish_reason.is_none()),
            finish_reason,
            token_ids: self.prompts.is_some().then_some(&delta.tokens[..]),
            prompt_token_ids: self.prompt(index).filter(|_| is_first),
        };
        self.chunk([choice], None, out);
    }
}

impl Writer for CompletionWriter {
    fn delta(&mut self, index: usize, delta: &Delta, out: &mut BytesMut) {
        self.choice(index, delta, None, out);
    }

    fn finish(&mut self, index: usize, finish: Finish, out: &mut BytesMut) {
        self.choice(index, &Delta::default(), Some(finish_reason(finish)), out);
    }

    fn end(&mut self, taken: Taken, out: &mut BytesMut) {
        if self.usage {
            let none: [(); 0] = [];
            self.chunk(none, Some(Usage::of(taken)), out);
        }
        out.put_slice(super::DONE);
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        super::error_event(out, error);
    }

    fn whole(&self, sequences: &[Whole], taken: Taken) -> Vec<u8> {
        let choices: Vec<_> = (sequences.iter().enumerate())
            .map(|(index, whole)| Choice {
                index,
                text: self.echo(index).to_owned() + &whole.text(),
                logprobs: self.logged(&whole.logprobs),
                finish_reason: Some(finish_reason(whole.finish)),
                token_ids: self.prompts.is_some().then_some(&whole.tokens[..]),
                prompt_token_ids: self.prompt(index),
            })
            .collect();
        super::whole(&Object::new("text_completion", &self.head, choices, Some(Some(Usage::of(taken)))))
    }
}
