//! A way to begin a session with a worker, and what comes of it.

use domain::session::{PeerInfo, Served};
use futures_util::future::BoxFuture;
use proto::queue::{Receiver, Sender};

/// A way to begin a session with one worker.
pub trait Dial: Send + Sync + 'static {
    /// Begins a session. Errors: [`DialError`].
    fn dial(&self) -> impl Future<Output = Result<Dialed, DialError>> + Send;

    /// Returns what people call it in logs: its address.
    fn name(&self) -> String;
}

/// A session that has begun.
pub struct Dialed {
    /// The identity of the worker, all of it proven.
    pub peer: PeerInfo,
    /// What it serves.
    pub served: Served,
    /// The version of the protocol that both ends speak.
    pub protocol: u32,
    /// What waits for it, up to [`super::TO_WORKER_BYTES_MAX`]. Dropping it ends the session.
    pub send: Sender<Vec<u8>>,
    /// Its messages. Closed: the session is over.
    pub receive: Receiver<Vec<u8>>,
    /// Carries the messages until the session is over, and says why it is.
    pub until_over: BoxFuture<'static, String>,
}

/// Why no session began.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// No process answers there now.
    #[error("the worker is not reached: {0}")]
    Unreachable(String),
    /// A process answers, and one of the two ends refuses the other.
    #[error("no session: {0}")]
    Refused(String),
}

impl DialError {
    /// Returns whether it says more than an error before it: a worker that is not there is so in several ways.
    pub(super) fn is_news(&self, before: &Self) -> bool {
        !matches!((self, before), (Self::Unreachable(_), Self::Unreachable(_))) && self != before
    }
}
