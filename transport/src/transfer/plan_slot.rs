//! Where the plan of a prepared transfer waits for its next post, and its caller for its end.
//!
//! What is deliberately absent: what a plan is, and who carries it out.

use crate::agent::event::{TransferError, TransferReport};
use std::future::poll_fn;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// How far a prepared transfer is, which ends with an `R`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferState<R = Result<TransferReport, TransferError>> {
    /// It was never posted.
    Unposted,
    /// It is posted and has not ended.
    UnderWay,
    /// It ended so when it was last posted; its destination is quiesced.
    Ended(R),
}

/// Where a plan `P` is while nobody carries it out, and the last end `R` of it.
pub(crate) struct PlanSlot<P, R> {
    state: Mutex<State<P, R>>,
    ended: Condvar,
}

struct State<P, R> {
    /// `None`: it is under way.
    plan: Option<P>,
    last: Option<R>,
    /// Who awaits the end, each under a number of its own.
    wakers: Vec<(u64, Waker)>,
    next_waker: u64,
}

impl<P, R: Clone> PlanSlot<P, R> {
    pub(crate) fn new(plan: P) -> Self {
        let state = State { plan: Some(plan), last: None, wakers: Vec::new(), next_waker: 0 };
        Self { state: Mutex::new(state), ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<P, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the plan, to be carried out and put back. `None`: it is under way. Allocates nothing.
    pub(crate) fn take(&self) -> Option<P> {
        self.lock().plan.take()
    }

    /// Puts the plan back: it ended so.
    pub(crate) fn put(&self, plan: P, result: R) {
        self.put_back(plan, Some(result));
    }

    /// Puts a plan back that nobody carried out: its last end is the one before that.
    pub(crate) fn refuse(&self, plan: P) {
        self.put_back(plan, None);
    }

    fn put_back(&self, plan: P, result: Option<R>) {
        let mut state = self.lock();
        state.plan = Some(plan);
        state.last = result.or(state.last.take());
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.ended.notify_all();
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.lock().plan.is_none()
    }

    pub(crate) fn state(&self) -> TransferState<R> {
        self.lock().now()
    }

    /// Waits until it is not under way, for `at_most`. How far it is then.
    pub(crate) fn wait(&self, at_most: Duration) -> TransferState<R> {
        let under_way = |state: &mut State<P, R>| state.plan.is_none();
        let waited = self.ended.wait_timeout_while(self.lock(), at_most, under_way);
        waited.unwrap_or_else(PoisonError::into_inner).0.now()
    }

    /// Ready once it is not under way, with how far it is then.
    pub(crate) async fn ended(&self) -> TransferState<R> {
        let mut awaiting = Awaiting { slot: self, number: None };
        poll_fn(|context| awaiting.poll(context.waker())).await
    }
}

impl<P, R: Clone> State<P, R> {
    /// Has `waker` woken at the end, in place of what was remembered under `number`.
    fn remember(&mut self, number: &mut Option<u64>, waker: &Waker) {
        match self.wakers.iter_mut().find(|(other, _)| Some(*other) == *number) {
            Some((_, own)) => own.clone_from(waker),
            None => {
                let own = *number.get_or_insert(self.next_waker);
                self.next_waker = self.next_waker.max(own + 1);
                self.wakers.push((own, waker.clone()));
            }
        }
    }

    fn now(&self) -> TransferState<R> {
        match (&self.plan, &self.last) {
            (None, _) => TransferState::UnderWay,
            (Some(_), None) => TransferState::Unposted,
            (Some(_), Some(result)) => TransferState::Ended(result.clone()),
        }
    }
}

/// Somebody who awaits the end.
struct Awaiting<'a, P, R: Clone> {
    slot: &'a PlanSlot<P, R>,
    /// Its number, once it had to wait.
    number: Option<u64>,
}

impl<P, R: Clone> Awaiting<'_, P, R> {
    fn poll(&mut self, waker: &Waker) -> Poll<TransferState<R>> {
        let mut state = self.slot.lock();
        match state.now() {
            TransferState::UnderWay => {
                state.remember(&mut self.number, waker);
                Poll::Pending
            }
            now => Poll::Ready(now),
        }
    }
}

impl<P, R: Clone> Drop for Awaiting<'_, P, R> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut state = self.slot.lock();
            let place = state.wakers.iter().position(|&(other, _)| other == number);
            // Dropped without the lock: what it wakes may be dropped with it.
            let waker = place.map(|place| state.wakers.swap_remove(place));
            drop(state);
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn everybody_who_awaits_an_end_hears_of_it() {
        let slot = PlanSlot::new("plan");
        assert_eq!(slot.state(), TransferState::Unposted);
        let plan = slot.take().expect("it waits here");
        assert_eq!(slot.take(), None, "it is under way");
        assert_eq!(slot.wait(Duration::ZERO), TransferState::UnderWay);
        let wakers: [Arc<Woken>; 2] = Default::default();
        let mut waiting = wakers.each_ref().map(|_| Box::pin(slot.ended()));
        for _ in 0..2 {
            for (woken, waiting) in wakers.iter().zip(&mut waiting) {
                let waker = Waker::from(woken.clone());
                assert_eq!(pin!(waiting).poll(&mut Context::from_waker(&waker)), Poll::Pending);
            }
        }
        slot.put(plan, 7);
        for (woken, waiting) in wakers.iter().zip(&mut waiting) {
            assert_eq!(woken.0.load(Ordering::Relaxed), 1, "each is woken, and once");
            let ready = pin!(waiting).poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(ready, Poll::Ready(TransferState::Ended(7)));
        }
    }
}
