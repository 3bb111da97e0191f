//! What must always be so, a file each. Every one says what it found in words; the first that is violated ends a run.

pub(crate) mod answer;
pub(crate) mod bounds;
pub(crate) mod conservation;
pub(crate) mod destination;
pub(crate) mod ends;
pub(crate) mod epochs;
pub(crate) mod finish;
pub(crate) mod quotas;
pub(crate) mod reuse;
pub(crate) mod sealed;
pub(crate) mod slots;
pub(crate) mod source;
pub(crate) mod tenants;
pub(crate) mod text;
pub(crate) mod tokens;
pub(crate) mod validated;
pub(crate) mod waits;

use domain::Time;

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: &'static str,
    /// What was found.
    pub what: String,
    /// When, in the world's time.
    pub at: Time,
}
