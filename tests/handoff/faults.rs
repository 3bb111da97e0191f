//! A thread of a worker that panics, or meets what it cannot handle: the worker ends, and says so for all that it had.

use crate::{Cluster, options};
use std::sync::atomic::Ordering;
use tests::cluster::{Asked, DECODE, PREFILL, prompt};

#[test]
fn a_step_that_panics_ends_its_worker() {
    let mut cluster = Cluster::new(&options(None));
    cluster.prefill_knobs.panics.store(true, Ordering::Relaxed);
    cluster.hand_off(&Asked::new(1, prompt(50, 1), 20));
    cluster.until("the end of the worker", |cluster| cluster.has_ended(PREFILL));
    assert!(!cluster.has_ended(DECODE), "nothing is wrong with the other one");
    cluster.until("the end of its session", |cluster| cluster.is_deaf(PREFILL));
    cluster.until("a failure, by either worker", |cluster| !cluster.failures.is_empty());
}

#[test]
fn a_worker_ends_that_hears_of_a_fault_while_it_has_nothing_to_do() {
    let mut cluster = Cluster::new(&options(None));
    cluster.failure(DECODE).report("mover", "planted");
    assert!(cluster.has_ended(DECODE));
    cluster.until("the end of its session", |cluster| cluster.is_deaf(DECODE));
    assert!(!cluster.is_deaf(PREFILL) && !cluster.has_ended(PREFILL));
}
