//! Why a peer was not reached, and whether that is its fault.

use super::channel::ChannelError;
use crate::agent::counts::{Counts, Refusal};
use crate::lanes::WhyPassed;
use crate::wire_error::WireError;
use std::io;

/// Why a peer was not reached, over a lane or a connection of it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct ConnectError {
    /// What the other end did wrong, if it did.
    why: Option<Refusal>,
    /// Whether the other end closed the connection without a word.
    is_closed: bool,
    reason: String,
}

impl ConnectError {
    /// The other end does not speak as it should.
    pub(crate) fn lie(reason: impl Into<String>) -> Self {
        Self::refused(Refusal::Protocol, reason)
    }

    pub(crate) fn refused(why: Refusal, reason: impl Into<String>) -> Self {
        Self { why: Some(why), is_closed: false, reason: reason.into() }
    }

    /// A socket failed, which `reason` says.
    pub(crate) fn failed(error: &io::Error, reason: String) -> Self {
        let why = (error.kind() == io::ErrorKind::InvalidData).then_some(Refusal::Encryption);
        Self { why, is_closed: is_closed(error), reason }
    }

    /// Whether the other end closed the connection without a word.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Why a lane is passed over for it.
    pub(crate) fn why_passed(&self) -> WhyPassed {
        if self.why.is_some() { WhyPassed::Refused } else { WhyPassed::Unreached }
    }

    /// Counts it, where it is the other end's fault. Why, in words.
    pub(crate) fn count(self, counts: &Counts) -> String {
        if let Some(why) = self.why {
            counts.refused(why);
        }
        self.reason
    }
}

impl From<String> for ConnectError {
    fn from(reason: String) -> Self {
        Self { why: None, is_closed: false, reason }
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof)
}

impl From<WireError> for ConnectError {
    fn from(error: WireError) -> Self {
        Self::lie(error.to_string())
    }
}

impl From<&str> for ConnectError {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}

impl From<ChannelError> for ConnectError {
    fn from(error: ChannelError) -> Self {
        let reason = error.to_string();
        match error {
            ChannelError::Refused(why, _) => Self::refused(why, reason),
            ChannelError::Wire(_) => Self::lie(reason),
            ChannelError::Closed => Self { why: None, is_closed: true, reason },
            ChannelError::Failed(error) => Self::failed(&error, reason),
        }
    }
}
