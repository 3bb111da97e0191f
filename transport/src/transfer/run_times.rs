//! When the parts of a transfer came: of each gate, such as a layer, one.
//!
//! What is deliberately absent: what a gate stands for. Its caller knows.

use std::time::Duration;

/// Parts of a transfer whose times are kept. Where there are more, neighbours count as one.
pub const RUN_TIMES_MAX: usize = 64;

/// When a part of a transfer came. All times are since its post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTime {
    /// The gate of its first bytes; 0: they had none.
    pub first: u64,
    /// The gate of its last bytes.
    pub last: u64,
    /// When the first bytes began to come.
    pub begun: Duration,
    /// When the last ones were there.
    pub ended: Duration,
    /// Bytes that came over the lane: fewer than were read where KV came encoded.
    pub bytes: u64,
}

/// The times of a transfer's parts, in the order of their gates.
#[derive(Debug)]
pub(crate) struct RunTimes(Vec<RunTime>);

impl RunTimes {
    /// Returns room for all that are kept, so that nothing is allocated while bytes come.
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(RUN_TIMES_MAX))
    }

    /// Notes that bytes behind a gate begin to come.
    pub(crate) fn begun(&mut self, gate: u64, at: Duration) {
        self.note(RunTime { first: gate, last: gate, begun: at, ended: at, bytes: 0 });
    }

    /// Notes that so many bytes behind a gate are there.
    pub(crate) fn read(&mut self, gate: u64, at: Duration, bytes: u64) {
        self.note(RunTime { first: gate, last: gate, begun: at, ended: at, bytes });
    }

    /// Returns all of them.
    pub(crate) fn into_list(self) -> Vec<RunTime> {
        self.0
    }

    fn note(&mut self, new: RunTime) {
        // The part that begins with the last gate that is not behind the new one.
        let after = self.0.partition_point(|run| run.first <= new.first);
        if let Some(run) = after.checked_sub(1).map(|at| &mut self.0[at]).filter(|run| new.first <= run.last) {
            return run.absorb(&new);
        }
        if self.0.len() < RUN_TIMES_MAX {
            return self.0.insert(after, new);
        }
        self.coarsen();
        self.note(new);
    }

    /// Makes pairs of neighbours one.
    fn coarsen(&mut self) {
        let pairs = self.0.len().div_ceil(2);
        for at in 0..pairs {
            let mut run = self.0[2 * at];
            if let Some(next) = self.0.get(2 * at + 1) {
                run.absorb(next);
            }
            self.0[at] = run;
        }
        self.0.truncate(pairs);
    }
}

impl RunTime {
    fn absorb(&mut self, other: &Self) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.begun = self.begun.min(other.begun);
        self.ended = self.ended.max(other.ended);
        self.bytes += other.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn each_gate_has_its_time_whatever_the_order() {
        let mut times = RunTimes::new();
        times.begun(7, at(1));
        times.begun(5, at(2));
        times.read(7, at(3), 30);
        times.read(5, at(4), 10);
        // Another rail brings more of the same.
        times.begun(7, at(5));
        times.read(7, at(6), 3);
        let run =
            |gate, begun, ended, bytes| RunTime { first: gate, last: gate, begun: at(begun), ended: at(ended), bytes };
        assert_eq!(times.into_list(), [run(5, 2, 4, 10), run(7, 1, 6, 33)]);
    }

    #[test]
    fn however_many_gates_there_are_few_are_kept_and_no_byte_is_lost() {
        let mut times = RunTimes::new();
        let gates = 10 * RUN_TIMES_MAX as u64;
        for gate in 1..=gates {
            times.begun(gate, at(gate));
            times.read(gate, at(gate + 1), 2);
        }
        let list = times.into_list();
        assert!(list.len() <= RUN_TIMES_MAX && list.capacity() == RUN_TIMES_MAX, "{} are kept", list.len());
        assert_eq!(list.iter().map(|run| run.bytes).sum::<u64>(), 2 * gates);
        assert_eq!((list[0].first, list[0].begun, list[list.len() - 1].last), (1, at(1), gates));
        assert!(list.windows(2).all(|pair| pair[0].last < pair[1].first));
    }
}
