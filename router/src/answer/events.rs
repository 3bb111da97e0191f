//! The answer as a stream of server-sent events. One buffer serves all of them.

use super::form::{ChatChunk, CompletionChoice, Delta, Head, Logged, Object, Usage};
use super::run::{Run, Sink};
use super::text::TextDelta;
use crate::api::Endpoint;
use crate::error::ApiError;
use bytes::{BufMut, Bytes, BytesMut};
use engine::text::Tokenizer;
use futures_util::stream::{self, Stream};
use serde::Serialize;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Bytes that the buffer has at first: some events.
const BUFFER_BYTES: usize = 4096;

/// Returns the events of `run`'s answer. `logprobs`, `usage`: the client asked for them. `keepalive`: a comment is
/// sent after so long without an event.
pub(crate) fn events(
    run: Run,
    head: Head,
    tokenizer: Tokenizer,
    logprobs: bool,
    usage: bool,
    keepalive: Option<Duration>,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let begun = vec![false; run.sequences()];
    let writer = Writer { head, tokenizer, logprobs, usage, begun, out: BytesMut::with_capacity(BUFFER_BYTES) };
    stream::unfold(Some((run, writer)), move |state| async move {
        let (mut run, mut writer) = state?;
        let due = keepalive.map(|keepalive| Instant::now() + keepalive);
        while writer.out.is_empty() {
            if run.over() {
                writer.end(&run);
                return Some((Ok(writer.out.freeze()), None));
            }
            let is_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            let advanced = tokio::select! {
                biased;
                ready = run.ready() => match ready {
                    Ok(()) => run.advance(&mut writer).await,
                    Err(error) => Err(error),
                },
                () = is_due => {
                    writer.out.put_slice(b": keepalive\n\n");
                    Ok(())
                }
            };
            if let Err(error) = advanced {
                writer.error(&error);
                return Some((Ok(writer.out.freeze()), None));
            }
        }
        let events = writer.out.split().freeze();
        Some((Ok(events), Some((run, writer))))
    })
}

/// Writes events.
struct Writer {
    head: Head,
    tokenizer: Tokenizer,
    logprobs: bool,
    usage: bool,
    /// Sequences whose first chunk, which names the role, is written.
    begun: Vec<bool>,
    out: BytesMut,
}

impl Sink for Writer {
    fn delta(&mut self, sequence: usize, delta: &TextDelta) {
        if delta.text.is_empty() && delta.logprobs.is_empty() {
            return;
        }
        self.begin(sequence);
        self.chunk(sequence, Some(&delta.text), delta, None);
    }

    fn finish(&mut self, sequence: usize, finish: &'static str) {
        self.begin(sequence);
        self.chunk(sequence, None, &TextDelta::default(), Some(finish));
    }
}

impl Writer {
    /// Begins a sequence. That of a chat begins with its role.
    fn begin(&mut self, index: usize) {
        if !std::mem::replace(&mut self.begun[index], true) && self.head.endpoint == Endpoint::Chat {
            let delta = Delta { role: Some("assistant"), content: Some("") };
            let choice = ChatChunk { index, delta, logprobs: None, finish_reason: None };
            event(&mut self.out, &self.head.chunk([choice], self.usage.then_some(None)));
        }
    }

    fn chunk(&mut self, index: usize, text: Option<&str>, delta: &TextDelta, finish_reason: Option<&'static str>) {
        let logged =
            (self.logprobs && text.is_some()).then_some(Logged { tokenizer: &self.tokenizer, tokens: &delta.logprobs });
        let usage = self.usage.then_some(None);
        match self.head.endpoint {
            Endpoint::Chat => {
                let delta = Delta { role: None, content: text };
                let choice = ChatChunk { index, delta, logprobs: logged.map(Into::into), finish_reason };
                event(&mut self.out, &self.head.chunk([choice], usage));
            }
            Endpoint::Completion => {
                let text = text.unwrap_or_default();
                let choice = CompletionChoice { index, text, logprobs: logged.map(Into::into), finish_reason };
                event(&mut self.out, &self.head.chunk([choice], usage));
            }
        }
    }

    /// Ends the stream regularly.
    fn end(&mut self, run: &Run) {
        if self.usage {
            let none: [(); 0] = [];
            event(&mut self.out, &self.head.chunk(none, Some(Some(Usage::of(run.taken())))));
        }
        self.out.put_slice(b"data: [DONE]\n\n");
    }

    /// Ends the stream with an error, and without `[DONE]`.
    fn error(&mut self, error: &ApiError) {
        let mut json = Vec::new();
        error.write(&mut json);
        self.out.put_slice(b"data: ");
        self.out.put_slice(&json);
        self.out.put_slice(b"\n\n");
    }
}

fn event<C: Serialize>(out: &mut BytesMut, object: &Object<'_, C>) {
    out.put_slice(b"data: ");
    serde_json::to_writer(out.writer(), object).expect("a chunk has string keys, and the buffer grows");
    out.put_slice(b"\n\n");
}
