//! Queues of messages between tasks, bounded in bytes: what carries a session within a process, and at both ends
//! of a connection.
//!
//! A queue is full when the bytes that wait in it are as many as it takes. A sender then waits, or keeps its message.
//! A message that is larger than a queue goes alone. What is deliberately absent: a bound on the number of messages,
//! which follows from the least bytes that each takes ([`weight`]).

use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that a message takes beside its own, about.
const OVERHEAD_BYTES: usize = 128;

/// Returns the bytes that a message of `len` bytes takes while it waits.
pub fn weight(len: usize) -> usize {
    len + OVERHEAD_BYTES
}

/// Room for messages of so many bytes. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Room {
    free: Arc<Semaphore>,
    bytes_max: usize,
}

/// A message's share of the room, given back when dropped.
#[derive(Debug)]
pub struct Share {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Makes room for `bytes_max` bytes.
    ///
    /// # Panics
    /// If they are 4 GiB or more.
    pub fn new(bytes_max: usize) -> Self {
        assert!(u32::try_from(bytes_max).is_ok(), "{bytes_max} bytes of messages");
        Self { free: Arc::new(Semaphore::new(bytes_max)), bytes_max }
    }

    /// Takes room for a message of `len` bytes now, if `spare` bytes are left then.
    pub fn try_take(&self, len: usize, spare: usize) -> Option<Share> {
        let bytes = weight(len).min(self.bytes_max - spare);
        if self.free.available_permits() < bytes + spare {
            return None;
        }
        let permit = self.free.clone().try_acquire_many_owned(bytes as u32).ok()?;
        Some(Share { _permit: Some(permit) })
    }

    /// Waits for room for a message of `len` bytes. Senders get room in the order in which they began to wait.
    pub async fn take(&self, len: usize) -> Share {
        let bytes = weight(len).min(self.bytes_max);
        // An error says that it was closed, which nobody does.
        Share { _permit: self.free.clone().acquire_many_owned(bytes as u32).await.ok() }
    }

    /// Returns the bytes that are taken.
    pub fn taken(&self) -> usize {
        self.bytes_max - self.free.available_permits()
    }
}

/// What waits in a queue.
pub trait Weigh {
    /// Returns its bytes.
    fn bytes(&self) -> usize;
}

impl Weigh for Vec<u8> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl<E> Weigh for Result<Vec<u8>, E> {
    fn bytes(&self) -> usize {
        self.as_ref().map_or(0, Vec::len)
    }
}

/// Makes a queue in which at most `bytes_max` bytes of messages wait.
pub fn queue<T: Weigh>(bytes_max: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = unbounded_channel();
    (Sender { sender, room: Room::new(bytes_max) }, Receiver { receiver })
}

/// The sending end of a queue. Cheap to clone.
#[derive(Debug)]
pub struct Sender<T> {
    sender: UnboundedSender<(T, Share)>,
    room: Room,
}

/// The receiving end of a queue.
#[derive(Debug)]
pub struct Receiver<T> {
    receiver: UnboundedReceiver<(T, Share)>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), room: self.room.clone() }
    }
}

impl<T: Weigh> Sender<T> {
    /// Queues a message, if `spare` bytes of room are left then. Errors: the message, because it has no room or the
    /// receiver is gone.
    pub fn try_send(&self, message: T, spare: usize) -> Result<(), T> {
        match self.room.try_take(message.bytes(), spare) {
            Some(share) => self.sender.send((message, share)).map_err(|error| error.0.0),
            None => Err(message),
        }
    }

    /// Queues a message as soon as there is room. Errors: the message, because the receiver is gone.
    pub async fn send(&self, message: T) -> Result<(), T> {
        let share = self.room.take(message.bytes()).await;
        self.sender.send((message, share)).map_err(|error| error.0.0)
    }

    /// Returns whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until the receiver is gone.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }

    /// Returns the bytes that wait.
    pub fn waiting(&self) -> usize {
        self.room.taken()
    }

    /// Returns how many bytes may wait.
    pub fn bytes_max(&self) -> usize {
        self.room.bytes_max
    }
}

impl<T> Receiver<T> {
    /// Waits for the next message. `None`: the queue is empty, and all senders are gone.
    pub async fn recv(&mut self) -> Option<T> {
        self.receiver.recv().await.map(|(message, _)| message)
    }

    /// Polls for the next message, as [`Self::recv`] returns it.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.receiver.poll_recv(context).map(|next| next.map(|(message, _)| message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const LEN: usize = 100;
    const BYTES_MAX: usize = 10 * (LEN + OVERHEAD_BYTES);

    #[tokio::test]
    async fn a_full_queue_keeps_its_bytes_and_takes_more_when_some_were_received() {
        let (sender, mut receiver) = queue(BYTES_MAX);
        for number in 0..10 {
            sender.try_send(vec![number; LEN], 0).expect("there is room");
        }
        assert_eq!((sender.try_send(Vec::new(), 0), sender.waiting()), (Err(Vec::new()), BYTES_MAX));
        let mut waits = Box::pin(sender.send(vec![10; LEN]));
        assert!((&mut waits).now_or_never().is_none());
        assert_eq!(receiver.recv().await, Some(vec![0; LEN]));
        waits.await.expect("somebody receives");
        for number in 1..=10 {
            assert_eq!(receiver.recv().await, Some(vec![number; LEN]), "in order, and none is lost");
        }
        assert_eq!(sender.waiting(), 0);
    }

    #[test]
    fn spare_room_is_left_to_others() {
        let (sender, _receiver) = queue(BYTES_MAX);
        let spare = 2 * weight(LEN);
        let taken = (0..).take_while(|_| sender.try_send(vec![0; LEN], spare).is_ok()).count();
        let more = (0..).take_while(|_| sender.try_send(vec![0; LEN], 0).is_ok()).count();
        assert_eq!((taken, more), (8, 2));
    }

    #[tokio::test]
    async fn a_message_that_is_larger_than_the_queue_goes_alone() {
        let (sender, mut receiver) = queue(BYTES_MAX);
        let large = || vec![1; 100 * BYTES_MAX];
        sender.try_send(large(), weight(LEN)).expect("it is empty");
        assert!(sender.try_send(large(), 0).is_err());
        sender.try_send(vec![2; LEN], 0).expect("that is left to it");
        assert_eq!(receiver.recv().await, Some(large()));
        drop(sender);
        assert_eq!((receiver.recv().await, receiver.recv().await), (Some(vec![2; LEN]), None));
    }

    #[tokio::test]
    async fn nobody_waits_for_a_receiver_that_is_gone() {
        let (sender, receiver) = queue(BYTES_MAX);
        sender.try_send(vec![0; BYTES_MAX], 0).expect("it is empty");
        let mut waits = Box::pin(sender.send(vec![1]));
        assert!((&mut waits).now_or_never().is_none());
        drop(receiver);
        assert_eq!(waits.await, Err(vec![1]));
        sender.closed().await;
    }
}
