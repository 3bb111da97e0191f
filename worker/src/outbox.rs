//! What goes to the router: in order, and never lost in silence.
//!
//! Messages that the session does not take now wait here. A router that lets [`BACKLOG_MAX`] of them wait is taken for
//! lost: the session is closed, which it sees as the loss of this worker, and replays elsewhere what ran here.

use crate::config::BACKLOG_MAX;
use domain::planted::{self, Bug};
use std::collections::VecDeque;

/// Takes a message for the router without waiting, or gives it back.
pub type SessionSend = Box<dyn Fn(Vec<u8>) -> Result<(), Vec<u8>> + Send>;

pub(crate) struct Outbox {
    /// `None`: the session is closed.
    send: Option<SessionSend>,
    backlog: VecDeque<Vec<u8>>,
}

impl Outbox {
    pub(crate) fn new(send: SessionSend) -> Self {
        Self { send: Some(send), backlog: VecDeque::new() }
    }

    /// Sends a message after all before it; whether the session is open still.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) -> bool {
        self.backlog.push_back(bytes);
        self.flush();
        if self.backlog.len() > BACKLOG_MAX {
            self.backlog.clear();
            self.send = None;
        }
        self.is_open()
    }

    /// Sends what waits, as far as the session takes it.
    pub(crate) fn flush(&mut self) {
        let Some(send) = &self.send else { return self.backlog.clear() };
        while let Some(bytes) = self.backlog.pop_front() {
            if let Err(bytes) = send(bytes) {
                if planted::is(Bug::DroppedWhenFull) {
                    return;
                }
                return self.backlog.push_front(bytes);
            }
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.send.is_some()
    }

    pub(crate) fn backlog(&self) -> usize {
        self.backlog.len()
    }

    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn what_is_not_taken_waits_in_order() {
        let (sender, receiver) = sync_channel(2);
        let mut outbox = Outbox::new(Box::new(move |bytes| {
            sender.try_send(bytes).map_err(|error| match error {
                std::sync::mpsc::TrySendError::Full(bytes) | std::sync::mpsc::TrySendError::Disconnected(bytes) => {
                    bytes
                }
            })
        }));
        assert!((0..5).all(|i| outbox.push(vec![i])));
        assert!(outbox.has_backlog());
        let mut got = Vec::new();
        while got.len() < 5 {
            got.extend(receiver.try_iter().flatten());
            outbox.flush();
        }
        assert_eq!(got, [0, 1, 2, 3, 4]);
        assert!(!outbox.has_backlog() && outbox.is_open());
    }

    #[test]
    fn a_router_that_takes_nothing_is_lost() {
        let mut outbox = Outbox::new(Box::new(Err));
        assert!((0..BACKLOG_MAX).all(|_| outbox.push(Vec::new())));
        assert!(!outbox.push(Vec::new()), "one more than may wait");
        assert!(!outbox.is_open() && !outbox.has_backlog());
        assert!(!outbox.push(Vec::new()), "it stays lost");
    }
}
