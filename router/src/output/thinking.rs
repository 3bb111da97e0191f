//! Reasoning between a pair of markers at the beginning of an answer: `<think>` of Qwen 3 and DeepSeek R1, `[THINK]`
//! of Magistral, or any other pair.
//!
//! Source: chat templates of Qwen/Qwen3-8B, deepseek-ai/DeepSeek-R1 and mistralai/Magistral-Small-2509.

use super::held::{Held, begins_any};
use super::part::{OutputParser, Part, add};

/// Most white space before the marker that begins an answer.
const SPACE_BYTES_MAX: usize = 64;

/// Markers around reasoning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Markers {
    /// Before it.
    pub(crate) open: String,
    /// Behind it.
    pub(crate) close: String,
}

/// Parses reasoning between [`Markers`].
#[derive(Debug)]
pub(super) struct Thinking {
    markers: Markers,
    held: Held,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// At the beginning. The prompt ends in the opening marker: `is_open`.
    Begin {
        is_open: bool,
    },
    Reasoning,
    Text,
}

impl Thinking {
    /// Begins an answer. `is_open`: the prompt ends in the opening marker.
    pub(super) fn new(markers: Markers, is_open: bool) -> Self {
        Self { markers, held: Held::default(), state: State::Begin { is_open } }
    }
}

impl OutputParser for Thinking {
    fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        self.held.push(text);
        if let State::Begin { is_open } = self.state {
            let rest = self.held.text().trim_start();
            let space = self.held.text().len() - rest.len();
            let marker = self.markers.open.as_str();
            if space <= SPACE_BYTES_MAX && (rest.is_empty() || begins_any(&[marker], rest)) {
                return;
            }
            let is_marked = space <= SPACE_BYTES_MAX && rest.starts_with(marker);
            if is_marked {
                self.held.take(space + marker.len());
            }
            self.state = if is_marked || is_open { State::Reasoning } else { State::Text };
        }
        if self.state == State::Reasoning {
            let close = self.markers.close.as_str();
            if self.held.pass_until(&[close], Part::Reasoning, out).is_none() {
                return;
            }
            self.held.take(close.len());
            self.state = State::Text;
        }
        add(out, Part::Text(self.held.take_all()));
    }

    fn finish(&mut self, out: &mut Vec<Part>) {
        let rest = self.held.take_all();
        match self.state {
            State::Begin { is_open: true } | State::Reasoning => add(out, Part::Reasoning(rest)),
            State::Begin { is_open: false } | State::Text => add(out, Part::Text(rest)),
        }
    }
}
