//! Sessions with workers of the same process.

use domain::session::{PROTOCOL, PeerInfo, Role, Served};
use futures_util::FutureExt;
use proto::queue::{Receiver, Sender, queue};
use router::{Dial, DialError, Dialed, FROM_WORKER_BYTES_MAX, TO_WORKER_BYTES_MAX};
use tokio::sync::{oneshot, watch};
use worker::{SessionInput, WorkerInput};

/// A worker of this process. Both ends know each other, so there is nothing to prove.
pub(super) struct Local {
    input: WorkerInput,
    role: watch::Receiver<Role>,
    peer: PeerInfo,
    served: Served,
}

impl Local {
    /// Returns the worker behind `input`, which has this role now.
    pub(super) fn new(input: WorkerInput, role: watch::Receiver<Role>, peer: PeerInfo, served: Served) -> Self {
        Self { input, role, peer, served }
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
        let peer = PeerInfo { role: *self.role.borrow(), ..self.peer.clone() };
        let protocol = PROTOCOL.newest;
        Ok(Dialed { peer, served: self.served, protocol, send, receive, until_over })
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

#[cfg(test)]
mod tests {
    use super::*;
    use domain::session::{ModelShape, PeerAddress};
    use domain::{Incarnation, WorkerId};

    #[tokio::test]
    async fn a_worker_that_does_not_look_into_its_inbox_keeps_its_session() {
        let inbox = worker::inbox();
        let (id, incarnation, name) = (WorkerId(1), Incarnation(1), "decode-1".to_owned());
        let peer = PeerInfo { id, incarnation, name, role: Role::Decode, address: PeerAddress::default() };
        let shape = ModelShape { vocab: 8, layers: 1, hidden: 8 };
        let served = Served {
            weights: [0; 32],
            shape,
            layout: 1,
            block_tokens: 4,
            token_bytes: 8,
            context_tokens: 64,
            batch_invariant: true,
            grammars: true,
        };
        let (_role, role) = watch::channel(peer.role);
        let dialed = Local::new(inbox.input(), role, peer, served).dial().await;
        let Dialed { send, receive, until_over, .. } = dialed.unwrap_or_else(|error| panic!("{error}"));
        let over = tokio::spawn(until_over);
        // More than its queue takes: the rest waits in the inbox.
        let mut said = 0;
        while said < TO_WORKER_BYTES_MAX + TO_WORKER_BYTES_MAX / 2 {
            match send.try_send(vec![7; 64 << 10], 0) {
                Ok(()) => said += 64 << 10,
                Err(_) => tokio::task::yield_now().await,
            }
        }
        assert!(!over.is_finished());
        // Both ends may drop it while it is full.
        drop(receive);
        over.await.expect("it is over");
        drop(inbox);
    }
}
