//! The thread over a store that does what the test says, when it says so.

use super::*;
use crate::mover::TierParts;
use crate::mover_thread::{MoverThread, orders};
use crate::rig::{Rig, TENANT, block, hash, key, layout, pools, slot};
use kv_manager::tiers::{Place, TierConfig, TierLift, WritePolicy};
use std::io;
use std::sync::mpsc::{Sender, channel};
use transport::{Failure, SealedMemory};

/// Frames of the store.
const FRAMES: usize = 4;

/// One that remembers so many records that could not be read.
struct Told<const UNREADABLE: usize> {
    begun: Sender<TransferId>,
    moves: u64,
}

impl<const UNREADABLE: usize> Store for Told<UNREADABLE> {
    const TIER: Tier = Tier::Disk;
    const RECORD_AT: usize = HEADER;
    const FAILURES_MAX: u32 = 3;
    const UNREADABLE_MAX: usize = UNREADABLE;
    const CLOSE_WAIT_MAX: Duration = Duration::from_millis(50);

    fn begin(&mut self, _: &MoveKind, _: u64, _: usize) -> Result<TransferId, StoreError> {
        self.moves += 1;
        self.begun.send(TransferId(self.moves)).expect("the test listens");
        Ok(TransferId(self.moves))
    }

    fn cancel(&mut self, _: TransferId) {}

    fn note_written(&mut self, _: &TierWrite) -> Result<(), StoreError> {
        Ok(())
    }

    fn discard_wrong(&mut self, _: GroupId, _: BlockHash) {}

    fn on_chore_ended(&mut self, _: TransferId, _: StoreOutcome) -> Option<TierEvent> {
        let records = vec![(GroupId(0), hash(1)), (GroupId(0), hash(2))];
        Some(TierEvent::Found { tier: Self::TIER, prompt: key(), records, last: true })
    }
}

struct Bench {
    rig: Rig,
    begun: Receiver<TransferId>,
    orders: Sender<Order>,
}

fn bench() -> Bench {
    bench_of::<0>()
}

fn bench_of<const UNREADABLE: usize>() -> Bench {
    let (sink, ends) = channel();
    let (begins, begun) = channel();
    let (pools, lent) = pools();
    let records = Records::new(&layout(), lent);
    let frame_bytes = HEADER + records.len_max();
    let memory = Arc::new(SealedMemory::new("frames", FRAMES * frame_bytes).expect("memory"));
    let (order, inbox) = orders();
    let store = Told::<UNREADABLE> { begun: begins, moves: 0 };
    let sink = Box::new(move |end| drop(sink.send(end)));
    let work = FramedStore::new("test".to_owned(), records, sink, inbox, store, memory, frame_bytes);
    let mover = Box::new(
        MoverThread::start("test".to_owned(), &Failure::new(), order.clone(), move || work.run()).expect("a thread"),
    );
    let config = TierConfig { slots: vec![8; 2], writes_max: 2, backlog_max: 8, write: WritePolicy::Through };
    let parts = TierParts { tier: Tier::Disk, mover, config, records: Vec::new() };
    Bench { rig: Rig::new(parts, ends, pools), begun, orders: order }
}

impl Bench {
    /// The store's next move ends so.
    fn end(&self, end: StoreOutcome) {
        let id = self.begun.recv().expect("a move begins");
        self.orders.send(Order::Ended(id, end)).expect("the thread is there");
    }

    fn read(&mut self, end: StoreOutcome) -> ReadEnd {
        self.read_of(1, end)
    }

    /// Reads the record of this name.
    fn read_of(&mut self, name: u8, end: StoreOutcome) -> ReadEnd {
        self.rig.ask(slot(0, 1), block(0, 0), hash(name), 0);
        self.end(end);
        match self.rig.ended() {
            TierEvent::Read { end, .. } => end,
            end => panic!("{end:?}"),
        }
    }

    fn write(&mut self, end: StoreOutcome) -> WriteEnd {
        let write = TierWrite { place: self.rig.place(slot(0, 1)), block: block(0, 1), hash: hash(1), tenant: TENANT };
        self.rig.mover.write(write);
        self.end(end);
        match self.rig.ended() {
            TierEvent::Wrote { end, .. } => end,
            end => panic!("{end:?}"),
        }
    }
}

#[test]
fn a_store_that_hangs_does_not_keep_its_tier_from_ending() {
    let mut bench = bench();
    bench.rig.ask(slot(0, 1), block(0, 0), hash(1), 0);
    bench.begun.recv().expect("it begins");
    // Returns, though the read never ends.
    drop(bench);
}

/// What the store brings after that is thrown away, and its frames are used again.
#[test]
fn reads_that_hang_are_given_up_with_their_load() {
    let mut bench = bench();
    // A record, which each read of its frame would find.
    bench.rig.bytes(block(0, 1)).fill(7);
    assert_eq!(bench.write(StoreOutcome::Done), WriteEnd::Written);
    for round in 0..3 {
        (0..6).for_each(|number| bench.rig.ask(slot(0, 1), block(0, 0), hash(1), number));
        let hang: Vec<_> = (0..FRAMES).map(|_| bench.begun.recv().expect("it begins")).collect();
        bench.rig.mover.cancel(key());
        let mut abandoned = 0;
        for _ in 0..6 {
            match bench.rig.ended() {
                TierEvent::Read { end: ReadEnd::Abandoned, .. } => abandoned += 1,
                TierEvent::Read { end: ReadEnd::Unread, .. } => {}
                end => panic!("{end:?}"),
            }
        }
        assert_eq!(abandoned, FRAMES, "round {round}");
        for id in hang {
            bench.orders.send(Order::Ended(id, StoreOutcome::Done)).expect("the thread is there");
            assert_eq!(bench.rig.ended(), TierEvent::Settled { tier: Tier::Disk, moved: true });
        }
        assert!(bench.rig.bytes(block(0, 0)).iter().all(|&byte| byte == 0), "a block was written that was given up");
    }
    assert_eq!(bench.read(StoreOutcome::Missing), ReadEnd::Missing);
}

#[test]
fn a_store_that_can_only_read_is_given_up_as_one_that_can_do_nothing() {
    let fails = || StoreOutcome::Failed(StoreError::Log(io::Error::other("it is broken")));
    let mut bench = bench();
    for _ in 0..2 {
        assert_eq!(bench.write(fails()), WriteEnd::Failed);
        assert_eq!(bench.read(StoreOutcome::Missing), ReadEnd::Missing);
        assert_eq!(bench.read(StoreOutcome::Cancelled), ReadEnd::Unread);
    }
    bench.rig.mover.write(TierWrite {
        place: bench.rig.place(slot(0, 1)),
        block: block(0, 1),
        hash: hash(1),
        tenant: TENANT,
    });
    bench.end(fails());
    assert!(matches!(bench.rig.ended(), TierEvent::Off { .. }));
}

#[test]
fn a_record_that_cannot_be_read_is_told_so_and_a_cancelled_read_proves_nothing() {
    let fails = || StoreOutcome::Failed(StoreError::Log(io::Error::other("a bad sector")));
    let mut bench = bench();
    assert_eq!(bench.read(fails()), ReadEnd::Failed);
    assert_eq!(bench.read(StoreOutcome::Missing), ReadEnd::Missing);
    (0..2).for_each(|_| assert_eq!(bench.read(fails()), ReadEnd::Failed));
    assert_eq!(bench.read(StoreOutcome::Cancelled), ReadEnd::Unread);
    bench.rig.ask(slot(0, 1), block(0, 0), hash(1), 0);
    bench.end(fails());
    assert!(matches!(bench.rig.ended(), TierEvent::Off { .. }), "three failures, and nothing read between them");
}

/// As an object that its store answers for with an error, whoever asks and how often.
#[test]
fn a_record_that_can_never_be_read_does_not_keep_the_others_from_being_used() {
    let fails = || StoreOutcome::Failed(StoreError::Log(io::Error::other("500")));
    let mut bench = bench_of::<2>();
    (0..10).for_each(|_| assert_eq!(bench.read(fails()), ReadEnd::Failed));
    // Others are found, and it is not; nor is it known to be there since another worker wrote it.
    bench.orders.send(Order::Ended(TransferId(u64::MAX), StoreOutcome::Done)).expect("the thread is there");
    let TierEvent::Found { records, .. } = bench.rig.ended() else { panic!("something was found") };
    assert_eq!(records, [(GroupId(0), hash(2))]);
    assert_eq!(bench.write(StoreOutcome::Existed), WriteEnd::Failed);
    // One that was given up counts no more either.
    bench.rig.ask(slot(0, 1), block(0, 0), hash(1), 0);
    let id = bench.begun.recv().expect("it begins");
    bench.rig.mover.cancel(key());
    assert!(matches!(bench.rig.ended(), TierEvent::Read { end: ReadEnd::Abandoned, .. }));
    bench.orders.send(Order::Ended(id, fails())).expect("the thread is there");
    assert_eq!(bench.rig.ended(), TierEvent::Settled { tier: Tier::Disk, moved: false });
    // Written anew it is like any other.
    assert_eq!(bench.write(StoreOutcome::Done), WriteEnd::Written);
    assert_eq!(bench.write(StoreOutcome::Existed), WriteEnd::Existed);
}

#[test]
fn a_store_that_can_read_nothing_is_off_though_some_records_never_could_be_read() {
    let fails = || StoreOutcome::Failed(StoreError::Log(io::Error::other("500")));
    let mut bench = bench_of::<2>();
    (1..3).for_each(|name| assert_eq!(bench.read_of(name, fails()), ReadEnd::Failed));
    assert_eq!(bench.read_of(3, StoreOutcome::Missing), ReadEnd::Missing);
    for name in [1, 2, 4, 5] {
        assert_eq!(bench.read_of(name, fails()), ReadEnd::Failed);
    }
    bench.rig.ask(slot(0, 1), block(0, 0), hash(6), 0);
    bench.end(fails());
    assert!(matches!(bench.rig.ended(), TierEvent::Off { .. }), "three others, and nothing read between them");
    let unread = bench.rig.ended();
    assert!(matches!(unread, TierEvent::Read { end: ReadEnd::Unread, .. }), "the store's fault: {unread:?}");
}

fn lift(bench: &mut Bench, slot_: u32, name: u8) {
    let to = Place { tier: Tier::Host, slot: slot(0, 7) };
    let from = bench.rig.place(slot(0, slot_));
    bench.rig.mover.lift(key(), TierLift { from, to, hash: hash(name) });
}

/// Records that are lifted come as they lie in the store, and what is wrong does not come.
#[test]
fn what_is_lifted_comes_with_its_end_if_it_is_right() {
    let mut bench = bench();
    bench.rig.bytes(block(0, 1)).fill(7);
    assert_eq!(bench.write(StoreOutcome::Done), WriteEnd::Written);
    for (name, expected) in [(1, ReadEnd::Good), (2, ReadEnd::Wrong)] {
        lift(&mut bench, 1, name);
        bench.end(StoreOutcome::Done);
        let TierEvent::Lifted { prompt, end, record, .. } = bench.rig.ended() else { panic!("it is a lift") };
        assert_eq!((prompt, end, record.is_some()), (key(), expected, expected == ReadEnd::Good));
        let bytes = record.iter().flat_map(|record| &record.bytes()[HEADER..]);
        assert!(bytes.copied().eq(std::iter::repeat_n(7, if record.is_some() { layout().record_bytes(0) } else { 0 })));
    }
    lift(&mut bench, 1, 1);
    bench.end(StoreOutcome::Missing);
    assert!(matches!(bench.rig.ended(), TierEvent::Lifted { end: ReadEnd::Missing, record: None, .. }));
}

#[test]
fn lifts_leave_frames_to_those_who_wait_and_are_given_up_with_their_prompt() {
    let mut bench = bench();
    (0..4).for_each(|n| lift(&mut bench, n, n as u8));
    let begun: Vec<_> = (0..2).map(|_| bench.begun.recv().expect("it begins")).collect();
    bench.rig.ask(slot(0, 1), block(0, 0), hash(1), 0);
    bench.rig.ask(slot(0, 2), block(0, 0), hash(2), 1);
    let reads: Vec<_> = (0..2).map(|_| bench.begun.recv().expect("there are frames for it")).collect();
    assert!(bench.begun.try_recv().is_err(), "half of the frames are for reads");
    for id in reads {
        bench.orders.send(Order::Ended(id, StoreOutcome::Missing)).expect("the thread is there");
        assert!(matches!(bench.rig.ended(), TierEvent::Read { end: ReadEnd::Missing, .. }));
    }
    bench.rig.mover.cancel(key());
    let mut ends = Vec::new();
    for _ in 0..4 {
        match bench.rig.ended() {
            TierEvent::Lifted { end, record: None, .. } => ends.push(end),
            end => panic!("{end:?}"),
        }
    }
    ends.sort_by_key(|end| *end == ReadEnd::Abandoned);
    assert_eq!(ends, [ReadEnd::Unread, ReadEnd::Unread, ReadEnd::Abandoned, ReadEnd::Abandoned]);
    for id in begun {
        bench.orders.send(Order::Ended(id, StoreOutcome::Done)).expect("the thread is there");
        assert_eq!(bench.rig.ended(), TierEvent::Settled { tier: Tier::Disk, moved: true });
    }
}
