//! The answer in one piece.

use super::form::{ChatChoice, CompletionChoice, Head, Logged, Message};
use super::run::{Run, Sink};
use super::text::{LoggedToken, TextDelta};
use crate::api::Endpoint;
use crate::error::ApiError;
use engine::text::Tokenizer;

#[derive(Default)]
struct Whole {
    text: String,
    logprobs: Vec<LoggedToken>,
    finish: &'static str,
}

impl Whole {
    fn logged<'a>(&'a self, tokenizer: &'a Tokenizer, wanted: bool) -> Option<Logged<'a>> {
        wanted.then_some(Logged { tokenizer, tokens: &self.logprobs })
    }
}

impl Sink for Vec<Whole> {
    fn delta(&mut self, sequence: usize, delta: &TextDelta) {
        self[sequence].text.push_str(&delta.text);
        self[sequence].logprobs.extend_from_slice(&delta.logprobs);
    }

    fn finish(&mut self, sequence: usize, finish: &'static str) {
        self[sequence].finish = finish;
    }
}

/// Waits for the end of every sequence and gives the answer as JSON. `logprobs`: the client asked for them.
pub(crate) async fn whole(
    mut run: Run,
    head: &Head,
    tokenizer: &Tokenizer,
    logprobs: bool,
) -> Result<Vec<u8>, ApiError> {
    let mut sequences: Vec<Whole> = (0..run.sequences()).map(|_| Whole::default()).collect();
    while !run.over() {
        run.advance(&mut sequences).await?;
    }
    let taken = run.taken();
    let sequences = sequences.iter().enumerate();
    let json = match head.endpoint {
        Endpoint::Chat => {
            let choices: Vec<_> = sequences
                .map(|(index, whole)| ChatChoice {
                    index,
                    message: Message { role: "assistant", content: &whole.text, refusal: None },
                    logprobs: whole.logged(tokenizer, logprobs).map(Into::into),
                    finish_reason: whole.finish,
                })
                .collect();
            serde_json::to_vec(&head.whole(choices, taken))
        }
        Endpoint::Completion => {
            let choices: Vec<_> = sequences
                .map(|(index, whole)| CompletionChoice {
                    index,
                    text: &whole.text,
                    logprobs: whole.logged(tokenizer, logprobs).map(Into::into),
                    finish_reason: Some(whole.finish),
                })
                .collect();
            serde_json::to_vec(&head.whole(choices, taken))
        }
    };
    Ok(json.expect("an answer has string keys and finite numbers"))
}
