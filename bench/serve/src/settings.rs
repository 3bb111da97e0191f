//! What a run is asked to do.

use crate::error::Malformed;
use crate::slo::Slo;
use crate::spread::Spread;
use crate::trace::Trace;
use crate::{IN_FLIGHT_MAX, REQUESTS_MAX, TOKENS_MAX};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Everything that a run is asked to do; equal settings ask for equal prompts, lengths and times.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Where the server is: `http://127.0.0.1:8000`.
    pub url: String,
    /// Authorities of the certificate of an `https` server, a PEM file; `None`: those that the system trusts.
    #[serde(skip)]
    pub ca: Option<PathBuf>,
    /// The model's name; `None`: the first that the server names.
    pub model: Option<String>,
    /// Which API is called.
    pub api: Api,
    /// When requests are sent.
    pub arrivals: Arrivals,
    /// What they ask for; a trace says so itself.
    pub shape: Shape,
    /// Requests to send, at most; `None`: as many as the trace has, or as `duration` allows.
    pub requests: Option<u64>,
    /// How long to send requests, in seconds; those in flight then are awaited.
    #[serde(rename = "duration_s", serialize_with = "seconds_or_none")]
    pub duration: Option<Duration>,
    /// Requests that are sent before, and not counted.
    pub warmup: u64,
    /// Where all lengths, texts and times come from.
    pub seed: u64,
    /// Ids that prompts are made of, where the server takes ids.
    pub token_ids: TokenIds,
    /// How long a request may take, in seconds.
    #[serde(rename = "timeout_s", serialize_with = "seconds")]
    pub timeout: Duration,
    /// Fields that are added to every body, or replace what is there.
    pub extra: Map<String, Value>,
    /// Headers of every request, `name: value`. Not told in reports: they may hold keys.
    #[serde(skip)]
    pub headers: Vec<String>,
    /// What a good request is.
    pub slo: Option<Slo>,
}

/// Which API is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    Chat,
}

/// When requests are sent.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Arrivals {
    /// So many users. Each sends its next request when its last one has ended.
    Closed {
        /// Users, at least 1.
        concurrency: u32,
    },
    /// Whether or not others have ended: a Poisson process.
    Rate {
        /// New conversations a second, on average.
        per_second: f64,
        /// Most requests in flight; others wait, and their wait counts.
        concurrency_max: u32,
    },
    /// When a trace says.
    Trace {
        /// Where it is from.
        file: PathBuf,
        /// The requests.
        #[serde(skip)]
        trace: Trace,
        /// How much faster than recorded.
        speed: f64,
        /// Tokens that a hash id stands for.
        block_tokens: u32,
        /// Most requests in flight; others wait, and their wait counts.
        concurrency_max: u32,
    },
}

/// What requests ask for, where no trace says it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Shape {
    /// Tokens that a turn adds to the prompt, after the shared prefix.
    pub input: Spread,
    /// Tokens of an answer.
    pub output: Spread,
    /// Tokens that begin every prompt of a group.
    pub shared_prefix: u32,
    /// How many groups there are.
    pub prefixes: u32,
    /// Turns of a conversation.
    pub turns: u32,
    /// Seconds between an answer and the next turn.
    #[serde(rename = "think_s")]
    pub think: Spread,
}

/// Ids from `low` to `high`, both included. Written as `1000-3999`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenIds {
    /// The lowest.
    pub low: u32,
    /// The highest.
    pub high: u32,
}

impl Settings {
    /// Checks the settings. Errors: settings that contradict each other or a bound, named as the flags that give them.
    pub(crate) fn check(&self) -> Result<(), Malformed> {
        let wrong = |text: String| Err(Malformed(text));
        match &self.arrivals {
            Arrivals::Closed { concurrency: most }
            | Arrivals::Rate { concurrency_max: most, .. }
            | Arrivals::Trace { concurrency_max: most, .. }
                if !(1..=IN_FLIGHT_MAX).contains(most) =>
            {
                return wrong(format!("{most} requests at once: from 1 to {IN_FLIGHT_MAX}"));
            }
            Arrivals::Rate { per_second, .. } if !(per_second.is_finite() && *per_second > 0.0) => {
                return wrong(format!("--rate {per_second}: more than 0 requests a second"));
            }
            Arrivals::Trace { speed, .. } if !(speed.is_finite() && *speed > 0.0) => {
                return wrong(format!("--trace-speed {speed}: more than 0"));
            }
            Arrivals::Trace { block_tokens: 0, .. } => return wrong("--trace-block 0: at least 1 token".to_owned()),
            Arrivals::Trace { .. } => {}
            _ if self.requests.is_none() && self.duration.is_none() => {
                return wrong("--requests or --duration must say when to stop".to_owned());
            }
            _ => {}
        }
        for (flag, count) in [("--requests", self.requests.unwrap_or(1)), ("--warmup", self.warmup.max(1))] {
            if !(1..=REQUESTS_MAX).contains(&count) {
                return wrong(format!("{flag} {count}: from 1 to {REQUESTS_MAX}"));
            }
        }
        let shape = &self.shape;
        if shape.turns == 0 || shape.prefixes == 0 {
            return wrong("--turns and --prefixes are at least 1".to_owned());
        }
        for (flag, tokens) in [("--input", shape.input), ("--output", shape.output)] {
            if tokens.range().1 > f64::from(TOKENS_MAX) {
                return wrong(format!("{flag} {tokens}: at most {TOKENS_MAX} tokens"));
            }
        }
        if shape.shared_prefix > TOKENS_MAX {
            return wrong(format!("--shared-prefix {}: at most {TOKENS_MAX} tokens", shape.shared_prefix));
        }
        Ok(())
    }
}

impl FromStr for TokenIds {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let ends = text.split_once('-').and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
        match ends {
            Some((low, high)) if low <= high => Ok(Self { low, high }),
            _ => Err(Malformed(format!("{text:?} is no range of token ids such as 1000-3999"))),
        }
    }
}

impl fmt::Display for TokenIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.low, self.high)
    }
}

impl Serialize for TokenIds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

fn seconds_or_none<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
}
