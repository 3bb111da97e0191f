//! What the workers of a router serve.

use domain::session::Served;

/// What the workers serve together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Service {
    /// The same for all, but for three: the context is the longest that a decode worker takes, and `batch_invariant`
    /// and `grammars` say whether all workers are that, and have them.
    pub(crate) served: Served,
    /// The context that each decode worker takes.
    pub(crate) common_context: u32,
}
