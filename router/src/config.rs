//! What a router is told at its start: its limits, and the model that it speaks for.

use crate::output::OutputForms;
use admin::{Browsers, Settings};
use domain::session::ModelShape;
use domain::{SamplingParams, Token};
use engine::grammar::Grammars;
use engine::text::{ChatTemplate, Tokenizer, WrittenSpecials};
use keys::Keys;
use object_store::ObjectStore;
use placement::{PlacementConfig, PlacementLimits};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Limits of the router. Each has a rule for when it is reached.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// Keys of the API. Without a known key: 401. Above its limits: 429.
    pub keys: Keys,
    /// Bytes of a request's body. Above: 413.
    pub body_bytes_max: usize,
    /// Time for a client to send its body. After: 408.
    pub body_wait: Duration,
    /// Bytes of a body that have to come in a second, on average, after the first seconds; at least 1. Below: 408.
    pub body_min_bytes_per_s: u64,
    /// Bytes of all bodies that are read or parsed, together. Above: the largest that is not complete gets 429.
    pub bodies_bytes_max: usize,
    /// What may change while the router serves. Open requests keep what they began with.
    pub limits: watch::Receiver<RouterLimits>,
    /// The settings of the process, as operators ask for them.
    pub settings: Arc<dyn Settings>,
    /// Open connections, more than requests may be. Above: the one that has been without an open request for the
    /// longest time is closed.
    pub connections_max: usize,
    /// Origins of web pages that may use the API; `*`: all.
    pub cors_origins: Vec<String>,
    /// Whether clients of the API may read `/metrics` and `/lanes`, too.
    pub metrics_on_api: bool,
    /// Whether metrics also have the names of the InferencePool's model-server protocol.
    pub vllm_aliases: bool,
    /// Where responses are kept. `None`: nowhere; clients that ask for it get 400.
    pub responses: Option<ResponsesConfig>,
    /// Whether clients of the API get a page to chat with the model.
    pub chat_page: bool,
    /// Updates (tokens, ends of choices) that wait for the client of a stream, for each of its sequences. Above:
    /// it reads too slowly and is ended.
    pub stream_buffer: usize,
    /// A stream that has nothing to say for so long gets a comment. `None`: it gets none.
    pub keepalive: Option<Duration>,
    /// Time for which a connection may take no byte of what is written to it. After: it is closed.
    pub write_wait: Duration,
    /// Time that open requests have to end after a shutdown began. After: they are ended by us.
    pub drain: Duration,
    /// Which callers may ask the admin service, and which pages.
    pub browsers: Browsers,
    /// What the brain decides by. Its `block_tokens` and `token_bytes` are replaced by what the workers serve, and what
    /// may change by `limits`.
    pub placement: PlacementConfig,
}

/// Where responses are kept, and how many.
#[derive(Clone, Debug)]
pub struct ResponsesConfig {
    /// Where they are kept.
    pub store: Arc<dyn ObjectStore>,
    /// The store in words, for errors.
    pub place: String,
    /// Bytes of all of them. Above: the oldest are deleted. An object counts at least 4 KiB.
    pub bytes_max: u64,
    /// How long a response is kept. After: it is deleted.
    pub age_max: Duration,
}

/// Limits and policies that may change while the router serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterLimits {
    /// Tokens of a prompt, beside the model's context. Above: 400.
    pub prompt_tokens_max: u32,
    /// Prompts of one completion request. Above: 400.
    pub prompts_max: usize,
    /// Sequences of a prompt (`n`). Above: 400.
    pub choices_max: u16,
    /// Time from arrival to the end that a client must have. After: the request ends by its limit.
    pub deadline: Duration,
    /// Requests that ended of which explanations are kept. Above: the one that ended first is forgotten.
    pub explained_max: usize,
    /// Those of the placement. Its `requests_max` is the number of prompts that are open at once. Above: 429.
    pub placement: PlacementLimits,
}

/// The model as clients see it, and what turns their text into its tokens and back. How long its contexts are,
/// workers say.
#[derive(Debug)]
pub struct ModelCard {
    /// Name that requests give.
    pub name: String,
    /// When it was made, in seconds since the Unix epoch.
    pub created: u64,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its chat template; without one, chats are refused.
    pub template: Option<ChatTemplate>,
    /// What its output is made of.
    pub forms: OutputForms,
    /// What special tokens are that the messages of a chat name.
    pub specials: WrittenSpecials,
    /// What a request is sampled by where it does not say.
    pub sampling: SamplingParams,
    /// Tokens that end a sequence.
    pub eos: Vec<Token>,
    /// Its shape, which that of the workers must be. Clients may name tokens below its vocabulary.
    pub shape: ModelShape,
    /// Says which grammars are any, for its tokens.
    pub grammars: Arc<Grammars>,
}
