//! The metrics of a tier's files, as handles that are looked up once.

use domain::WorkerId;
use kv_manager::tiers::Tier;
use telemetry::metrics::{self as declared, Gauge};
use transport::{FileStatus, FileWay};

/// How the files of a tier are moved.
pub(crate) struct FileMeters([Gauge; 5]);

impl FileMeters {
    pub(crate) fn new(worker: WorkerId, tier: Tier) -> Self {
        let states = ["io_uring", "threads", "buffered", "unregistered", "broken"];
        Self(states.map(|state| declared::tier_mover(worker, tier.name(), state)))
    }

    pub(crate) fn show(&self, status: &FileStatus) {
        for (gauge, so) in self.0.iter().zip(states(status)) {
            gauge.set(f64::from(u8::from(so)));
        }
    }
}

/// Returns what is so of a mover, in the order of the gauges.
fn states(status: &FileStatus) -> [bool; 5] {
    let FileStatus { way, unregistered, buffered, broken, .. } = status;
    [
        *way == FileWay::IoUring,
        *way == FileWay::Threads,
        buffered.iter().any(Option::is_some),
        unregistered.is_some(),
        broken.is_some(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_so_of_a_mover_is_told_by_itself() {
        let way = FileWay::IoUring;
        let good = FileStatus { way, passed_over: Vec::new(), unregistered: None, buffered: vec![None], broken: None };
        let why = || Some("for a reason".to_owned());
        for (status, expected) in [
            (good.clone(), [true, false, false, false, false]),
            (FileStatus { way: FileWay::Threads, ..good.clone() }, [false, true, false, false, false]),
            (FileStatus { buffered: vec![None, why()], ..good.clone() }, [true, false, true, false, false]),
            (FileStatus { unregistered: why(), ..good.clone() }, [true, false, false, true, false]),
            (FileStatus { broken: why(), ..good }, [true, false, false, false, true]),
        ] {
            assert_eq!(states(&status), expected, "{status:?}");
        }
    }
}
