//! What must always be so, a file each. Every one says what it found in words; the first that is violated ends a run.

pub(crate) mod answer;
pub(crate) mod blame;
pub(crate) mod bounds;
pub(crate) mod conservation;
pub(crate) mod culprit;
pub(crate) mod destination;
pub(crate) mod ends;
pub(crate) mod epochs;
pub(crate) mod finish;
pub(crate) mod idle;
pub(crate) mod leases;
pub(crate) mod line;
pub(crate) mod listing;
pub(crate) mod needless;
pub(crate) mod operator;
pub(crate) mod patience;
pub(crate) mod plans;
pub(crate) mod quotas;
pub(crate) mod refusals;
pub(crate) mod renewal;
pub(crate) mod reuse;
pub(crate) mod sealed;
pub(crate) mod slots;
pub(crate) mod source;
pub(crate) mod tenants;
pub(crate) mod text;
pub(crate) mod tokens;
pub(crate) mod turn;
pub(crate) mod validated;
pub(crate) mod waits;

use domain::Time;
use std::fmt;

/// What can be found wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// An invariant of the simulation does not hold: which.
    Invariant(&'static str),
    /// An assertion of a core itself failed: it panicked.
    Assertion,
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Law::Invariant(name) => f.write_str(name),
            Law::Assertion => f.write_str("a core's own assertions"),
        }
    }
}

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant that does not hold, or that a core's own assertion failed.
    pub law: Law,
    /// What was found.
    pub what: String,
    /// When, in the world's time.
    pub at: Time,
}
