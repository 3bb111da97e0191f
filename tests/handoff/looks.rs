//! However much comes in, a step that has ended is seen, and the next one begins.

use crate::{Cluster, finish, options};
use domain::session::Assignment;
use proto::admin::WorkerAsk;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use tests::cluster::{Asked, DECODE, prompt};

/// Events that come as soon as a step runs.
const EVENTS: u64 = 1000;
/// The look at the device at which that step has ended.
const LOOKS: u64 = 3;

fn count(handled: &AtomicU64) {
    handled.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn the_device_is_looked_at_between_events() {
    let mut cluster = Cluster::new(&options(None));
    let (input, knobs) = (cluster.input(DECODE), Arc::downgrade(&cluster.decode_knobs));
    let (handled, (counts, counted)) = (Arc::<AtomicU64>::default(), channel());
    let crowd = move || {
        let _ = counts.send(handled.load(Ordering::Relaxed));
        for _ in 0..EVENTS {
            let handled = handled.clone();
            assert!(input.ask(WorkerAsk { body: None }, move |_| count(&handled)), "there is room");
        }
        knobs.upgrade().expect("the device is there").looks.store(LOOKS, Ordering::Relaxed);
    };
    *cluster.decode_knobs.submitted.lock().expect("nobody panicked") = Some(Box::new(crowd));
    let request = Asked::new(1, prompt(9, 1), 8);
    cluster.submit(DECODE, &request, Assignment::Whole);
    finish(&mut cluster, &[request]);
    let counts: Vec<u64> = counted.try_iter().collect();
    assert_eq!(counts.len(), 8, "a step for each token");
    // A look comes behind each event, and before each turn.
    assert!(counts.windows(2).all(|pair| pair[1] - pair[0] <= LOOKS), "{counts:?}");
}
