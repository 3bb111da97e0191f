//! What a run asks for: conversations, their turns, and of which texts their prompts are made. Pure: settings and
//! a seed in, plans out, in one order whatever the server does.

use crate::random::{Purpose, Random};
use crate::settings::{Arrivals, Settings, Shape};
use crate::trace::Trace;
use crate::{REQUESTS_MAX, TOKENS_MAX};
use std::time::Duration;

/// Requests one after the other, each of which carries what was said before.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conversation {
    /// Its number, from 0.
    pub(crate) index: u64,
    /// When its first turn is due; 0 where nothing says when.
    pub(crate) due_us: u64,
    /// At least one.
    pub(crate) turns: Vec<Turn>,
}

/// A request of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Turn {
    /// What it adds to the prompt.
    pub(crate) segments: Vec<Segment>,
    /// Tokens of its answer.
    pub(crate) output_tokens: u32,
    /// Time between the answer before it and this turn.
    pub(crate) think: Duration,
}

/// A part of a prompt: the first tokens of an endless text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Segment {
    /// Which text: equal ones begin with equal tokens.
    pub(crate) text: Purpose,
    /// How many tokens of it.
    pub(crate) tokens: u32,
}

/// The conversations of a run, in order.
#[derive(Debug)]
pub(crate) struct Workload {
    kind: Kind,
    seed: u64,
    requests_max: u64,
    /// The next conversation.
    next: u64,
}

#[derive(Debug)]
enum Kind {
    Drawn { shape: Shape, arrivals: Option<Poisson> },
    Traced { trace: Trace, speed: f64, block_tokens: u32 },
}

/// When conversations are due.
#[derive(Debug)]
struct Poisson {
    random: Random,
    per_second: f64,
    due_s: f64,
}

impl Turn {
    /// Returns the number of tokens that it adds to the prompt.
    pub(crate) fn input_tokens(&self) -> u32 {
        self.segments.iter().map(|segment| segment.tokens).fold(0, u32::saturating_add)
    }
}

impl Workload {
    pub(crate) fn new(settings: &Settings) -> Self {
        let (seed, shape) = (settings.seed, settings.shape);
        let kind = match &settings.arrivals {
            Arrivals::Closed { .. } => Kind::Drawn { shape, arrivals: None },
            Arrivals::Rate { per_second, .. } => {
                let random = Random::new(seed, Purpose::Arrivals);
                Kind::Drawn { shape, arrivals: Some(Poisson { random, per_second: *per_second, due_s: 0.0 }) }
            }
            Arrivals::Trace { trace, speed, block_tokens, .. } => {
                Kind::Traced { trace: trace.clone(), speed: *speed, block_tokens: *block_tokens }
            }
        };
        Self { kind, seed, requests_max: settings.requests.unwrap_or(REQUESTS_MAX), next: 0 }
    }

    /// Returns the requests of all conversations together, if their number is known before.
    pub(crate) fn requests(settings: &Settings) -> Option<u64> {
        match &settings.arrivals {
            Arrivals::Trace { trace, .. } => {
                Some((trace.entries.len() as u64).min(settings.requests.unwrap_or(REQUESTS_MAX)))
            }
            _ => settings.requests,
        }
    }
}

impl Iterator for Workload {
    type Item = Conversation;

    fn next(&mut self) -> Option<Conversation> {
        let index = self.next;
        self.next += 1;
        match &mut self.kind {
            Kind::Drawn { shape, arrivals } => {
                let turns = u64::from(shape.turns);
                let left = self.requests_max.saturating_sub(index.checked_mul(turns)?);
                if left == 0 {
                    return None;
                }
                let due_us = arrivals.as_mut().map_or(0, |arrivals| {
                    // The first is due at once: nobody gains from a wait before it.
                    if index > 0 {
                        arrivals.due_s += arrivals.random.exponential() / arrivals.per_second;
                    }
                    (arrivals.due_s * 1e6) as u64
                });
                let purpose = Purpose::Conversation(index);
                let turns = drawn(shape, self.seed, purpose, left.min(turns) as u32, |turn| Purpose::Turn(index, turn));
                Some(Conversation { index, due_us, turns })
            }
            Kind::Traced { trace, speed, block_tokens } => {
                let entry = trace.entries.get(usize::try_from(index).ok()?).filter(|_| index < self.requests_max)?;
                let mut left = entry.input_tokens;
                let mut segments = Vec::new();
                for &id in &entry.hash_ids {
                    let tokens = left.min(*block_tokens);
                    if tokens > 0 {
                        segments.push(Segment { text: Purpose::Block(id), tokens });
                    }
                    left -= tokens;
                }
                if left > 0 {
                    segments.push(Segment { text: Purpose::Rest(index), tokens: left });
                }
                let turn = Turn { segments, output_tokens: entry.output_tokens, think: Duration::ZERO };
                Some(Conversation { index, due_us: (entry.due_ms as f64 * 1e3 / *speed) as u64, turns: vec![turn] })
            }
        }
    }
}

/// Makes a request to warm the server up with, of the run's lengths but of another text. A trace has its mean lengths.
pub(crate) fn warm_up(settings: &Settings, index: u64) -> Conversation {
    let purpose = Purpose::WarmUp(index);
    let turns = match &settings.arrivals {
        Arrivals::Trace { trace, .. } => {
            let mean = |tokens: &dyn Fn(usize) -> u32| {
                let sum: u64 = (0..trace.entries.len()).map(|entry| u64::from(tokens(entry))).sum();
                (sum / trace.entries.len() as u64) as u32
            };
            let input = mean(&|entry| trace.entries[entry].input_tokens);
            let output = mean(&|entry| trace.entries[entry].output_tokens);
            let segments = vec![Segment { text: purpose, tokens: input }];
            vec![Turn { segments, output_tokens: output, think: Duration::ZERO }]
        }
        _ => drawn(&settings.shape, settings.seed, purpose, 1, |_| purpose),
    };
    Conversation { index, due_us: 0, turns }
}

fn drawn(shape: &Shape, seed: u64, purpose: Purpose, count: u32, text: impl Fn(u32) -> Purpose) -> Vec<Turn> {
    let mut random = Random::new(seed, purpose);
    let group = random.below(u64::from(shape.prefixes));
    let turn = |number: u32| {
        let tokens = shape.input.count(&mut random, TOKENS_MAX);
        let mut segments = vec![Segment { text: text(number), tokens }];
        if number == 0 && shape.shared_prefix > 0 {
            segments.insert(0, Segment { text: Purpose::Prefix(group), tokens: shape.shared_prefix });
        }
        let output_tokens = shape.output.count(&mut random, TOKENS_MAX);
        let think = Duration::from_secs_f64(shape.think.number(&mut random).min(THINK_S_MAX));
        Turn { segments, output_tokens, think }
    };
    (0..count).map(turn).collect()
}

/// The longest time between an answer and the next turn, in seconds: a distribution may have a long tail.
const THINK_S_MAX: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Api, TokenIds};
    use std::path::{Path, PathBuf};

    fn settings(arrivals: Arrivals, requests: u64, turns: u32) -> Settings {
        let spread = |text: &str| text.parse().expect("a distribution");
        Settings {
            url: "http://127.0.0.1:1".to_owned(),
            ca: None,
            model: None,
            api: Api::Completions,
            arrivals,
            shape: Shape {
                input: spread("10-20"),
                output: spread("30~10"),
                shared_prefix: 7,
                prefixes: 3,
                turns,
                think: spread("0.5"),
            },
            requests: Some(requests),
            duration: None,
            warmup: 0,
            seed: 11,
            token_ids: TokenIds { low: 1, high: 9 },
            timeout: Duration::from_secs(1),
            extra: Default::default(),
            headers: Vec::new(),
            slo: None,
        }
    }

    #[test]
    fn the_seed_says_everything() {
        let all = |seed| {
            let arrivals = Arrivals::Rate { per_second: 100.0, concurrency_max: 1 };
            Workload::new(&Settings { seed, ..settings(arrivals, 50, 2) }).collect::<Vec<_>>()
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
    }

    #[test]
    fn requests_are_counted_by_turns() {
        let all: Vec<_> = Workload::new(&settings(Arrivals::Closed { concurrency: 4 }, 7, 3)).collect();
        assert_eq!(all.iter().map(|it| (it.index, it.turns.len())).collect::<Vec<_>>(), [(0, 3), (1, 3), (2, 1)]);
        for conversation in &all {
            for (number, turn) in conversation.turns.iter().enumerate() {
                let own = turn.segments.last().expect("a turn adds something");
                assert_eq!(own.text, Purpose::Turn(conversation.index, number as u32));
                assert!((10..=20).contains(&own.tokens) && turn.think == Duration::from_millis(500));
                let prefix = turn.segments.len() == 2;
                assert_eq!(prefix, number == 0, "the first turn alone has the prefix");
                assert_eq!(turn.input_tokens(), own.tokens + if prefix { 7 } else { 0 });
            }
        }
        let groups = Workload::new(&settings(Arrivals::Closed { concurrency: 4 }, 100, 1));
        let mut groups: Vec<u64> = groups
            .map(|it| match it.turns[0].segments[0].text {
                Purpose::Prefix(group) => group,
                other => panic!("{other:?} is no prefix"),
            })
            .collect();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(groups, [0, 1, 2]);
    }

    #[test]
    fn poisson_arrivals_keep_their_rate() {
        let arrivals = Arrivals::Rate { per_second: 50.0, concurrency_max: 1 };
        let dues: Vec<u64> = Workload::new(&settings(arrivals, 10_001, 1)).map(|it| it.due_us).collect();
        assert!(dues[0] == 0 && dues.is_sorted());
        let seconds = dues[10_000] as f64 / 1e6;
        assert!((seconds - 200.0).abs() < 10.0, "seed 11: 10,000 arrivals at 50 a second took {seconds} s");
    }

    #[test]
    fn traces_share_what_they_shared() {
        let text = r#"{"timestamp": 10, "input_length": 1030, "output_length": 5, "hash_ids": [1, 2, 3]}
{"timestamp": 30, "input_length": 600, "output_length": 6, "hash_ids": [1]}
{"timestamp": 50, "input_length": 600, "output_length": 6, "hash_ids": []}"#;
        let trace = Trace::parse(text.as_bytes(), Path::new("t")).expect("a trace");
        let arrivals =
            Arrivals::Trace { file: PathBuf::new(), trace, speed: 4.0, block_tokens: 512, concurrency_max: 1 };
        let settings = settings(arrivals, 2, 1);
        assert_eq!(Workload::requests(&settings), Some(2));
        let all: Vec<_> = Workload::new(&settings).collect();
        let block = |id, tokens| Segment { text: Purpose::Block(id), tokens };
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].due_us, all[1].due_us), (0, 5_000));
        assert_eq!(all[0].turns[0].segments, [block(1, 512), block(2, 512), block(3, 6)]);
        assert_eq!(all[1].turns[0].segments, [block(1, 512), Segment { text: Purpose::Rest(1), tokens: 88 }]);
        assert_eq!(warm_up(&settings, 0).turns[0].input_tokens(), 743);
    }
}
