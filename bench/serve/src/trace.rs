//! Traces in Mooncake's format: one JSON object a line with `timestamp` (milliseconds from the trace's begin),
//! `input_length` and `output_length` (tokens), and `hash_ids`: one id per block of the prompt, the last of which
//! may be partial. Equal ids stand for equal tokens after equal tokens.

use crate::error::BenchError;
use crate::{REQUESTS_MAX, TOKENS_MAX};
use serde::Deserialize;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Requests in the order in which they are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// At least one; the first is due at 0.
    pub entries: Vec<TraceEntry>,
}

/// A request of a trace. Fields that it has besides are of no use here and ignored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TraceEntry {
    /// When it is due, milliseconds after the trace's begin.
    #[serde(rename = "timestamp")]
    pub due_ms: u64,
    /// Tokens of its prompt.
    #[serde(rename = "input_length")]
    pub input_tokens: u32,
    /// Tokens of its answer.
    #[serde(rename = "output_length")]
    pub output_tokens: u32,
    /// Ids of the prompt's blocks.
    #[serde(default)]
    pub hash_ids: Vec<u64>,
}

impl Trace {
    /// Reads a file. Errors: it cannot be read, a line is no request (with its number), or there is none.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let failed = |source| BenchError::TraceFile { path: path.to_owned(), source };
        Self::parse(BufReader::new(File::open(path).map_err(failed)?), path)
    }

    /// Reads lines; `path` is what errors call them.
    pub(crate) fn parse(lines: impl BufRead, path: &Path) -> Result<Self, BenchError> {
        let mut entries = Vec::new();
        let wrong = |line, why| BenchError::TraceLine { path: path.to_owned(), line, why };
        for (index, line) in lines.lines().enumerate() {
            let line = line.map_err(|source| BenchError::TraceFile { path: path.to_owned(), source })?;
            if line.trim().is_empty() {
                continue;
            }
            let entry: TraceEntry = serde_json::from_str(&line).map_err(|error| wrong(index + 1, error.to_string()))?;
            for (what, tokens) in [("input_length", entry.input_tokens), ("output_length", entry.output_tokens)] {
                if !(1..=TOKENS_MAX).contains(&tokens) {
                    return Err(wrong(index + 1, format!("{what} is {tokens}, not from 1 to {TOKENS_MAX}")));
                }
            }
            entries.push(entry);
            if entries.len() as u64 > REQUESTS_MAX {
                return Err(wrong(index + 1, format!("more than {REQUESTS_MAX} requests")));
            }
        }
        // Recorded from several frontends, lines may be out of order. The sort is stable: those due at once keep
        // theirs.
        entries.sort_by_key(|entry| entry.due_ms);
        let Some(begin) = entries.first().map(|entry| entry.due_ms) else {
            return Err(wrong(1, "the trace has no requests".to_owned()));
        };
        entries.iter_mut().for_each(|entry| entry.due_ms -= begin);
        Ok(Self { entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Trace, String> {
        Trace::parse(text.as_bytes(), Path::new("t.jsonl")).map_err(|error| error.to_string())
    }

    #[test]
    fn requests_are_sorted_and_begin_at_zero() {
        let text = r#"{"timestamp": 3000, "input_length": 700, "output_length": 2, "hash_ids": [0, 7], "extra": 1}

{"timestamp": 1000, "input_length": 5, "output_length": 1}
"#;
        let entries = parse(text).expect("it is a trace").entries;
        let rows: Vec<_> =
            entries.iter().map(|e| (e.due_ms, e.input_tokens, e.output_tokens, &e.hash_ids[..])).collect();
        assert_eq!(rows, [(0, 5, 1, &[][..]), (2000, 700, 2, &[0, 7])]);
    }

    #[test]
    fn bad_lines_are_named_by_their_number() {
        let good = r#"{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": []}"#;
        let check = |bad: &str, line: usize, word: &str| {
            let error = parse(&format!("{good}\n\n{bad}")).expect_err(bad);
            assert!(error.starts_with(&format!("t.jsonl, line {line}: ")) && error.contains(word), "{error}");
        };
        check("{", 3, "EOF");
        check(r#"{"timestamp": 0, "input_length": 5}"#, 3, "output_length");
        check(r#"{"timestamp": -1, "input_length": 5, "output_length": 1}"#, 3, "u64");
        check(r#"{"timestamp": 0, "input_length": 0, "output_length": 1}"#, 3, "input_length is 0");
        check(r#"{"timestamp": 0, "input_length": 1, "output_length": 99999999}"#, 3, "output_length is 99999999");
        assert!(parse("\n\n").expect_err("nothing").contains("no requests"));
    }
}
