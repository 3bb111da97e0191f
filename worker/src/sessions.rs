//! Sessions with routers: who is connected, what waits to be said to each, and who has gone silent.
//!
//! A session ends when its router ends it, or when it says or takes nothing for too long; a worker works only for
//! attempts of sessions that are open, and lets those wait whose router lets too much wait.

use crate::outbox::Outbox;
use domain::Time;
use domain::session::FromWorker;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A session of this life of the worker. Never reused by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}

/// One session.
pub(crate) struct Session {
    outbox: Outbox,
    /// Its router's end is gone.
    ended: Arc<AtomicBool>,
    heard: Time,
    /// Its next report holds everything.
    pub(crate) wants_snapshot: bool,
    /// A report is due to it even if nothing changed: work arrived from it, and until a report comes its router counts
    /// that work as waiting here.
    pub(crate) wants_report: bool,
    /// Submits that came from it.
    pub(crate) submits: u64,
}

/// All sessions that are open.
#[derive(Default)]
pub(crate) struct Sessions {
    open: BTreeMap<SessionId, Session>,
    /// How often outboxes of sessions that are closed became full, or were so no more.
    turns: u64,
}

impl Sessions {
    /// A session begins; its first report holds everything.
    pub(crate) fn open(&mut self, now: Time, id: SessionId, outbox: Outbox, ended: Arc<AtomicBool>) {
        let session = Session { outbox, ended, heard: now, wants_snapshot: true, wants_report: false, submits: 0 };
        self.open.insert(id, session);
    }

    /// The session, if it is open.
    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.open.get_mut(&id)
    }

    /// All that are open.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (SessionId, &mut Session)> {
        self.open.iter_mut().map(|(&id, session)| (id, session))
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Something came from the router; `false`: its session is closed.
    pub(crate) fn heard(&mut self, now: Time, id: SessionId) -> bool {
        let session = self.open.get_mut(&id);
        session.map(|session| session.heard = now).is_some()
    }

    /// Says something to one router; `false`: its session is closed, now or before.
    pub(crate) fn tell(&mut self, id: SessionId, message: &FromWorker) -> bool {
        self.open.get_mut(&id).is_some_and(|session| session.tell(message))
    }

    /// This worker itself stood still for so long: nobody else's silence is to be judged by it.
    pub(crate) fn forgive(&mut self, pause: Duration) {
        for session in self.open.values_mut() {
            session.heard = session.heard + pause;
            session.outbox.forgive(pause);
        }
    }

    /// Closes the sessions that are over, and says which and why.
    pub(crate) fn close_lost(&mut self, now: Time, silence_max: Duration) -> Vec<(SessionId, &'static str)> {
        let why = |session: &Session| {
            if session.ended.load(Ordering::Acquire) {
                Some("its router ended it")
            } else if session.outbox.is_stuck(now, silence_max) {
                Some("its router takes no messages")
            } else if now.since(session.heard) >= silence_max {
                Some("its router is silent")
            } else {
                None
            }
        };
        let lost: Vec<_> = self.open.iter().filter_map(|(&id, session)| Some((id, why(session)?))).collect();
        let closed = lost.iter().filter_map(|(id, _)| self.open.remove(id));
        self.turns += closed.map(|session| session.outbox.turns()).sum::<u64>();
        lost
    }

    /// Sends what waits, as far as the sessions take it.
    pub(crate) fn flush(&mut self, now: Time) {
        self.open.values_mut().for_each(|session| session.outbox.flush(now));
    }

    /// Bytes that wait.
    pub(crate) fn backlog(&self) -> usize {
        self.open.values().map(|session| session.outbox.backlog()).sum()
    }

    /// Returns whether the session is open and its outbox full.
    pub(crate) fn is_full(&self, id: SessionId) -> bool {
        self.open.get(&id).is_some_and(Session::is_full)
    }

    /// Returns how often any outbox became full, or was so no more.
    pub(crate) fn turns(&self) -> u64 {
        self.turns + self.open.values().map(|session| session.outbox.turns()).sum::<u64>()
    }

    /// Returns whether any outbox is full.
    pub(crate) fn any_full(&self) -> bool {
        self.open.values().any(Session::is_full)
    }

    pub(crate) fn wants_report(&self) -> bool {
        let wants = |session: &Session| session.wants_report || session.wants_snapshot;
        self.open.values().any(|session| wants(session) && !session.is_full())
    }
}

impl Session {
    /// Work arrived.
    pub(crate) fn submitted(&mut self) {
        self.wants_report = true;
        self.submits += 1;
    }

    /// Returns whether its router lets too much wait.
    pub(crate) fn is_full(&self) -> bool {
        self.outbox.is_full()
    }

    pub(crate) fn tell(&mut self, message: &FromWorker) -> bool {
        self.outbox.push(proto::session::encode_from_worker(message))
    }
}
