//! A slab, asked as a worker asks it, and looked at as somebody else would.

use super::shape::{CHANGES_AT, ENTRY, HEAD, HEADER_AT, MAGIC, SLOTS_AT, VERSION};
use super::*;
use crate::mover_thread::now;
use crate::records::{Record, host};
use crate::rig::{Rig, TENANT, block, encoded, hash, key, layout, pools, slot};
use domain::{Encoding, GroupId};
use kv_manager::tiers::header::{HEADER, RecordHeader};
use kv_manager::tiers::{TierLift, TierWrite};
use std::sync::mpsc::{channel, sync_channel};
use std::time::Duration;
use transport::{Failure, checksum};

/// Where a slab says where the records of each group are.
pub(super) const PLACES_AT: usize = SLOTS_AT + 8;

pub(super) fn config() -> HostConfig {
    HostConfig {
        name: "test".to_owned(),
        worker: WorkerId(7),
        life: Incarnation(3),
        weights: [5; 32],
        bytes: 1 << 20,
        write: WritePolicy::Through,
        shared: None,
    }
}

fn open() -> (Rig, Arc<dyn Memory>) {
    open_in(Encoding::Exact)
}

fn open_in(encoding: Encoding) -> (Rig, Arc<dyn Memory>) {
    let (sink, ends) = channel();
    let (pools, lent) = pools();
    let told = move |end| drop(sink.send(end));
    let (parts, memory) = over(&config(), &encoded(encoding), lent, &Failure::new(), told).expect("it opens");
    (Rig::new(parts, ends, pools), memory)
}

/// Returns what lies in the slab from `at` on, to whoever maps it.
fn bytes(memory: &dyn Memory, at: usize, len: usize) -> &[u8] {
    assert!(at + len <= memory.len());
    // SAFETY: it is inside, and no move is under way.
    unsafe { std::slice::from_raw_parts(host(memory).add(at), len) }
}

fn word(memory: &dyn Memory, at: usize) -> u64 {
    u64::from_le_bytes(bytes(memory, at, 8).try_into().expect("eight bytes"))
}

#[test]
fn records_come_back_as_they_were() {
    let (mut rig, memory) = open();
    rig.check_what_is_written_comes_back();
    // The same after others were put everywhere.
    let slots = word(&*memory, SLOTS_AT) as u32;
    for group in 0..2 {
        for n in 0..slots {
            rig.bytes(block(group, 0)).fill(n as u8);
            assert!(rig.write(slot(group, n), block(group, 0), hash(n as u8)));
        }
        for n in 0..slots {
            assert_eq!(rig.read(slot(group, n), block(group, 1), hash(n as u8)), ReadEnd::Good);
            assert!(rig.bytes(block(group, 1)).iter().all(|&byte| byte == n as u8), "slot {n} of group {group}");
        }
    }
}

#[test]
fn encoded_records_take_less_room_and_come_back_as_that_has_it() {
    let exact = open().0.slots;
    for encoding in [Encoding::Int8, Encoding::Fp8] {
        let (mut rig, memory) = open_in(encoding);
        rig.check_what_is_encoded_comes_back(encoding);
        assert!(rig.slots > exact * 3, "{} slots in place of {exact}", rig.slots);
        assert!(memory.len() as u64 <= config().bytes);
        assert_eq!(word(&*memory, 64), encoded(encoding).records_fingerprint());
    }
}

#[test]
fn what_was_lifted_comes_back_as_what_was_written() {
    let (mut rig, memory) = open();
    let memory = &*memory;
    let slots = word(memory, SLOTS_AT) as usize;
    for group in 0..2 {
        let g = usize::from(group);
        rig.bytes(block(group, 1)).fill(40 + group as u8);
        assert!(rig.write(slot(group, 1), block(group, 1), hash(5)));
        let [begin, each] = [0, 8].map(|at| word(memory, PLACES_AT + 16 * g + at) as usize);
        let header = bytes(memory, HEAD + ENTRY * (g * slots + 1) + HEADER_AT, HEADER);
        let record = bytes(memory, begin + each, layout().record_bytes(g));
        let lift = TierLift { from: rig.place(slot(group, 1)), to: rig.place(slot(group, 2)), hash: hash(5) };
        rig.mover.land(key(), lift, Record::new([header, record].concat().into()));
        assert!(matches!(rig.ended(), TierEvent::Landed { there: true, .. }));
        assert_eq!(rig.read(slot(group, 2), block(group, 2), hash(5)), ReadEnd::Good);
        assert_eq!(rig.bytes(block(group, 2)), rig.bytes(block(group, 1)));
        let entry = HEAD + ENTRY * (g * slots + 2);
        assert_eq!(word(memory, entry), 2, "others see that it changed");
    }
    assert_eq!(word(memory, CHANGES_AT), 4);
}

#[test]
fn a_slab_says_itself_what_lies_where() {
    let (mut rig, memory) = open();
    let memory = &*memory;
    let layout = layout();
    assert_eq!(bytes(memory, 0, 8), MAGIC);
    let [version, worker, life] = [8, 16, 24].map(|at| word(memory, at));
    assert_eq!((version, worker, life, bytes(memory, 32, 32)), (VERSION, 7, 3, &[5; 32][..]));
    let [fingerprint, groups, slots] = [64, 72, SLOTS_AT].map(|at| word(memory, at));
    assert_eq!((fingerprint, groups), (layout.records_fingerprint(), 2));
    for (changes, (group, round)) in (1..).zip([(1, 1), (1, 2), (0, 1)]) {
        rig.bytes(block(group, 0)).fill(40 + round as u8);
        assert!(rig.write(slot(group, 2), block(group, 0), hash(9)));
        let entry = HEAD + ENTRY * (usize::from(group) * slots as usize + 2);
        assert_eq!(word(memory, entry), 2 * round, "the generation is even, and another after each change");
        assert_eq!(word(memory, CHANGES_AT), changes);
        let len = layout.record_bytes(usize::from(group));
        let [begin, each] = [0, 8].map(|at| word(memory, PLACES_AT + 16 * usize::from(group) + at) as usize);
        let record = bytes(memory, begin + 2 * each, len);
        assert_eq!(record, rig.bytes(block(group, 0)));
        let header = RecordHeader { group: GroupId(group), hash: hash(9), fingerprint, len: len as u64, checksum: 0 };
        let found: &[u8; HEADER] = bytes(memory, entry + HEADER_AT, HEADER).try_into().expect("a header");
        assert_eq!(header.checksum_in(found), Ok(checksum(record)));
    }
    assert!(memory.file().is_some(), "others of the host can map it");
}

#[test]
fn a_byte_that_changed_is_found() {
    let (mut rig, memory) = open();
    assert!(rig.write(slot(0, 1), block(0, 1), hash(1)));
    let begin = word(&*memory, PLACES_AT) as usize;
    let each = word(&*memory, PLACES_AT + 8) as usize;
    for at in [begin + each, begin + each + 100, HEAD + ENTRY + HEADER_AT + 20] {
        // SAFETY: it is inside, and no move is under way.
        let flip = || unsafe { *host(&*memory).add(at) ^= 4 };
        flip();
        assert_eq!(rig.read(slot(0, 1), block(0, 2), hash(1)), ReadEnd::Wrong, "byte {at}");
        flip();
    }
    assert_eq!(rig.read(slot(0, 1), block(0, 2), hash(1)), ReadEnd::Good);
}

#[test]
fn a_read_does_not_wait_for_writes_that_were_there_before() {
    // The thread says when it has done something, and goes on only when somebody has heard what that was.
    let (done, did) = channel();
    let (sink, ends) = sync_channel(0);
    let (pools, lent) = pools();
    let told = move |end| {
        let _ = (done.send(()), sink.send(end));
    };
    let (parts, _) = over(&config(), &layout(), lent, &Failure::new(), told).expect("it opens");
    let mut rig = Rig::new(parts, ends, pools);
    let write = |rig: &mut Rig, n| {
        let place = rig.place(slot(0, n));
        rig.mover.write(TierWrite { place, block: block(0, 1), hash: hash(n as u8), tenant: TENANT });
    };
    write(&mut rig, 0);
    did.recv().expect("the first write is done");
    (1..8).for_each(|n| write(&mut rig, n));
    rig.ask(slot(0, 0), block(0, 2), hash(0), 0);
    assert!(matches!(rig.ended(), TierEvent::Wrote { .. }));
    assert!(matches!(rig.ended(), TierEvent::Read { end: ReadEnd::Good, .. }));
    (1..8).for_each(|_| assert!(matches!(rig.ended(), TierEvent::Wrote { end: WriteEnd::Written, .. })));
}

#[test]
fn pages_are_there_before_records_are() {
    let (_parts, memory) =
        over(&HostConfig { bytes: 9 << 20, ..config() }, &layout(), pools().1, &Failure::new(), |_| {})
            .expect("it opens");
    let (file, _) = memory.file().expect("it is a file's");
    let paged = || rustix::fs::fstat(file).expect("it is open").st_blocks as usize * 512;
    let begun = now();
    while paged() < memory.len() {
        assert!(now().duration_since(begun) < Duration::from_secs(20), "{} of {} bytes", paged(), memory.len());
        std::thread::yield_now();
    }
}

#[test]
fn too_little_memory_is_told() {
    let small = HostConfig { bytes: 8192, ..config() };
    let refused = over(&small, &layout(), pools().1, &Failure::new(), |_| {}).map(drop).expect_err("it is too little");
    let HostError::TooSmall { needed, .. } = refused else { panic!("{refused}") };
    assert!(over(&HostConfig { bytes: needed, ..small }, &layout(), pools().1, &Failure::new(), |_| {}).is_ok());
}
