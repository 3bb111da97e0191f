//! Who answers for the slabs of the dead, at times that the test says.

use super::*;
use crate::host::shape::Shape;
use crate::host::tests::config;
use crate::host::{HostConfig, over as own};
use crate::rig::{Rig, block, hash, layout, pools, slot};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::channel;
use tempfile::TempDir;
use transport::Failure;

const WEIGHTS: [u8; 32] = [1; 32];
const SLOTS: u32 = 4;
/// More than all slabs have together, but in one test.
const KNOWN_MAX: usize = 64;

struct Host(TempDir);

impl Host {
    fn new() -> Self {
        Self(tempfile::tempdir_in("/dev/shm").expect("there is memory"))
    }

    /// Returns the empty slab of a worker that lives as long as the value.
    fn live(&self, name: &str, weights: [u8; 32]) -> SlabFile {
        let shape = Shape::new(&layout(), weights, SLOTS);
        SlabFile::create(self.0.path(), name, shape.len(), &shape.head(1, 2), |_| ()).expect("it is made")
    }

    /// The same of one that was killed.
    fn dead(&self, name: &str, weights: [u8; 32]) {
        self.live(name, weights).release();
    }

    /// Returns a worker that keeps so many slabs of others.
    fn worker(&self, name: &str, slabs: u64) -> Neighbours {
        let len = Shape::new(&layout(), WEIGHTS, SLOTS).len() as u64;
        let shared = Shared { folder: self.0.path().to_owned(), adopted_bytes: len * slabs };
        Neighbours::new(name.to_owned(), shared, format!("{name}{SUFFIX}"), &layout(), WEIGHTS, KNOWN_MAX, ENTRIES_MAX)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("it is there");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("it is read").file_name()).collect();
        names.sort();
        names.into_iter().map(|name| name.into_string().expect("it is text")).collect()
    }
}

fn counts(live: usize, adopted: usize, foreign: usize) -> Counts {
    Counts { live, adopted, foreign }
}

fn look(worker: &mut Neighbours, now: Instant) -> Counts {
    worker.look(now);
    worker.counts()
}

#[test]
fn a_slab_is_its_owners_until_that_is_dead_and_then_exactly_one_others() {
    let (host, start) = (Host::new(), crate::mover_thread::now());
    let owner = host.live("a.slab", WEIGHTS);
    let mode = fs::metadata(host.0.path().join("a.slab")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o400, "others could write it");
    let (mut one, mut other) = (host.worker("one", 2), host.worker("other", 2));
    for worker in [&mut one, &mut other] {
        assert_eq!(look(worker, start), counts(1, 0, 0));
        assert_eq!(look(worker, start + 2 * ORPHAN_WAIT), counts(1, 0, 0), "it lives");
    }
    let mut owner = owner;
    owner.release();
    drop(owner);
    assert_eq!(look(&mut one, start), counts(0, 1, 0));
    assert_eq!(look(&mut other, start + 2 * ORPHAN_WAIT), counts(1, 0, 0), "somebody answers for it");
    // Whoever answers for it ends without a word, and then with one.
    one.known.get_mut("a.slab").expect("it is read").view.file.release();
    drop(one);
    assert_eq!(look(&mut other, start), counts(0, 1, 0));
    assert_eq!(host.names(), ["a.slab"]);
    drop(other);
    assert_eq!(host.names(), [""; 0]);
}

#[test]
fn slabs_with_more_slots_than_are_remembered_are_not_read() {
    let (host, start) = (Host::new(), crate::mover_thread::now());
    let entries = Shape::new(&layout(), WEIGHTS, SLOTS).entries();
    let mut worker = host.worker("one", 0);
    worker.entries_max = 3 * entries - 1;
    let slabs = ["a.slab", "b.slab", "c.slab"].map(|name| host.live(name, WEIGHTS));
    assert_eq!(look(&mut worker, start), counts(2, 0, 0));
    let [used, budget] = worker.index_bytes();
    assert_eq!((used / entries, budget / (3 * entries - 1)), (2 * Neighbour::ENTRY_BYTES, Neighbour::ENTRY_BYTES));
    drop(slabs);
    let _last = host.live("d.slab", WEIGHTS);
    assert_eq!(look(&mut worker, start), counts(1, 0, 0), "there is room again");
}

#[test]
fn a_worker_that_returns_has_what_its_last_life_held() {
    let (host, start) = (Host::new(), crate::mover_thread::now());
    host.dead("7-1.slab", WEIGHTS);
    let _own = host.live("7-2.slab", WEIGHTS);
    assert_eq!(look(&mut host.worker("7-2", 1), start), counts(0, 1, 0));
    assert_eq!(host.names(), ["7-2.slab"], "what it had adopted went with it");
}

#[test]
fn what_nobody_has_room_for_goes() {
    let (host, start) = (Host::new(), crate::mover_thread::now());
    host.dead("a.slab", WEIGHTS);
    let mut worker = host.worker("one", 1);
    assert_eq!(look(&mut worker, start), counts(0, 1, 0));
    host.dead("b.slab", WEIGHTS);
    let late = start + ORPHAN_WAIT;
    assert_eq!(look(&mut worker, late), counts(1, 1, 0), "it is left to others for a while");
    assert_eq!(look(&mut worker, late + ORPHAN_WAIT), counts(0, 1, 0));
    assert_eq!(host.names(), ["b.slab"], "the one that came last is kept");
    let idle = late + ORPHAN_WAIT + IDLE_MAX;
    assert_eq!(look(&mut worker, idle - Duration::from_millis(1)), counts(0, 1, 0));
    assert_eq!(look(&mut worker, idle), counts(0, 0, 0), "nobody read it");
    assert_eq!(host.names(), [""; 0]);

    host.dead("c.slab", WEIGHTS);
    let mut none = host.worker("none", 0);
    assert_eq!(look(&mut none, start), counts(1, 0, 0));
    assert_eq!(look(&mut none, late), counts(0, 0, 0));
    assert_eq!(host.names(), [""; 0]);
}

#[test]
fn what_is_foreign_is_counted_and_goes_when_it_is_a_dead_slab() {
    let (host, start) = (Host::new(), crate::mover_thread::now());
    host.dead("dead.slab", [2; 32]);
    let _live = host.live("live.slab", [2; 32]);
    fs::write(host.0.path().join("text.slab"), vec![b'x'; 2 * HEAD]).expect("it is written");
    fs::write(host.0.path().join("short.slab"), "x").expect("it is written");
    fs::write(host.0.path().join("other"), "x").expect("it is written");
    let mut worker = host.worker("one", 1);
    assert_eq!(look(&mut worker, start), counts(0, 0, 4));
    assert_eq!(look(&mut worker, start + ORPHAN_WAIT / 2), counts(0, 0, 4));
    assert_eq!(host.names().len(), 5, "its own kind may adopt it");
    look(&mut worker, start + ORPHAN_WAIT);
    assert_eq!(look(&mut worker, start + ORPHAN_WAIT), counts(0, 0, 3));
    assert_eq!(host.names(), ["live.slab", "other", "short.slab", "text.slab"]);
}

#[test]
fn a_folder_that_is_not_in_memory_is_refused() {
    let made = SlabFile::create(std::path::Path::new("/proc"), "a.slab", HEAD, &[], |_| ());
    let error = made.map(|_| ()).expect_err("it is no tmpfs").to_string();
    assert!(error.contains("/proc is no tmpfs"), "{error}");
}

/// Whoever adopted it need not read it itself.
#[test]
fn a_dead_slab_stays_as_long_as_anybody_reads_it() {
    let (host, start) = (Host::new(), crate::mover_thread::now());
    host.dead("a.slab", WEIGHTS);
    let (mut one, mut other) = (host.worker("one", 1), host.worker("other", 1));
    assert_eq!(look(&mut one, start), counts(0, 1, 0));
    assert_eq!(look(&mut other, start), counts(1, 0, 0));
    let mut read = |at: Instant| {
        // The system's clock of files turns a few hundred times a second.
        std::thread::sleep(Duration::from_millis(20));
        other.known.get_mut("a.slab").expect("it is read").was_read(at);
    };
    let idle = start + IDLE_MAX;
    read(idle);
    assert_eq!(look(&mut one, idle), counts(0, 1, 0), "somebody reads it");
    read(idle + IDLE_MAX / 2);
    assert_eq!(look(&mut one, idle + IDLE_MAX / 2), counts(0, 1, 0));
    assert_eq!(look(&mut one, idle + IDLE_MAX), counts(0, 1, 0), "somebody read it since");
    assert_eq!(look(&mut one, idle + 2 * IDLE_MAX), counts(0, 0, 0), "nobody reads it any more");
}

#[test]
fn what_was_not_remembered_is_told_again() {
    let (host, start) = (Host::new(), crate::mover_thread::now());
    let shared = Shared { folder: host.0.path().to_owned(), adopted_bytes: 0 };
    let config = HostConfig { weights: WEIGHTS, shared: Some(shared.clone()), ..config() };
    let (pools, lent) = pools();
    let (sink, ends) = channel();
    let (parts, _memory) =
        own(&config, &layout(), lent, &Failure::new(), move |end| drop(sink.send(end))).expect("it opens");
    let mut owner = Rig::new(parts, ends, pools);
    (0..3).for_each(|name| assert!(owner.write(slot(0, name), block(0, 0), hash(name as u8))));
    for (known_max, again) in [(1, 3), (1 << 20, 0)] {
        let mut worker = Neighbours::new(
            "one".to_owned(),
            shared.clone(),
            "one.slab".to_owned(),
            &layout(),
            WEIGHTS,
            known_max,
            ENTRIES_MAX,
        );
        let mut learned = |at| worker.look(at).0.learned.len();
        assert_eq!(learned(start), 3);
        assert_eq!(learned(start + RETELL_EVERY / 2), 0, "it is told once");
        assert_eq!(learned(start + RETELL_EVERY), again, "{known_max} are remembered");
        assert_eq!(learned(start + RETELL_EVERY), 0);
    }
}
