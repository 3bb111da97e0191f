//! Sessions that are open, as byte messages in order. Who carries them (a channel, a stream over the network) is the
//! dialer's matter.

use domain::WorkerId;
use domain::session::{PeerInfo, Role};
use std::fmt;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// The router's end of a session with one worker.
pub(crate) struct WorkerLink {
    /// The worker, and where its peers find it.
    pub(crate) peer: PeerInfo,
    /// Queues a message for it without waiting. An error is final: the session is closed.
    pub(crate) send: Box<dyn Fn(Vec<u8>) -> Result<(), LinkFull> + Send + Sync>,
    /// Its messages. Closed: the session is over.
    pub(crate) receive: mpsc::Receiver<Vec<u8>>,
}

impl fmt::Debug for WorkerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerLink({} {:?} {})", self.peer.id, self.peer.role, self.peer.incarnation)
    }
}

/// The queue to a worker is full: it has stopped taking messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkFull;

impl fmt::Display for LinkFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue to the worker is full")
    }
}

impl std::error::Error for LinkFull {}

/// The sessions that are open.
#[derive(Debug, Default)]
pub(crate) struct Links {
    open: Vec<WorkerLink>,
    /// Where the next look for a message begins, so that a busy worker does not hide the others.
    turn: usize,
}

impl Links {
    /// A session began; an earlier one with the same worker is over.
    pub(crate) fn open(&mut self, link: WorkerLink) {
        self.close(link.peer.id);
        self.open.push(link);
    }

    /// The worker's session, if it is open.
    pub(crate) fn get(&self, id: WorkerId) -> Option<&WorkerLink> {
        self.open.iter().find(|link| link.peer.id == id)
    }

    /// Closes the session: the worker sees the end of its messages and gives up what it does for this router.
    pub(crate) fn close(&mut self, id: WorkerId) -> Option<Role> {
        let at = self.open.iter().position(|link| link.peer.id == id)?;
        Some(self.open.remove(at).peer.role)
    }

    /// The next message of any worker; `None`: its session is over.
    pub(crate) async fn next(&mut self) -> (WorkerId, Option<Vec<u8>>) {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<(WorkerId, Option<Vec<u8>>)> {
        for step in 0..self.open.len() {
            let at = (self.turn + step) % self.open.len();
            let link = &mut self.open[at];
            if let Poll::Ready(message) = link.receive.poll_recv(context) {
                self.turn = at + 1;
                return Poll::Ready((link.peer.id, message));
            }
        }
        Poll::Pending
    }
}
