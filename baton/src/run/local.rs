//! Sessions with workers of the same process.

use domain::session::{PeerInfo, Served};
use futures_util::FutureExt;
use proto::queue::{Receiver, Sender, queue};
use router::{Dial, DialError, Dialed, FROM_WORKER_BYTES_MAX, TO_WORKER_BYTES_MAX};
use tokio::sync::oneshot;
use worker::{SessionInput, WorkerInput};

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
        let (heard, receive) = queue(FROM_WORKER_BYTES_MAX);
        let (send, told) = queue(TO_WORKER_BYTES_MAX);
        // Dropped with the worker's end of the session.
        let (held, dropped) = oneshot::channel();
        let says = heard.clone();
        let session = move |bytes| {
            let _: &oneshot::Sender<()> = &held;
            says.try_send(bytes, 0)
        };
        let input = self.input.open_session(Box::new(session));
        let input = input.ok_or_else(|| DialError::Unreachable("it has ended".to_owned()))?;
        let until_over = carry(told, input, heard, dropped).boxed();
        Ok(Dialed { peer: self.peer.clone(), served: self.served, send, receive, until_over })
    }

    fn name(&self) -> String {
        self.peer.name.clone()
    }
}

/// Takes messages over to the worker, as its inbox has room for them, until either end drops the session.
async fn carry(
    mut told: Receiver<Vec<u8>>,
    input: SessionInput,
    heard: Sender<Vec<u8>>,
    dropped: oneshot::Receiver<()>,
) -> String {
    let messages = async {
        while let Some(bytes) = told.recv().await {
            if !input.send(bytes).await {
                return;
            }
        }
    };
    tokio::select! {
        () = messages => {}
        () = heard.closed() => {}
        _ = dropped => {}
    }
    "the router closed it, or the worker did".to_owned()
}
