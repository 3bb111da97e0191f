//! What goes to the router: in order, and never lost in silence.
//!
//! Messages that the session does not take now wait here. When they are too many bytes, the outbox is full until
//! the router has taken most of them: meanwhile nothing is computed that would make more. A router that takes
//! nothing for too long, or lets [`BACKLOG_BYTES_MAX`] wait all the same, is taken for lost: the session is
//! closed, which it sees as the loss of this worker, and replays elsewhere what ran here.

use crate::config::BACKLOG_BYTES_MAX;
use domain::Time;
use domain::planted_bugs::{self, Bug};
use proto::queue::weight;
use std::collections::VecDeque;
use std::time::Duration;

/// Of the bytes that fill an outbox, the part that is left when it is full no more.
const DRAINED: usize = 4;

/// Takes a message for the router without waiting, or gives it back.
pub type SessionSend = Box<dyn Fn(Vec<u8>) -> Result<(), Vec<u8>> + Send>;

pub(crate) struct Outbox {
    send: SessionSend,
    backlog: VecDeque<Vec<u8>>,
    /// What the backlog takes.
    bytes: usize,
    /// Above, it is full.
    bytes_max: usize,
    is_full: bool,
    /// How often it became full, or was so no more.
    turns: u64,
    /// Something was taken since the last flush.
    is_taken_from: bool,
    /// When something was taken last, or nothing waited.
    taken: Time,
}

impl Outbox {
    pub(crate) fn new(now: Time, send: SessionSend, bytes_max: usize) -> Self {
        let backlog = VecDeque::new();
        Self { send, backlog, bytes: 0, bytes_max, is_full: false, turns: 0, is_taken_from: false, taken: now }
    }

    /// Sends a message after all before it. False: too much waits, and it is lost.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) -> bool {
        let fits = self.bytes <= BACKLOG_BYTES_MAX;
        if fits {
            self.bytes += weight(bytes.len());
            self.backlog.push_back(bytes);
        }
        self.send();
        fits
    }

    /// Sends what waits, as far as the session takes it.
    pub(crate) fn flush(&mut self, now: Time) {
        self.send();
        if std::mem::take(&mut self.is_taken_from) || self.backlog.is_empty() {
            self.taken = now;
        }
    }

    fn send(&mut self) {
        while let Some(bytes) = self.backlog.pop_front() {
            let taken = weight(bytes.len());
            if let Err(bytes) = (self.send)(bytes) {
                if planted_bugs::is(Bug::DroppedWhenFull) {
                    self.bytes -= taken;
                    return;
                }
                self.backlog.push_front(bytes);
                break;
            }
            self.bytes -= taken;
            self.is_taken_from = true;
        }
        let is_full = self.bytes > if self.is_full { self.bytes_max / DRAINED } else { self.bytes_max };
        self.turns += u64::from(std::mem::replace(&mut self.is_full, is_full) != is_full);
    }

    /// Returns whether nothing is to be made that would have to wait here.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns how often it became full, or was so no more.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// Returns whether more waits than ever may, or nothing of it was taken for so long.
    pub(crate) fn is_stuck(&self, now: Time, silence_max: Duration) -> bool {
        self.bytes > BACKLOG_BYTES_MAX || now.since(self.taken) >= silence_max
    }

    /// This worker itself stood still for so long.
    pub(crate) fn forgive(&mut self, pause: Duration) {
        self.taken = self.taken + pause;
    }

    /// Bytes that wait.
    pub(crate) fn backlog(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{TrySendError, sync_channel};

    const SILENCE: Duration = Duration::from_secs(5);

    #[test]
    fn what_is_not_taken_waits_in_order() {
        let (sender, receiver) = sync_channel(2);
        let send = move |bytes| {
            sender.try_send(bytes).map_err(|error| match error {
                TrySendError::Full(bytes) | TrySendError::Disconnected(bytes) => bytes,
            })
        };
        let mut outbox = Outbox::new(Time::ZERO, Box::new(send), 1 << 20);
        assert!((0..5).all(|i| outbox.push(vec![i])));
        assert_eq!((outbox.backlog(), outbox.is_full()), (3 * weight(1), false));
        let mut got = Vec::new();
        while got.len() < 5 {
            got.extend(receiver.try_iter().flatten());
            outbox.flush(Time::ZERO);
        }
        assert_eq!(got, [0, 1, 2, 3, 4]);
        assert_eq!(outbox.backlog(), 0);
    }

    /// An outbox of ten messages of a byte, and how many more its router will take.
    fn outbox() -> (Outbox, Arc<AtomicUsize>) {
        let takes = Arc::<AtomicUsize>::default();
        let left = takes.clone();
        let less = |left: usize| left.checked_sub(1);
        let send = move |bytes| match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => Ok(()),
            Err(_) => Err(bytes),
        };
        (Outbox::new(Time::ZERO, Box::new(send), 10 * weight(1)), takes)
    }

    #[test]
    fn a_full_one_is_full_until_most_of_it_is_taken() {
        let (mut outbox, takes) = outbox();
        assert!((0..10).all(|_| outbox.push(vec![0]) && !outbox.is_full()));
        assert!(outbox.push(vec![0]) && outbox.is_full());
        for left in (0..11).rev() {
            takes.store(1, Ordering::Relaxed);
            outbox.flush(Time::ZERO);
            assert_eq!(outbox.backlog(), left * weight(1));
            assert_eq!(outbox.is_full(), left > 2, "{left} are left");
        }
        assert_eq!(outbox.turns(), 2);
    }

    #[test]
    fn a_router_that_takes_nothing_for_too_long_is_stuck_and_one_that_takes_little_is_not() {
        let (mut outbox, takes) = outbox();
        let mut now = Time::ZERO;
        outbox.flush(now);
        now = now + SILENCE * 2;
        outbox.flush(now);
        assert!(!outbox.is_stuck(now, SILENCE), "nothing waited");
        assert!((0..20).all(|_| outbox.push(vec![0])));
        for _ in 0..4 {
            now = now + SILENCE / 2;
            takes.store(1, Ordering::Relaxed);
            outbox.flush(now);
            assert!(!outbox.is_stuck(now, SILENCE));
        }
        now = now + SILENCE;
        outbox.flush(now);
        assert!(outbox.is_stuck(now, SILENCE));
        outbox.forgive(SILENCE / 2);
        assert!(!outbox.is_stuck(now, SILENCE), "it was this worker that stood still");
    }

    #[test]
    fn what_waits_is_bounded_whatever_is_said() {
        let (mut outbox, _) = outbox();
        let large = BACKLOG_BYTES_MAX / 2;
        assert!((0..2).all(|_| outbox.push(vec![0; large])));
        assert!(outbox.is_stuck(Time::ZERO, SILENCE));
        let backlog = outbox.backlog();
        assert!(!outbox.push(vec![0]), "one more is lost");
        assert_eq!(outbox.backlog(), backlog);
    }
}
