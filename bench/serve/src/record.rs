//! What is noted of a request.

use serde::{Serialize, Serializer};

/// A request and what became of it. Times are microseconds after the run began.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Record {
    /// Its conversation, from 0; a trace's line.
    pub conversation: u64,
    /// Its turn in the conversation, from 0.
    pub turn: u32,
    /// When it should have been sent.
    pub due_us: u64,
    /// When the generator was ready to send it: the difference is the generator's own lateness.
    pub ready_us: u64,
    /// When it was sent: the difference was spent waiting for others to end, where requests in flight are limited.
    pub sent_us: u64,
    /// When the first token came.
    pub first_us: Option<u64>,
    /// The time between any two events that carried tokens, in order.
    pub gaps_us: Vec<u32>,
    /// When the answer ended, or failed.
    pub end_us: u64,
    /// Tokens that its prompt should have.
    pub input_asked: u32,
    /// Tokens that its answer should have.
    pub output_asked: u32,
    /// Tokens of the prompt, as the server counts.
    pub input_tokens: Option<u64>,
    /// Tokens of the answer, as the server counts.
    pub output_tokens: Option<u64>,
    /// Tokens of the prompt that the server did not need to compute.
    pub cached_tokens: Option<u64>,
    /// How it failed; `None`: it did not.
    pub failure: Option<Failure>,
}

/// How a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection.
    Connect(String),
    /// An HTTP status other than 200, and the begin of the body.
    Status(u16, String),
    /// No end of the answer within the limit.
    Timeout,
    /// The answer broke off, or is no stream of events.
    Broken(String),
    /// The server reported an error in the stream.
    Reported(String),
    /// Another number of tokens than was asked for, though the server takes `ignore_eos`.
    WrongLength {
        /// Tokens that were asked for.
        asked: u32,
        /// Tokens that came.
        got: u64,
    },
    /// The run was abandoned while it was in flight. It is counted on its own, and not as a failure.
    Abandoned,
}

impl Failure {
    /// Returns the name under which it is counted.
    pub fn kind(&self) -> String {
        match self {
            Self::Connect(_) => "connect".to_owned(),
            Self::Status(status, _) => format!("http {status}"),
            Self::Timeout => "timeout".to_owned(),
            Self::Broken(_) => "broken stream".to_owned(),
            Self::Reported(_) => "error in the stream".to_owned(),
            Self::WrongLength { .. } => "wrong length".to_owned(),
            Self::Abandoned => "abandoned".to_owned(),
        }
    }

    /// Returns what was said about it; empty where the kind says all.
    pub fn detail(&self) -> String {
        match self {
            Self::Connect(why) | Self::Status(_, why) | Self::Broken(why) | Self::Reported(why) => why.clone(),
            Self::WrongLength { asked, got } => format!("{got} tokens, {asked} were asked for"),
            Self::Timeout | Self::Abandoned => String::new(),
        }
    }
}

impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let detail = self.detail();
        serializer.collect_str(&if detail.is_empty() { self.kind() } else { format!("{}: {detail}", self.kind()) })
    }
}

impl Record {
    /// Milliseconds from when it was due to the first token.
    pub fn ttft_ms(&self) -> Option<f64> {
        self.first_us.map(|first| ms(first.saturating_sub(self.due_us)))
    }

    /// Milliseconds from when it was sent to the first token.
    pub fn ttft_sent_ms(&self) -> Option<f64> {
        self.first_us.map(|first| ms(first.saturating_sub(self.sent_us)))
    }

    /// Milliseconds from when it was due to the end.
    pub fn e2e_ms(&self) -> f64 {
        ms(self.end_us.saturating_sub(self.due_us))
    }

    /// Milliseconds from when it was sent to the end.
    pub fn e2e_sent_ms(&self) -> f64 {
        ms(self.end_us.saturating_sub(self.sent_us))
    }

    /// Milliseconds from the first token to the end, by tokens after the first; where the server does not count
    /// them, by events. Right also where an event carries several tokens, or a token has no text.
    pub fn tpot_ms(&self) -> Option<f64> {
        let after_first = self.output_tokens.map_or(self.gaps_us.len() as u64, |tokens| tokens.saturating_sub(1));
        let spent = self.end_us.saturating_sub(self.first_us?);
        (after_first > 0).then(|| ms(spent) / after_first as f64)
    }

    /// Returns the longest gap between two events with tokens, in milliseconds.
    pub fn longest_gap_ms(&self) -> Option<f64> {
        self.gaps_us.iter().max().map(|&gap| ms(gap.into()))
    }

    /// Events that carried tokens.
    pub fn events(&self) -> u64 {
        self.first_us.map_or(0, |_| self.gaps_us.len() as u64 + 1)
    }

    /// Returns whether it is neither done nor failed.
    pub fn abandoned(&self) -> bool {
        self.failure == Some(Failure::Abandoned)
    }
}

/// Microseconds in milliseconds.
pub(crate) fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_when_it_was_due_and_from_when_it_was_sent() {
        let record = Record {
            due_us: 1_000,
            ready_us: 2_000,
            sent_us: 5_000,
            first_us: Some(15_000),
            gaps_us: vec![4_000, 0, 6_000],
            end_us: 26_000,
            ..Record::default()
        };
        assert_eq!((record.ttft_ms(), record.ttft_sent_ms()), (Some(14.0), Some(10.0)));
        assert_eq!((record.e2e_ms(), record.e2e_sent_ms()), (25.0, 21.0));
        assert_eq!((record.events(), record.longest_gap_ms()), (4, Some(6.0)));
        assert_eq!(record.tpot_ms(), Some(11.0 / 3.0));
        assert_eq!(Record { output_tokens: Some(12), ..record.clone() }.tpot_ms(), Some(1.0));
        assert_eq!(Record { output_tokens: Some(1), gaps_us: Vec::new(), ..record }.tpot_ms(), None);
    }
}
