//! Workers of a host that read each other's slabs, while they are written and when their writers were killed.

use super::*;
use crate::host::neighbour::{Found, Neighbour};
use crate::host::shape::{CHANGES_AT, ENTRY, HEAD, SLOTS_AT};
use crate::host::slab::Slab;
use crate::host::tests::{PLACES_AT, config};
use crate::host::view::View;
use crate::host::{file::SlabFile, over as own};
use crate::rig::{Rig, TENANT, block, hash, layout, pools, slot};
use domain::{BlockHash, GroupId, Incarnation};
use kv_manager::tiers::{TierRead, TierWrite};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use tempfile::TempDir;
use transport::Failure;

fn host() -> TempDir {
    tempfile::tempdir_in("/dev/shm").expect("there is memory")
}

fn shared(folder: &Path, worker: u32) -> HostConfig {
    let shared = Shared { folder: folder.to_owned(), adopted_bytes: 4 << 20 };
    HostConfig { worker: WorkerId(worker), life: Incarnation(1), shared: Some(shared), ..config() }
}

/// Returns a worker's own slab.
fn owner(folder: &Path, worker: u32) -> (Rig, Arc<dyn Memory>) {
    let (sink, ends) = channel();
    let (pools, lent) = pools();
    let (parts, memory) =
        own(&shared(folder, worker), &layout(), lent, &Failure::new(), move |end| drop(sink.send(end)))
            .expect("it opens");
    (Rig::new(parts, ends, pools), memory)
}

/// What a worker without a slab reads of others.
struct Others {
    rig: Rig,
    known: BTreeSet<(GroupId, BlockHash)>,
}

impl Others {
    fn of(folder: &Path) -> Self {
        let (sink, ends) = channel();
        let (pools, lent) = pools();
        let (config, sink) = (shared(folder, 99), Box::new(move |end| drop(sink.send(end))));
        let shared = config.shared.clone().expect("it is shared");
        let parts = over(&config, &shared, &layout(), lent, 16, &Failure::new(), sink).expect("it opens");
        Self { rig: Rig::new(parts, ends, pools), known: BTreeSet::new() }
    }

    fn note(&mut self, end: TierEvent) -> Option<ReadEnd> {
        match end {
            TierEvent::Learned { records, .. } => self.known.extend(records),
            TierEvent::Forgotten { records, .. } => self.known.retain(|known| !records.contains(known)),
            TierEvent::Read { end, .. } => return Some(end),
            end => panic!("{end:?}"),
        }
        None
    }

    /// Waits until just these are known to be there.
    fn until(&mut self, group: u16, names: &[u8]) {
        let expected: BTreeSet<_> = names.iter().map(|&name| (GroupId(group), hash(name))).collect();
        while self.known != expected {
            let end = self.rig.ended();
            assert_eq!(self.note(end), None);
        }
    }

    /// Reads into the second block of the group.
    fn read(&mut self, group: u16, hash: BlockHash) -> ReadEnd {
        self.rig.ask(slot(group, 0), block(group, 1), hash, 0);
        loop {
            let end = self.rig.ended();
            if let Some(end) = self.note(end) {
                // As the core does.
                if end != ReadEnd::Good {
                    self.known.remove(&(GroupId(group), hash));
                }
                return end;
            }
        }
    }

    fn bytes(&self, group: u16) -> &[u8] {
        self.rig.bytes(block(group, 1))
    }
}

fn names(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("it is there").count()
}

/// Returns a word of somebody's slab, to meddle with.
fn word(memory: &dyn Memory, at: usize) -> &AtomicU64 {
    assert!(at + 8 <= memory.len());
    // SAFETY: it is inside and aligned.
    unsafe { AtomicU64::from_ptr(crate::records::host(memory).add(at).cast()) }
}

#[test]
fn what_others_hold_is_learned_read_and_forgotten() {
    let folder = host();
    let mut others = Others::of(folder.path());
    let ((mut first, memory), (mut second, _)) = (owner(folder.path(), 1), owner(folder.path(), 2));
    let put = |rig: &mut Rig, at, name: u8| {
        rig.bytes(block(1, 0)).fill(name);
        assert!(rig.write(slot(1, at), block(1, 0), hash(name)));
    };
    put(&mut first, 0, 1);
    put(&mut first, 3, 2);
    put(&mut second, 0, 3);
    others.until(1, &[1, 2, 3]);
    for name in 1..=3 {
        assert_eq!(others.read(1, hash(name)), ReadEnd::Good);
        assert!(others.bytes(1).iter().all(|&byte| byte == name));
    }
    assert_eq!(others.read(1, hash(4)), ReadEnd::Missing);
    assert_eq!(others.read(0, hash(1)), ReadEnd::Missing, "it is of another group");
    // One that both have is there as long as one of them has it.
    put(&mut second, 1, 2);
    put(&mut first, 3, 4);
    others.until(1, &[1, 2, 3, 4]);
    assert_eq!(others.read(1, hash(2)), ReadEnd::Good);

    // While a slot changes nothing is read from it, nor a record that is wrong.
    word(&*memory, HEAD + ENTRY * slots(&*memory)).fetch_add(1, Ordering::Release);
    assert_eq!(others.read(1, hash(1)), ReadEnd::Missing);
    let record = word(&*memory, PLACES_AT + 16).load(Ordering::Relaxed)
        + 3 * word(&*memory, PLACES_AT + 24).load(Ordering::Relaxed);
    word(&*memory, record as usize + 8).fetch_xor(16, Ordering::Release);
    assert_eq!(others.read(1, hash(4)), ReadEnd::Wrong);
    assert_eq!(others.read(1, hash(4)), ReadEnd::Missing, "it is not looked for where it was wrong");

    // Who ends takes its slab along.
    drop((first, memory));
    others.until(1, &[2, 3]);
    drop(second);
    others.until(1, &[]);
    assert_eq!(names(folder.path()), 0);
}

fn slots(memory: &dyn Memory) -> usize {
    word(memory, SLOTS_AT).load(Ordering::Relaxed) as usize
}

/// Where the other process of the test below has its slab.
const OTHER_PROCESS: &str = "WORKER_TEST_SLAB_FOLDER";
/// The record that it has written halfway when it is killed.
const TORN: u8 = 200;

/// Not a test of its own: what the other process of the test below does.
#[test]
fn the_other_process() {
    #[expect(clippy::disallowed_methods, reason = "the test says by it which process this is")]
    let Some(folder) = std::env::var_os(OTHER_PROCESS) else { return };
    let (mut rig, memory) = owner(Path::new(&folder), 1);
    let mut put = |at: u32, name: u8| {
        rig.bytes(block(0, 0)).fill(name);
        assert!(rig.write(slot(0, at), block(0, 0), hash(name)));
    };
    put(0, TORN);
    (1..4).for_each(|at| put(at, at as u8));
    // As far as a write comes that does not end.
    word(&*memory, HEAD).fetch_add(1, Ordering::Relaxed);
    let record = word(&*memory, PLACES_AT).load(Ordering::Relaxed) as usize;
    word(&*memory, record).store(0, Ordering::Relaxed);
    word(&*memory, CHANGES_AT).fetch_add(1, Ordering::Release);
    println!("\nready");
    // And whatever it is doing when it is killed.
    loop {
        (4..7).for_each(|at| put(at, at as u8));
    }
}

#[test]
fn what_a_killed_worker_wrote_is_read_and_what_it_was_writing_is_not() {
    let folder = host();
    let program = std::env::current_exe().expect("a test has a program");
    let mut killed = Command::new(program)
        .args(["--exact", "host::reader::tests::the_other_process", "--nocapture"])
        .env(OTHER_PROCESS, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(killed.stdout.take().expect("it is piped")).lines();
    lines.map_while(Result::ok).find(|line| line == "ready").expect("it gets ready");
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    assert_eq!(names(folder.path()), 1, "its slab is there still");

    let mut others = Others::of(folder.path());
    while !(1..4).all(|name| others.known.contains(&(GroupId(0), hash(name)))) {
        let end = others.rig.ended();
        assert_eq!(others.note(end), None);
    }
    for name in 1..7 {
        let end = others.read(0, hash(name));
        assert!(end == ReadEnd::Good || (name > 3 && end == ReadEnd::Missing), "record {name}: {end:?}");
        assert!(end == ReadEnd::Missing || others.bytes(0).iter().all(|&byte| byte == name), "record {name}");
    }
    assert!(!others.known.contains(&(GroupId(0), hash(TORN))), "what was being written is found");
    assert_eq!(others.read(0, hash(TORN)), ReadEnd::Missing);
    drop(others);
    assert_eq!(names(folder.path()), 0, "who adopted it removed it");
}

/// Changes of the test below.
const CHANGES: u32 = 3000;

/// Returns the next of a series of numbers that look random.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

#[test]
fn what_is_read_while_it_is_written_is_right_or_not_read() {
    let mut random = [0; 8];
    getrandom::fill(&mut random).expect("there is randomness");
    let seed = u64::from_le_bytes(random);
    println!("seed {seed}");
    let (folder, layout) = (host(), layout());
    let (ours, theirs) = (pools(), pools());
    let mut slab = Slab::new(&shared(folder.path(), 1), &layout, &[]).expect("it opens");
    let path = folder.path().join(shared(folder.path(), 1).file_name());
    let view = View::new(SlabFile::open(path, HEAD).expect("it is there"), &layout, config().weights);
    let mut neighbour = Neighbour::new(view.map_err(|(_, error)| error).expect("it is one of ours"), now());
    let written = AtomicBool::new(false);
    let (mut good, mut missing) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (records, rig, mut seed) = (Records::new(&layout, ours.1), &ours.0[0], seed);
            for _ in 0..CHANGES {
                let (name, at) = ((next(&mut seed) % 40) as u8, (next(&mut seed) % 6) as u32);
                // SAFETY: it is the first block of the pool, which nobody else uses.
                unsafe { rig.as_ptr().write_bytes(name, layout.record_bytes(0)) };
                let place = kv_manager::tiers::Place { tier: Tier::Host, slot: slot(0, at) };
                // SAFETY: as above.
                let put = unsafe {
                    slab.put(&records, &TierWrite { place, block: block(0, 0), hash: hash(name), tenant: TENANT })
                };
                put.expect("it is host memory");
            }
            written.store(true, Ordering::Release);
        });
        let records = Records::new(&layout, theirs.1);
        let mut frame = vec![0; HEADER + records.len_max()];
        let frame = Spot { header: frame.as_mut_ptr(), record: frame[HEADER..].as_mut_ptr() };
        loop {
            // Once more when all is written.
            let last = written.load(Ordering::Acquire);
            while neighbour.look(&mut Found::default(), 3) {}
            for name in 0..40 {
                let place = kv_manager::tiers::Place { tier: Tier::Neighbours, slot: slot(0, 0) };
                let read = TierRead { place, block: block(0, 1), hash: hash(name), number: 0 };
                // SAFETY: frame and block are this thread's alone.
                let end = unsafe { neighbour.read(&records, &read, frame) };
                match end {
                    Ok(ReadEnd::Good) => good += 1,
                    Ok(ReadEnd::Missing) => missing += 1,
                    end => panic!("record {name}: {end:?}"),
                }
                let len = layout.record_bytes(0);
                // SAFETY: the block is inside the pool.
                let bytes = unsafe { std::slice::from_raw_parts(theirs.0[0].as_ptr().add(len), len) };
                if end == Ok(ReadEnd::Good) {
                    assert!(bytes.iter().all(|&byte| byte == name), "record {name} is another");
                }
            }
            if last {
                break;
            }
        }
    });
    assert!(good > 0 && missing > 0, "{good} good, {missing} missing");
}
