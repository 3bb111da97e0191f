//! Sessions with workers: how they come to be, and again after they were lost.
//!
//! A [`Dialer`] keeps a session with each worker that it is told of. A worker is admitted by what its hello says
//! (the roster), and its link goes to the brain, which owns it from then on. What waits either way is bounded in
//! bytes: a worker that takes too little gets no attempts until it does, and one that says too much is read more
//! slowly. What is deliberately absent: whether a worker does what it should while its session is open
//! (`placement` judges that).

mod dial;
mod dialer;
mod link;
mod remote;
mod roster;
mod service;
#[cfg(test)]
mod tests;

pub use dial::{Dial, DialError, Dialed};
pub use dialer::{Dialer, Sessions};
#[cfg(test)]
pub(crate) use link::Shown;
pub use link::{FROM_WORKER_BYTES_MAX, TO_WORKER_BYTES_MAX};
pub(crate) use link::{LinkFull, Links, WorkerLink};
pub(crate) use service::Service;
