//! Texts of a wanted length: token ids where the server takes them, words elsewhere.

use crate::random::Random;
use crate::settings::TokenIds;
use crate::workload::Segment;
use serde::Serialize;
use std::fmt;

/// What prompts are made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Medium {
    /// Token ids: lengths are exact.
    Ids(TokenIds),
    /// Words: lengths are as exact as the two figures, which were measured.
    Words {
        /// Tokens of a word, on average.
        tokens_per_word: f64,
        /// Tokens of a prompt without words: a template, a mark of the begin.
        overhead: f64,
    },
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ids(range) => write!(f, "token ids {range}"),
            Self::Words { tokens_per_word, overhead } => {
                write!(f, "words of {tokens_per_word:.2} tokens each, and {overhead:.0} tokens besides")
            }
        }
    }
}

/// A prompt as the API has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Prompt {
    Ids(Vec<u32>),
    Text(String),
    Messages(Vec<Message>),
}

/// A part of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Message {
    pub(crate) role: &'static str,
    pub(crate) content: String,
}

/// Common words, most of which are one token for most models.
const WORDS: [&str; 64] = [
    "the", "of", "and", "to", "in", "is", "was", "for", "that", "on", "with", "as", "are", "this", "by", "from", "at",
    "or", "an", "be", "it", "not", "which", "have", "has", "one", "all", "can", "will", "but", "more", "other", "when",
    "time", "new", "two", "first", "work", "number", "line", "form", "part", "use", "like", "set", "each", "how",
    "out", "many", "some", "them", "then", "only", "long", "point", "value", "name", "call", "read", "move", "hand",
    "type", "end", "way",
];

/// Returns the token ids of segments.
pub(crate) fn ids(seed: u64, segments: &[Segment], range: TokenIds) -> Vec<u32> {
    let mut ids = Vec::with_capacity(segments.iter().map(|segment| segment.tokens as usize).sum());
    let count = u64::from(range.high - range.low) + 1;
    for segment in segments {
        let mut random = Random::new(seed, segment.text);
        ids.extend((0..segment.tokens).map(|_| range.low + random.below(count) as u32));
    }
    ids
}

/// Returns the words of segments that have about so many tokens. `overhead` comes off the last segment.
pub(crate) fn words(seed: u64, segments: &[Segment], tokens_per_word: f64, overhead: f64) -> String {
    let mut text = String::new();
    for (index, segment) in segments.iter().enumerate() {
        let spare = if index + 1 == segments.len() { overhead } else { 0.0 };
        let count = ((f64::from(segment.tokens) - spare) / tokens_per_word).round().max(1.0) as u64;
        let mut random = Random::new(seed, segment.text);
        for _ in 0..count {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(WORDS[random.below(WORDS.len() as u64) as usize]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    fn segment(text: Purpose, tokens: u32) -> Segment {
        Segment { text, tokens }
    }

    #[test]
    fn ids_are_of_the_range_and_prefixes_are_shared() {
        let range = TokenIds { low: 5, high: 8 };
        let prefix = segment(Purpose::Prefix(0), 300);
        let one = ids(1, &[prefix, segment(Purpose::Turn(0, 0), 20)], range);
        let two = ids(1, &[prefix, segment(Purpose::Turn(1, 0), 20)], range);
        assert_eq!((one.len(), &one[..300]), (320, &two[..300]));
        assert_ne!(one, two);
        assert!((5..=8).all(|id| one.contains(&id)) && one.iter().all(|id| (5..=8).contains(id)));
        assert_eq!(ids(1, &[segment(Purpose::Prefix(0), 100)], range), one[..100], "a shorter one is its begin");
    }

    #[test]
    fn words_have_the_length_that_was_measured() {
        let count = |text: String| text.split(' ').count();
        let segments = [segment(Purpose::Prefix(0), 100), segment(Purpose::Turn(0, 0), 40)];
        assert_eq!(count(words(1, &segments, 1.0, 0.0)), 140);
        assert_eq!(count(words(1, &segments, 2.0, 20.0)), 60);
        assert_eq!(count(words(1, &segments[1..], 1.0, 90.0)), 1, "a prompt is never empty");
        let short = words(1, &segments[..1], 1.0, 0.0);
        assert!(words(1, &segments, 1.0, 0.0).starts_with(&short));
    }
}
