//! Log probabilities as chats and completions tell them.

use crate::answer::LoggedToken;
use domain::Token;
use engine::text::Tokenizer;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Smallest log probability that is told: JSON has no infinity, and this is what the API writes for it.
const LOGPROB_MIN: f32 = -9999.0;

/// Tokens with the tokenizer that knows their text.
#[derive(Clone, Copy)]
pub(super) struct Logged<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) tokens: &'a [LoggedToken],
}

/// Log probabilities of a chat.
#[derive(Serialize)]
pub(super) struct ChatLogprobs<'a> {
    content: Vec<ChatToken<'a>>,
    refusal: Option<&'static str>,
}

#[derive(Serialize)]
struct ChatToken<'a> {
    #[serde(flatten)]
    token: ChatAlternative<'a>,
    top_logprobs: Vec<ChatAlternative<'a>>,
}

#[derive(Serialize)]
struct ChatAlternative<'a> {
    token: String,
    logprob: f32,
    bytes: &'a [u8],
}

impl<'a> From<Logged<'a>> for ChatLogprobs<'a> {
    fn from(Logged { tokenizer, tokens }: Logged<'a>) -> Self {
        let alternative = |token: Token, logprob: f32| ChatAlternative {
            token: tokenizer.token_text(token),
            logprob: logprob.max(LOGPROB_MIN),
            bytes: tokenizer.token_bytes(token),
        };
        let content = tokens
            .iter()
            .map(|logged| ChatToken {
                token: alternative(logged.token, logged.logprobs.logprob),
                top_logprobs: logged.logprobs.top.iter().map(|&(token, logprob)| alternative(token, logprob)).collect(),
            })
            .collect();
        Self { content, refusal: None }
    }
}

/// Log probabilities of a completion: four lists of equal length.
#[derive(Serialize)]
pub(super) struct CompletionLogprobs<'a> {
    tokens: Vec<String>,
    token_logprobs: Vec<f32>,
    top_logprobs: Vec<TopLogprobs<'a>>,
    text_offset: Vec<usize>,
}

impl<'a> From<Logged<'a>> for CompletionLogprobs<'a> {
    fn from(Logged { tokenizer, tokens }: Logged<'a>) -> Self {
        Self {
            tokens: tokens.iter().map(|logged| tokenizer.token_text(logged.token)).collect(),
            token_logprobs: tokens.iter().map(|logged| logged.logprobs.logprob.max(LOGPROB_MIN)).collect(),
            top_logprobs: tokens.iter().map(|logged| TopLogprobs { tokenizer, logged }).collect(),
            text_offset: tokens.iter().map(|logged| logged.offset_chars).collect(),
        }
    }
}

/// The most probable tokens, and the sampled one: `{text: logprob}`. Of tokens with equal texts the first counts.
struct TopLogprobs<'a> {
    tokenizer: &'a Tokenizer,
    logged: &'a LoggedToken,
}

impl Serialize for TopLogprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sampled = (self.logged.token, self.logged.logprobs.logprob);
        let mut texts: Vec<String> = Vec::new();
        let mut map = serializer.serialize_map(None)?;
        for &(token, logprob) in self.logged.logprobs.top.iter().chain([&sampled]) {
            let text = self.tokenizer.token_text(token);
            if !texts.contains(&text) {
                map.serialize_entry(&text, &logprob.max(LOGPROB_MIN))?;
                texts.push(text);
            }
        }
        map.end()
    }
}
