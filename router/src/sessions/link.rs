//! Sessions that are open, as byte messages in order. Who carries them (a channel, a stream over the network) is the
//! dialer's matter.

use domain::WorkerId;
use domain::session::{PeerInfo, Role};
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{self, BoxStream, SelectAll};
use std::collections::BTreeMap;
use std::fmt;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// The router's end of a session with one worker.
pub(crate) struct WorkerLink {
    /// The worker, and where its peers find it.
    pub(crate) peer: PeerInfo,
    /// The longest sequence that it takes.
    pub(crate) context_tokens: u32,
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

/// The sessions that are open. What a message costs does not grow with their number.
#[derive(Default)]
pub(crate) struct Links {
    open: BTreeMap<WorkerId, Open>,
    /// What comes from them. Sessions that have something are heard in turn, so that a busy worker does not hide the others.
    messages: SelectAll<Abortable<Messages>>,
}

/// What comes from one worker; last of all `None`, where its session is over.
type Messages = BoxStream<'static, (WorkerId, Option<Vec<u8>>)>;

struct Open {
    role: Role,
    send: Box<dyn Fn(Vec<u8>) -> Result<(), LinkFull> + Send + Sync>,
    /// Drops what comes from it.
    deaf: AbortHandle,
}

impl Links {
    /// A session began; an earlier one with the same worker is over.
    pub(crate) fn open(&mut self, link: WorkerLink) {
        let WorkerLink { peer, context_tokens: _, send, receive } = link;
        self.close(peer.id);
        let (messages, deaf) = stream::abortable(messages(peer.id, receive));
        self.messages.push(messages);
        self.open.insert(peer.id, Open { role: peer.role, send, deaf });
    }

    /// Queues a message for the worker; where its session is not open, nothing. Errors: it takes none any more.
    pub(crate) fn send(&self, id: WorkerId, bytes: Vec<u8>) -> Result<(), LinkFull> {
        self.open.get(&id).map_or(Ok(()), |open| (open.send)(bytes))
    }

    /// Closes the session: the worker sees the end of its messages and gives up what it does for this router.
    pub(crate) fn close(&mut self, id: WorkerId) -> Option<Role> {
        let open = self.open.remove(&id)?;
        open.deaf.abort();
        Some(open.role)
    }

    /// The next message of any worker; `None` in its place: its session is over. Without sessions there is none.
    pub(crate) async fn next(&mut self) -> Option<(WorkerId, Option<Vec<u8>>)> {
        self.messages.next().await
    }
}

fn messages(id: WorkerId, mut receive: mpsc::Receiver<Vec<u8>>) -> Messages {
    let mut over = false;
    let next = move |context: &mut Context<'_>| {
        if over {
            return Poll::Ready(None);
        }
        let message = ready!(receive.poll_recv(context));
        over = message.is_none();
        Poll::Ready(Some((id, message)))
    };
    stream::poll_fn(next).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Incarnation;
    use domain::session::PeerAddress;
    use futures_util::FutureExt;

    /// The router's end of a session, and what the worker says on it.
    fn link(id: u32) -> (WorkerLink, mpsc::Sender<Vec<u8>>) {
        let (sender, receive) = mpsc::channel(8);
        let (name, address) = (String::new(), PeerAddress::default());
        let peer = PeerInfo { id: WorkerId(id), incarnation: Incarnation(1), name, role: Role::Decode, address };
        (WorkerLink { peer, context_tokens: 0, send: Box::new(|_| Err(LinkFull)), receive }, sender)
    }

    fn heard(links: &mut Links) -> Option<(u32, Option<Vec<u8>>)> {
        links.next().now_or_never().flatten().map(|(id, message)| (id.0, message))
    }

    #[test]
    fn a_busy_worker_does_not_hide_the_others() {
        let mut links = Links::default();
        let (busy, says) = link(1);
        links.open(busy);
        let (other, murmurs) = link(2);
        links.open(other);
        (0..8).for_each(|n| says.try_send(vec![n]).expect("there is room"));
        murmurs.try_send(b"I".to_vec()).expect("there is room");
        let first: Vec<_> = (0..2).filter_map(|_| heard(&mut links)).map(|(id, _)| id).collect();
        assert!(first.contains(&1) && first.contains(&2), "{first:?}");
        assert_eq!((0..9).filter_map(|_| heard(&mut links)).count(), 7, "nothing is lost");
    }

    #[test]
    fn a_session_that_is_closed_or_replaced_says_nothing_more() {
        let mut links = Links::default();
        assert_eq!(heard(&mut links), None, "there is none");
        let (first, says) = link(1);
        links.open(first);
        says.try_send(b"old".to_vec()).expect("there is room");
        let (second, says_again) = link(1);
        links.open(second);
        says_again.try_send(b"new".to_vec()).expect("there is room");
        assert_eq!(heard(&mut links), Some((1, Some(b"new".to_vec()))));
        assert_eq!(heard(&mut links), None);
        assert!(says.is_closed(), "its worker learns of it");
        assert_eq!(links.send(WorkerId(1), Vec::new()), Err(LinkFull));
        assert_eq!(links.send(WorkerId(2), Vec::new()), Ok(()));
        drop(says_again);
        assert_eq!(heard(&mut links), Some((1, None)), "its end is said");
        assert_eq!(links.close(WorkerId(1)), Some(Role::Decode));
        assert_eq!(links.close(WorkerId(1)), None);
    }
}
