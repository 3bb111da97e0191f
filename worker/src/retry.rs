//! A step that failed as a whole is computed again in parts, until the sequence at fault is alone in a part. Only that
//! sequence fails. The others are computed as if nothing had happened.

use domain::planted_bugs::{self, Bug};
use scheduler::Work;

/// Parts of a step that may fail in addition to those on the way to one sequence at fault. After them all remaining
/// sequences fail, since the device fails every step, or so many that the others have waited long enough. In a step of
/// 256 sequences it is enough for three at fault.
const FAILURES_MORE: u32 = 16;

/// The parts of a failed step that are still to be computed.
pub(crate) struct Retry {
    /// The parts, the next one last.
    parts: Vec<Vec<Work>>,
    /// How many more parts may fail.
    failures: u32,
}

impl Retry {
    /// Prepares for a failed step with so many sequences. The step itself is its first part that fails.
    pub(crate) fn new(sequences: usize) -> Self {
        let halvings = sequences.next_power_of_two().ilog2();
        Self { parts: Vec::new(), failures: halvings + 1 + FAILURES_MORE }
    }

    /// Halves a part that failed, if it has more than one sequence. Returns the sequences that fail: the one that was
    /// alone in the part, or all that are left if too many parts failed or it is `hopeless`.
    pub(crate) fn failed(&mut self, mut part: Vec<Work>, hopeless: bool) -> Vec<Work> {
        if hopeless || self.failures == 0 || planted_bugs::is(Bug::InnocentsFail) {
            part.extend(self.parts.drain(..).rev().flatten());
            return part;
        }
        self.failures -= 1;
        if part.len() > 1 {
            let second = part.split_off(part.len() / 2);
            self.parts.extend([second, std::mem::take(&mut part)]);
        }
        part
    }

    /// Adds a step that was in flight behind the failed one, and failed since that did. It is computed after all parts.
    pub(crate) fn follow(&mut self, work: Vec<Work>) {
        self.parts.insert(0, work);
    }

    /// Returns the part that is to be computed next.
    pub(crate) fn next(&mut self) -> Option<Vec<Work>> {
        self.parts.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{Choice, Epoch, RequestId, SeqKey};

    /// Sequences of a step, by number.
    fn work(numbers: std::ops::Range<u64>) -> Vec<Work> {
        let key = |number| SeqKey { request: RequestId(number), epoch: Epoch(1), choice: Choice(0) };
        numbers.map(|number| Work { key: key(number), start: 0, count: 1, samples: 1 }).collect()
    }

    fn numbers(work: &[Work]) -> Vec<u64> {
        work.iter().map(|work| work.key.request.0).collect()
    }

    /// A step of `count` sequences on a device that fails each step with one of `culprits`: which fail, which are
    /// computed, and how many steps it takes after the first.
    fn run(count: u64, culprits: &[u64]) -> (Vec<u64>, Vec<u64>, u32) {
        let (mut failed, mut computed, mut steps) = (Vec::new(), Vec::new(), 0);
        let mut retry = Retry::new(count as usize);
        failed.extend(numbers(&retry.failed(work(0..count), false)));
        while let Some(part) = retry.next() {
            steps += 1;
            if numbers(&part).iter().any(|number| culprits.contains(number)) {
                failed.extend(numbers(&retry.failed(part, false)));
            } else {
                computed.extend(numbers(&part));
            }
        }
        failed.sort_unstable();
        (failed, computed, steps)
    }

    #[test]
    fn whoever_is_at_fault_fails_alone() {
        for count in (1..20).chain([255, 256]) {
            for culprit in 0..count {
                let others: Vec<u64> = (0..count).filter(|&number| number != culprit).collect();
                let (failed, computed, steps) = run(count, &[culprit]);
                assert_eq!((failed, computed), (vec![culprit], others), "{culprit} of {count}");
                assert!(steps <= 2 * count.next_power_of_two().ilog2(), "{steps} for {count}");
            }
        }
        for culprits in [[0, 128, 255], [0, 1, 2], [3, 77, 200]] {
            let (failed, computed, _) = run(256, &culprits);
            assert_eq!((failed, computed.len()), (culprits.to_vec(), 253));
        }
        // A step that fails once fails nobody.
        assert_eq!(run(7, &[]), (vec![], (0..7).collect(), 2));
    }

    #[test]
    fn the_step_behind_is_computed_last_and_whole() {
        let mut retry = Retry::new(4);
        assert_eq!(retry.failed(work(0..4), false), []);
        retry.follow(work(0..4));
        let parts: Vec<_> = std::iter::from_fn(|| retry.next()).map(|part| numbers(&part)).collect();
        assert_eq!(parts, [vec![0, 1], vec![2, 3], vec![0, 1, 2, 3]]);
    }

    #[test]
    fn a_device_that_fails_all_is_not_tried_for_ever() {
        for count in [1, 2, 3, 64, 1000, 100_000] {
            let all: Vec<u64> = (0..count).collect();
            let (failed, computed, steps) = run(count, &all);
            assert_eq!((failed, computed), (all, vec![]));
            assert!(steps <= count.next_power_of_two().ilog2() + 1 + FAILURES_MORE, "{steps} for {count}");
        }
        let mut retry = Retry::new(4);
        assert_eq!(retry.failed(work(0..4), false), []);
        let part = retry.next().expect("there are halves");
        assert_eq!(numbers(&retry.failed(part, true)), [0, 1, 2, 3], "the device is lost");
        assert_eq!(retry.next(), None);
    }
}
