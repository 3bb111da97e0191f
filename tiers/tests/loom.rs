//! What workers of a host share without a lock, in every order of loads and stores that memory allows: a slot of a
//! slab that its owner writes while another process reads it. That loom would find a record of two halves is shown
//! by leaving out what prevents it.
//!
//! The file is that of the crate; the record is two numbers here.

#[path = "../src/host/generation.rs"]
mod generation;

/// What `generation` is made of, but for the fence that a test leaves out.
mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    use std::cell::Cell;

    thread_local! {
        /// All threads of a model are run by the one that tries it.
        pub(crate) static LEFT_OUT: Cell<Option<Ordering>> = const { Cell::new(None) };
    }

    pub(crate) fn fence(order: Ordering) {
        if LEFT_OUT.get() != Some(order) {
            loom::sync::atomic::fence(order);
        }
    }
}

use atomic::{AtomicU64, LEFT_OUT, Ordering};
use loom::sync::Arc;
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Records that are written, one after another.
const RECORDS: u64 = 2;

/// Record `n` says `n` twice, and is what the slot holds in generation `2 n`.
fn slot_that_is_read_while_it_changes() {
    let slot = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
    let owned = slot.clone();
    let owner = thread::spawn(move || {
        let [number, first, second] = &*owned;
        for record in 1..=RECORDS {
            generation::change(number, || {
                first.store(record, Ordering::Relaxed);
                second.store(record, Ordering::Relaxed);
            });
        }
    });
    let [number, first, second] = &*slot;
    let seen = generation::now(number);
    let mut record = (0, 0);
    let whole = generation::look(number, seen, || {
        record = (first.load(Ordering::Relaxed), second.load(Ordering::Relaxed));
    });
    assert!(!whole || record == (seen / 2, seen / 2), "in generation {seen} the slot had {record:?}");
    owner.join().expect("the owner ends");
    assert_eq!(generation::now(number), 2 * RECORDS);
    assert!(generation::look(number, 2 * RECORDS, || {}), "nobody writes any more");
}

#[test]
fn nobody_takes_a_record_that_changed_meanwhile() {
    loom::model(slot_that_is_read_while_it_changes);
}

#[test]
fn without_its_fences_a_torn_record_would_be_found() {
    for left_out in [Ordering::Release, Ordering::Acquire] {
        LEFT_OUT.set(Some(left_out));
        let found = catch_unwind(AssertUnwindSafe(|| loom::model(slot_that_is_read_while_it_changes)));
        LEFT_OUT.set(None);
        assert!(found.is_err(), "{left_out:?} was left out, and nothing was found");
    }
}
