//! Sessions with workers of the same process.

use domain::session::{PeerInfo, Served};
use futures_util::FutureExt;
use router::{Dial, DialError, Dialed, LinkFull};
use tokio::sync::{mpsc, oneshot};
use worker::WorkerInput;

/// Messages of one worker on their way to the router; what is beyond it waits in the worker.
const SESSION_MESSAGES_MAX: usize = 8192;

/// A worker of this process. Both ends know who the other is: there is nothing to prove.
pub(super) struct Local {
    input: WorkerInput,
    peer: PeerInfo,
    served: Served,
}

impl Local {
    /// The worker behind `input`.
    pub(super) fn new(input: WorkerInput, peer: PeerInfo, served: Served) -> Self {
        Self { input, peer, served }
    }
}

impl Dial for Local {
    async fn dial(&self) -> Result<Dialed, DialError> {
        let (sender, receive) = mpsc::channel(SESSION_MESSAGES_MAX);
        let session = Box::new(move |bytes| sender.try_send(bytes).map_err(mpsc::error::TrySendError::into_inner));
        let input = self.input.open_session(session);
        let input = input.ok_or_else(|| DialError::Unreachable("it has ended or is overloaded".to_owned()))?;
        // Dropped with the router's end of the session.
        let (held, dropped) = oneshot::channel::<()>();
        let send = Box::new(move |bytes| {
            let _ = &held;
            if input.send(bytes) { Ok(()) } else { Err(LinkFull) }
        });
        let until_over = dropped.map(|_| "the router closed it, or the worker did".to_owned()).boxed();
        Ok(Dialed { peer: self.peer.clone(), served: self.served, send, receive, until_over })
    }

    fn name(&self) -> String {
        self.peer.name.clone()
    }
}
