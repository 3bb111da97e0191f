//! Sessions with workers: how they come to be, and again after they were lost.
//!
//! A [`Dialer`] keeps a session with each worker that it is told of. A worker is admitted by what its hello says
//! (the roster), and its link goes to the brain, which owns it from then on. What waits either way is bounded in
//! bytes: a worker that takes too little gets no attempts until it does, and one that says too much is read more
//! slowly. What is deliberately absent: whether a worker does what it should while its session is open
//! (`placement` judges that).

mod dialer;
mod link;
mod remote;
mod roster;
#[cfg(test)]
mod tests;

pub use dialer::{Dial, DialError, Dialed, Dialer};
pub use link::{FROM_WORKER_BYTES_MAX, TO_WORKER_BYTES_MAX};
pub(crate) use link::{LinkFull, Links, WorkerLink};

use domain::session::Served;
use tokio::sync::{mpsc, watch};

/// Sessions as they begin, for [`crate::serve`].
#[derive(Debug)]
pub struct Sessions {
    /// The links of those that begin.
    pub(crate) links: mpsc::Receiver<WorkerLink>,
    /// What the workers serve, once the first has said it.
    pub(crate) service: watch::Receiver<Option<Service>>,
}

/// What the workers serve together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Service {
    /// The same for all, but for the context: that is the longest that a decode worker takes.
    pub(crate) served: Served,
    /// The context that each decode worker takes.
    pub(crate) common_context: u32,
}
