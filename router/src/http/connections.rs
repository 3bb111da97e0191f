//! Which connections of a listener are open, and which of them is closed to make room for a new one.
//!
//! A connection waits while no request of it is open: it is idle, or its request is not complete, or its answer is
//! only being written. When all places are taken, the connection that has waited longest is closed. So clients that
//! hold connections without using them never keep out later ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The connections of a listener.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    state: Mutex<State>,
    /// Told when a place may be had.
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Counts connections and turns to wait.
    next: u64,
    /// All that are open, by number.
    open: BTreeMap<u64, Entry>,
    /// Those that wait, by turn; the first has waited longest.
    waiting: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Entry {
    /// Since when it waits, or waited last.
    turn: u64,
    /// Requests of it that are open.
    requests: usize,
    /// Told when it is to be closed.
    close: Arc<Notify>,
}

/// An open connection; it is over when this is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    all: Arc<Connections>,
    number: u64,
    close: Arc<Notify>,
}

/// An open request of a connection, which is not closed meanwhile.
#[derive(Debug)]
pub(crate) struct Admitted(Arc<Connection>);

impl Connections {
    /// Makes places for at most `most` connections.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a place for a new connection. Where there is none, closes the connection that has waited longest;
    /// where none waits, waits until one does. One task at a time may ask.
    pub(super) async fn enter(self: &Arc<Self>) -> Arc<Connection> {
        loop {
            if let Some(connection) = self.try_enter() {
                return connection;
            }
            self.freed.notified().await;
        }
    }

    fn try_enter(self: &Arc<Self>) -> Option<Arc<Connection>> {
        let mut state = self.state();
        if state.open.len() >= self.most {
            let (_, oldest) = state.waiting.pop_first()?;
            let entry = state.open.remove(&oldest).expect("who waits is open");
            entry.close.notify_one();
        }
        let number = state.next();
        let close = Arc::new(Notify::new());
        state.open.insert(number, Entry { turn: number, requests: 0, close: close.clone() });
        state.waiting.insert(number, number);
        Some(Arc::new(Connection { all: self.clone(), number, close }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Lets connection `number` wait from now on, if it is open and has no open request.
    fn wait(&mut self, number: u64) {
        let turn = self.next();
        let Some(entry) = self.open.get_mut(&number).filter(|entry| entry.requests == 0) else { return };
        self.waiting.remove(&std::mem::replace(&mut entry.turn, turn));
        self.waiting.insert(turn, number);
    }
}

impl Connection {
    /// Waits until the connection has to be closed to make room.
    pub(super) async fn must_close(&self) {
        self.close.notified().await;
    }

    /// Notes that a request was answered: the connection waits again.
    pub(super) fn answered(&self) {
        self.all.state().wait(self.number);
    }

    /// Says that a request is complete and open, until the result is dropped.
    pub(crate) fn admit(self: &Arc<Self>) -> Admitted {
        let mut state = self.all.state();
        if let Some(entry) = state.open.get_mut(&self.number) {
            entry.requests += 1;
            let turn = entry.turn;
            state.waiting.remove(&turn);
        }
        drop(state);
        Admitted(self.clone())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.all.state();
        if let Some(entry) = state.open.remove(&self.number) {
            state.waiting.remove(&entry.turn);
        }
        drop(state);
        self.all.freed.notify_one();
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let Connection { all, number, .. } = &*self.0;
        let mut state = all.state();
        if let Some(entry) = state.open.get_mut(number) {
            entry.requests -= 1;
        }
        state.wait(*number);
        drop(state);
        all.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// Returns which of these have to be closed. Each is told once.
    fn closed(connections: &[&Arc<Connection>]) -> Vec<usize> {
        (0..connections.len()).filter(|&at| connections[at].must_close().now_or_never().is_some()).collect()
    }

    fn enter(all: &Arc<Connections>) -> Option<Arc<Connection>> {
        all.enter().now_or_never()
    }

    #[test]
    fn the_one_that_has_waited_longest_is_closed() {
        let all = Connections::new(3);
        let [a, b, c] = [(); 3].map(|()| enter(&all).expect("there is room"));
        assert_eq!(closed(&[&a, &b, &c]), [0usize; 0]);
        // An answer begins the wait anew.
        a.answered();
        let d = enter(&all).expect("somebody waits");
        assert_eq!(closed(&[&a, &b, &c, &d]), [1]);
        // The end of one that had to be closed frees no second place.
        drop(b);
        let e = enter(&all).expect("somebody waits");
        assert_eq!(closed(&[&a, &c, &d, &e]), [1]);
        drop(c);
        // A place that is free is taken first.
        drop(e);
        let f = enter(&all).expect("there is room");
        assert_eq!(closed(&[&a, &d, &f]), [0usize; 0]);
    }

    #[test]
    fn an_open_request_keeps_its_connection() {
        let all = Connections::new(2);
        let [a, b] = [(); 2].map(|()| enter(&all).expect("there is room"));
        // A request of two prompts, one of which ends.
        let [first, second] = [a.admit(), a.admit()];
        drop(first);
        a.answered();
        let c = enter(&all).expect("b waits");
        assert_eq!(closed(&[&a, &b, &c]), [1]);
        let of_c = c.admit();
        assert!(enter(&all).is_none(), "nobody waits");
        drop(second);
        let d = enter(&all).expect("a waits again");
        assert_eq!(closed(&[&a, &c, &d]), [0]);
        // What a closed connection still does is of no effect.
        a.answered();
        drop(a.admit());
        drop(a);
        let e = enter(&all).expect("d waits");
        assert_eq!(closed(&[&c, &d, &e]), [1]);
        drop(of_c);
    }

    #[tokio::test]
    async fn who_finds_nobody_waiting_enters_when_a_request_ends_or_a_connection_does() {
        let all = Connections::new(1);
        let a = enter(&all).expect("there is room");
        let request = a.admit();
        let entering = tokio::spawn({
            let all = all.clone();
            async move { all.enter().await }
        });
        tokio::task::yield_now().await;
        assert!(!entering.is_finished());
        drop(request);
        let b = entering.await.expect("it enters");
        assert_eq!(closed(&[&a, &b]), [0]);
    }
}
