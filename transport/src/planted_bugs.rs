//! Bugs in what threads share without a lock. There are none here: `tests/shuttle.rs`, which runs those files in
//! thousands of orders of their steps, has a module of this name that plants them, to show that it finds each.

/// A bug that may be planted.
#[derive(Clone, Copy)]
pub(crate) enum Bug {
    /// Whoever lies down does not look whether somebody rang meanwhile.
    RingOverheard,
    /// Whoever has work looks who sleeps before it counts.
    CountedTooLate,
    /// Whoever rang bells says that none hangs after others could hang theirs.
    BellForgotten,
    /// A word is shown to other processes first, and only then shown whenever it is raised.
    BoardOpenedLate,
}

/// Returns whether it is.
pub(crate) const fn is(_: Bug) -> bool {
    false
}
