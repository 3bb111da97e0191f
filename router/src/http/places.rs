//! The prompts that are open at once.

use crate::config::RouterLimits;
use std::sync::Arc;
use tokio::sync::watch;

/// Counts the open prompts against a limit that may change. Where it falls below what is open, those prompts go on.
#[derive(Debug)]
pub(crate) struct Places {
    open: watch::Sender<usize>,
    limits: watch::Receiver<RouterLimits>,
}

/// Places of prompts, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    count: usize,
}

impl Places {
    pub(crate) fn new(limits: watch::Receiver<RouterLimits>) -> Arc<Self> {
        Arc::new(Self { open: watch::Sender::new(0), limits })
    }

    /// Returns how many prompts may be open.
    pub(crate) fn most(&self) -> usize {
        self.limits.borrow().placement.requests_max
    }

    /// Returns whether no further prompt may be open.
    pub(crate) fn are_taken(&self) -> bool {
        *self.open.borrow() >= self.most()
    }

    /// Takes places for so many prompts. `None`: there are not as many.
    pub(crate) fn take(self: &Arc<Self>, count: usize) -> Option<Place> {
        let most = self.most();
        let taken = self.open.send_if_modified(|open| {
            let fits = open.saturating_add(count) <= most;
            *open += if fits { count } else { 0 };
            fits
        });
        taken.then(|| Place { places: self.clone(), count })
    }

    /// Waits until no prompt is open.
    pub(crate) async fn until_free(&self) {
        // The sender lives as long as this.
        let _ = self.open.subscribe().wait_for(|&open| open == 0).await;
    }
}

impl Place {
    /// Adds the places of another one.
    pub(crate) fn merge(&mut self, mut other: Self) {
        self.count += std::mem::take(&mut other.count);
    }

    /// Splits one off. `None`: there is none left.
    pub(crate) fn split(&mut self) -> Option<Self> {
        self.count = self.count.checked_sub(1)?;
        Some(Self { places: self.places.clone(), count: 1 })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.open.send_modify(|open| *open -= self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::world::LIMITS;
    use futures_util::FutureExt;
    use placement::PlacementLimits;

    fn of(requests_max: usize) -> RouterLimits {
        RouterLimits { placement: PlacementLimits { requests_max, ..LIMITS.placement }, ..LIMITS }
    }

    #[test]
    fn places_are_as_many_as_the_limit_says_now() {
        let (limits, receiver) = watch::channel(of(3));
        let places = Places::new(receiver);
        let mut held = places.take(2).expect("there are three");
        assert!(places.take(2).is_none() && !places.are_taken());
        held.merge(places.take(1).expect("one is left"));
        assert!(places.are_taken());
        limits.send_replace(of(1));
        let parts: Vec<Place> = std::iter::from_fn(|| held.split()).collect();
        assert_eq!(parts.len(), 3);
        let mut parts = parts.into_iter();
        drop((held, parts.next()));
        assert!(places.are_taken(), "what is open goes on, and counts");
        assert!(places.until_free().now_or_never().is_none());
        drop(parts);
        assert!(places.until_free().now_or_never().is_some(), "all are given back");
        limits.send_replace(of(2));
        assert!(places.take(3).is_none());
        let _all = places.take(2).expect("there are two");
        assert!(places.are_taken() && places.until_free().now_or_never().is_none());
    }
}
