//! Sessions that are open, as byte messages in order. The dialer decides what carries them: a channel, or a stream
//! over the network.

use domain::WorkerId;
use domain::session::{PeerInfo, Role};
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{self, BoxStream, SelectAll};
use proto::queue::{Receiver, Sender};
use std::collections::BTreeMap;
use std::fmt;
use std::task::{Context, Poll, ready};
use telemetry::{Series, metrics};
use tokio::sync::watch;

/// The router's end of a session with one worker.
pub(crate) struct WorkerLink {
    /// The worker, and where its peers find it.
    pub(crate) peer: PeerInfo,
    /// The longest sequence that it takes.
    pub(crate) context_tokens: u32,
    /// The version of the protocol that both ends speak.
    pub(crate) protocol: u32,
    /// What people call the place that it was dialed at.
    pub(crate) address: String,
    /// What waits for it. Dropping it ends the session.
    pub(crate) send: Sender<Vec<u8>>,
    /// Its messages. Closed: the session is over.
    pub(crate) receive: Receiver<Vec<u8>>,
    /// Takes what its messages say of it.
    pub(crate) shown: watch::Sender<Shown>,
}

/// What the messages of a worker say of it, as the dialer needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    /// The role that it has now.
    pub(crate) role: Role,
    /// It drained and is about to end, so its session was closed.
    pub(crate) has_left: bool,
}

impl Shown {
    /// Describes a worker that begins in this role.
    pub(crate) fn new(role: Role) -> Self {
        Self { role, has_left: false }
    }
}

/// Bytes that wait for a worker at most.
pub const TO_WORKER_BYTES_MAX: usize = 16 << 20;
/// Attempts leave one in so many of these bytes free, for small messages that must be sent in any case: ends of
/// attempts, the worker's peers, signs of life. A worker for which more waits is full.
const SPARE: usize = 8;
/// Bytes of a worker's messages that wait for the brain; beyond it they wait in the connection, and then in the worker.
pub const FROM_WORKER_BYTES_MAX: usize = 4 << 20;

impl fmt::Debug for WorkerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerLink({} {:?} {})", self.peer.id, self.peer.role, self.peer.incarnation)
    }
}

/// The queue to a worker has no room for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkFull;

/// The sessions that are open. What a message costs does not grow with their number.
#[derive(Default)]
pub(crate) struct Links {
    open: BTreeMap<WorkerId, Open>,
    /// What comes from them. Sessions that have something are heard in turn, so that a busy worker does not hide
    /// the others.
    messages: SelectAll<Abortable<Messages>>,
}

/// What comes from one worker; last of all `None`, where its session is over.
type Messages = BoxStream<'static, (WorkerId, Option<Vec<u8>>)>;

struct Open {
    send: Sender<Vec<u8>>,
    /// Drops what comes from it.
    deaf: AbortHandle,
    /// Tells the dialer.
    shown: watch::Sender<Shown>,
    up: Series,
}

impl Links {
    /// Opens a session. An earlier one with the same worker is over.
    pub(crate) fn open(&mut self, link: WorkerLink) {
        let WorkerLink { peer, send, receive, shown, .. } = link;
        self.close(peer.id);
        let (messages, deaf) = stream::abortable(messages(peer.id, receive));
        self.messages.push(messages);
        let up = metrics::worker_up(peer.id, peer.role);
        up.set(1.0);
        self.open.insert(peer.id, Open { send, deaf, shown, up });
    }

    /// Returns the role of a worker whose session is open.
    pub(crate) fn role(&self, id: WorkerId) -> Option<Role> {
        self.open.get(&id).map(|open| open.shown.borrow().role)
    }

    /// Shows the role that a worker has now.
    pub(crate) fn show_role(&mut self, id: WorkerId, role: Role) {
        let Some(open) = self.open.get_mut(&id) else { return };
        if open.shown.send_if_modified(|shown| std::mem::replace(&mut shown.role, role) != role) {
            open.up = metrics::worker_up(id, role);
            open.up.set(1.0);
        }
    }

    /// Shows that a worker has drained and is about to end.
    pub(crate) fn show_left(&mut self, id: WorkerId) {
        if let Some(open) = self.open.get(&id) {
            open.shown.send_modify(|shown| shown.has_left = true);
        }
    }

    /// Queues an attempt for the worker; where its session is not open, nothing. Errors: it is full, until it has
    /// taken some of what waits.
    pub(crate) fn submit(&self, id: WorkerId, bytes: Vec<u8>) -> Result<(), LinkFull> {
        let Some(Open { send, .. }) = self.open.get(&id) else { return Ok(()) };
        send.try_send(bytes, send.bytes_max() / SPARE).map_err(|_| LinkFull)
    }

    /// Returns whether the worker's end of an open session is gone, which is still to be heard.
    pub(crate) fn is_over(&self, id: WorkerId) -> bool {
        self.open.get(&id).is_some_and(|open| open.send.is_closed())
    }

    /// Queues what is small for the worker; where its session is not open, nothing. Errors: not even for that
    /// there is room.
    pub(crate) fn send(&self, id: WorkerId, bytes: Vec<u8>) -> Result<(), LinkFull> {
        self.open.get(&id).map_or(Ok(()), |open| open.send.try_send(bytes, 0).map_err(|_| LinkFull))
    }

    /// Closes the session: the worker sees the end of its messages and gives up what it does for this router.
    /// Whether it was open.
    pub(crate) fn close(&mut self, id: WorkerId) -> bool {
        let open = self.open.remove(&id);
        open.inspect(|open| open.deaf.abort()).is_some()
    }

    /// Waits for the next message of any worker. `None` in its place: the worker's session is over. Without sessions
    /// there is none.
    pub(crate) async fn next(&mut self) -> Option<(WorkerId, Option<Vec<u8>>)> {
        self.messages.next().await
    }
}

fn messages(id: WorkerId, mut receive: Receiver<Vec<u8>>) -> Messages {
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
    use proto::queue::queue;

    /// The router's end of a session, what the worker says on it, and what it is told.
    fn link(id: u32) -> (WorkerLink, Sender<Vec<u8>>, Receiver<Vec<u8>>) {
        let (says, receive) = queue(FROM_WORKER_BYTES_MAX);
        let (send, told) = queue(TO_WORKER_BYTES_MAX);
        let (name, address) = (String::new(), PeerAddress::default());
        let peer = PeerInfo { id: WorkerId(id), incarnation: Incarnation(1), name, role: Role::Decode, address };
        let (shown, _) = watch::channel(Shown::new(peer.role));
        let address = String::new();
        (WorkerLink { peer, context_tokens: 0, protocol: 0, address, send, receive, shown }, says, told)
    }

    fn heard(links: &mut Links) -> Option<(u32, Option<Vec<u8>>)> {
        links.next().now_or_never().flatten().map(|(id, message)| (id.0, message))
    }

    #[test]
    fn a_busy_worker_does_not_hide_the_others() {
        let mut links = Links::default();
        let (busy, says, _told) = link(1);
        links.open(busy);
        let (other, murmurs, _told_too) = link(2);
        links.open(other);
        (0..8).for_each(|n| says.try_send(vec![n], 0).expect("there is room"));
        murmurs.try_send(b"I".to_vec(), 0).expect("there is room");
        let first: Vec<_> = (0..2).filter_map(|_| heard(&mut links)).map(|(id, _)| id).collect();
        assert!(first.contains(&1) && first.contains(&2), "{first:?}");
        assert_eq!((0..9).filter_map(|_| heard(&mut links)).count(), 7, "nothing is lost");
    }

    #[test]
    fn a_session_that_is_closed_or_replaced_says_nothing_more() {
        let mut links = Links::default();
        assert_eq!(heard(&mut links), None, "there is none");
        let (first, says, _told) = link(1);
        links.open(first);
        says.try_send(b"old".to_vec(), 0).expect("there is room");
        let (second, says_again, mut told_again) = link(1);
        links.open(second);
        says_again.try_send(b"new".to_vec(), 0).expect("there is room");
        assert_eq!(heard(&mut links), Some((1, Some(b"new".to_vec()))));
        assert_eq!(heard(&mut links), None);
        assert!(says.closed().now_or_never().is_some(), "its worker learns of it");
        assert_eq!(links.send(WorkerId(1), vec![1]), Ok(()));
        assert_eq!(told_again.recv().now_or_never(), Some(Some(vec![1])));
        assert_eq!(links.send(WorkerId(2), vec![2]), Ok(()), "it is nobody's");
        drop(says_again);
        assert_eq!(heard(&mut links), Some((1, None)), "its end is said");
        assert!(links.close(WorkerId(1)) && !links.close(WorkerId(1)));
        assert_eq!(told_again.recv().now_or_never(), Some(None));
    }

    #[test]
    fn a_full_worker_gets_no_attempts_and_hears_what_is_small() {
        let mut links = Links::default();
        let (link, _says, mut told) = link(1);
        links.open(link);
        let attempts = (0..).take_while(|_| links.submit(WorkerId(1), vec![0; 1 << 20]).is_ok()).count();
        assert_eq!(
            attempts,
            ((TO_WORKER_BYTES_MAX - TO_WORKER_BYTES_MAX / SPARE) >> 20) - 1,
            "each takes a little more"
        );
        assert_eq!(links.send(WorkerId(1), vec![1; 100]), Ok(()));
        assert_eq!(links.submit(WorkerId(1), vec![0; 1 << 20]), Err(LinkFull));
        assert_eq!(told.recv().now_or_never(), Some(Some(vec![0; 1 << 20])), "it takes one");
        assert_eq!(links.submit(WorkerId(1), vec![0; 1 << 20]), Ok(()));
        let small = (0..).take_while(|_| links.send(WorkerId(1), vec![1; 100]).is_ok()).count();
        assert!(small > 8192, "{small} cancellations have room");
    }
}
