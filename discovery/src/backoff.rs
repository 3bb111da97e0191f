//! Pauses between attempts at something that fails.

use std::time::Duration;

/// The first pause at most; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest pause.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Pauses that grow with each failure. Chance shortens them by up to half, so that many processes that lost the same
/// server do not return at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// Makes pauses that begin with the shortest.
    pub(crate) fn new() -> Self {
        Self { next: PAUSE_MIN }
    }

    /// Returns the next pause.
    pub(crate) fn pause(&mut self) -> Duration {
        let mut chance = [0; 4];
        // Without chance, pauses are short.
        let _ = getrandom::fill(&mut chance);
        self.pause_by(u32::from_ne_bytes(chance))
    }

    /// Returns the next pause. `chance` is any number, drawn at random.
    fn pause_by(&mut self, chance: u32) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(PAUSE_MAX);
        whole / 2 + (whole / 2).mul_f64(f64::from(chance) / f64::from(u32::MAX))
    }

    /// Begins with the shortest pause again: an attempt has succeeded.
    pub(crate) fn reset(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ_by_half() {
        let (mut short, mut long) = (Backoff::new(), Backoff::new());
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            let [shortest, longest] = [short.pause_by(0), long.pause_by(u32::MAX)];
            assert_eq!(shortest * 2, longest);
            assert!(longest >= last && longest <= PAUSE_MAX);
            last = longest;
        }
        assert_eq!(last, PAUSE_MAX);
        long.reset();
        assert_eq!(long.pause_by(u32::MAX), PAUSE_MIN);
    }
}
