//! The mover of files, through io_uring and through threads: what is read is what was written, whatever the pieces.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use transport::{
    Direction, FILE_ALIGN, Failure, FileBatch, FileConfig, FileCopy, FileEnd, FileError, FileId, FileMover,
    FilePrepareError, FileSpec, FileWay, GuardedMemory, PostError, RegionId, SealedMemory, TransferId, TransferState,
};

/// Nothing takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);
const POSTED_MAX: usize = 8;
const UNIT: u64 = FILE_ALIGN;

struct Bench {
    mover: FileMover,
    ends: Receiver<FileEnd>,
    memory: Arc<SealedMemory>,
    files: FileId,
    paths: Vec<PathBuf>,
    _folder: tempfile::TempDir,
}

impl Bench {
    /// A mover with `units` of files and of memory.
    fn new(io_uring: bool, files: usize, stripe: u64, units: u64) -> Self {
        Self::deep(4, io_uring, files, stripe, units)
    }

    /// The same with so many operations under way.
    fn deep(depth: u32, io_uring: bool, files: usize, stripe: u64, units: u64) -> Self {
        let (sender, ends) = sync_channel(64);
        let config = FileConfig { name: "test".to_owned(), depth, posted_max: POSTED_MAX, io_uring };
        let mover =
            FileMover::start(config, &Failure::new(), Box::new(move |end| sender.try_send(end).expect("few end")))
                .expect("it starts");
        let folder = tempfile::tempdir().expect("a folder");
        let paths: Vec<_> = (0..files).map(|n| folder.path().join(format!("slab-{n}"))).collect();
        let memory = Arc::new(SealedMemory::new("test", (units * UNIT) as usize).expect("memory"));
        assert_eq!(mover.register(memory.clone()), RegionId(0));
        let spec = FileSpec { paths: paths.clone(), bytes: units * UNIT, stripe_bytes: stripe * UNIT };
        let files = mover.open(&spec).expect("it opens");
        Self { mover, ends, memory, files, paths, _folder: folder }
    }

    /// In units; copies are (file, memory).
    fn batch(&self, direction: Direction, units: u64, copies: &[(u64, u64)]) -> FileBatch {
        let copies =
            copies.iter().map(|&(file, memory)| FileCopy { file: file * UNIT, memory: memory * UNIT }).collect();
        FileBatch { direction, file: self.files, memory: RegionId(0), len: (units * UNIT) as usize, copies }
    }

    fn post(&self, batches: Vec<FileBatch>) -> TransferId {
        self.mover.post(&self.mover.prepare(batches).expect("it is sound")).expect("there is room")
    }

    fn ended(&self) -> FileEnd {
        self.ends.recv_timeout(PATIENCE).expect("it ends")
    }

    fn done(&self, batches: Vec<FileBatch>) {
        let bytes = batches.iter().map(|batch| (batch.len * batch.copies.len()) as u64).sum::<u64>();
        let id = self.post(batches);
        let end = self.ended();
        assert_eq!((end.id, end.result.expect("it succeeds").bytes), (id, bytes));
    }

    /// The words of a unit of the memory.
    fn words(&self, unit: u64) -> impl Iterator<Item = *mut u64> {
        let first = self.memory.as_ptr().cast::<u64>();
        let words = UNIT as usize / 8;
        (0..words).map(move |n| first.wrapping_add(unit as usize * words + n))
    }

    fn set(&self, unit: u64, value: u64) {
        // SAFETY: the words are inside the memory and aligned, and only this thread touches it between transfers.
        self.words(unit).for_each(|word| unsafe { word.write(value) });
    }

    /// What a unit of the memory is full of.
    fn unit(&self, unit: u64) -> u64 {
        // SAFETY: as above.
        let words: Vec<u64> = self.words(unit).map(|word| unsafe { word.read() }).collect();
        assert!(words.iter().all(|word| *word == words[0]), "unit {unit} is of one piece");
        words[0]
    }
}

fn both(test: impl Fn(bool)) {
    for io_uring in [true, false] {
        test(io_uring);
    }
}

/// A mover that tells `sink` and has one operation under way, with memory and a file of its own; and what prepares
/// for it.
fn one_by_one(
    io_uring: bool,
    posted_max: usize,
    failure: &Failure,
    sink: impl Fn(FileEnd) + Send + Sync + 'static,
) -> (FileMover, Bench) {
    let config = FileConfig { name: "test".to_owned(), depth: 1, posted_max, io_uring };
    let mover = FileMover::start(config, failure, Box::new(sink)).expect("it starts");
    let bench = Bench::new(io_uring, 1, 1, 8);
    mover.register(bench.memory.clone());
    let paths = vec![bench.paths[0].with_extension("other")];
    mover.open(&FileSpec { paths, bytes: 8 * UNIT, stripe_bytes: UNIT }).expect("it opens");
    (mover, bench)
}

#[test]
fn what_was_taken_is_told() {
    let status = Bench::new(false, 1, 1, 1).mover.status();
    assert_eq!(status.to_string(), "threads (gds: not built in; io_uring: switched off)");
    // Hosts differ in what they allow; what is not taken has a reason.
    let bench = Bench::new(true, 1, 1, 1);
    let status = bench.mover.status();
    println!("{status:?}");
    let ranked: Vec<_> = status.passed_over.iter().map(|(way, _)| *way).chain([status.way]).collect();
    assert_eq!(ranked, [FileWay::Gds, FileWay::IoUring, FileWay::Threads][..ranked.len()]);
    assert_eq!(status.passed_over[0].1, "not built in");
    assert_eq!((status.buffered.len(), status.broken), (1, None));
    bench.post(vec![bench.batch(Direction::Write, 1, &[(0, 0)])]);
    assert_eq!(bench.ended().result.expect("it succeeds").way, status.way);
}

/// What a random run does: (write, units of a copy, where in the files, where in memory).
type Step = (bool, u64, u64, u64);

#[test]
fn files_keep_what_is_written_whatever_the_pieces() {
    const UNITS: u64 = 700;
    let steps = proptest::collection::vec((any::<bool>(), 1..300_u64, 0..400_u64, 0..400_u64), 1..12);
    let cases = ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
    let run = |io_uring, files, stripe, steps: Vec<Step>| {
        let bench = Bench::new(io_uring, files, stripe, UNITS);
        let (mut file, mut memory) = (vec![0_u64; UNITS as usize], vec![0_u64; UNITS as usize]);
        for (n, (write, units, at, from)) in steps.into_iter().enumerate() {
            if write {
                for unit in from..from + units {
                    let value = (n as u64 + 1) << 32 | unit;
                    bench.set(unit, value);
                    memory[unit as usize] = value;
                }
            }
            // In two copies, which may be neighbours.
            let half = units.div_ceil(2);
            let direction = if write { Direction::Write } else { Direction::Read };
            bench.done(vec![bench.batch(direction, half, &[(at + half, from + half), (at, from)])]);
            for unit in 0..2 * half {
                let (file, memory) = (&mut file[(at + unit) as usize], &mut memory[(from + unit) as usize]);
                if write { *file = *memory } else { *memory = *file }
            }
            for (unit, value) in memory.iter().enumerate() {
                assert_eq!(bench.unit(unit as u64), *value, "unit {unit} after step {n}");
            }
        }
    };
    both(|io_uring| {
        let mut runner = TestRunner::new(cases.clone());
        let strategy = (1..4_usize, prop_oneof![Just(1_u64), Just(7), Just(64), Just(1000)], steps.clone());
        let result = runner.run(&strategy, |(files, stripe, steps)| {
            run(io_uring, files, stripe, steps);
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("io_uring {io_uring}: {error}"));
    });
}

#[test]
fn several_transfers_are_under_way_and_each_ends_once() {
    both(|io_uring| {
        let bench = Bench::new(io_uring, 2, 3, 64);
        (0..64).for_each(|unit| bench.set(unit, 100 + unit));
        let mut open: Vec<_> =
            (0..8).map(|n| bench.post(vec![bench.batch(Direction::Write, 8, &[(n * 8, n * 8)])])).collect();
        while !open.is_empty() {
            let end = bench.ended();
            let at = open.iter().position(|id| *id == end.id).expect("it was open");
            open.swap_remove(at);
            end.result.expect("it succeeds");
        }
        (0..64).for_each(|unit| bench.set(unit, 0));
        // Backwards.
        let copies: Vec<_> = (0..64).map(|unit| (63 - unit, unit)).collect();
        bench.done(vec![bench.batch(Direction::Read, 1, &copies)]);
        assert_eq!((0..64).map(|unit| bench.unit(unit)).collect::<Vec<_>>(), (100..164).rev().collect::<Vec<_>>());
    });
}

#[test]
fn nobody_who_posts_while_all_is_taken_is_forgotten() {
    both(|io_uring| {
        for depth in [1, 2] {
            let bench = Bench::deep(depth, io_uring, 1, 4, 4);
            let post = |unit: u64| bench.post(vec![bench.batch(Direction::Write, 1, &[(unit, unit)])]);
            // One more than there is room for, always: it is posted without a ring of the bell, or as room is made.
            (0..=u64::from(depth)).for_each(|unit| {
                post(unit);
            });
            for n in 0..1000 {
                bench.ended().result.expect("it succeeds");
                post(n % 4);
            }
        }
    });
}

#[test]
fn a_transfer_is_posted_again_once_it_has_ended() {
    both(|io_uring| {
        // The mover's thread is kept where it tells of the first end, so that the second transfer is under way
        // until then.
        let (goes_on, waits) = sync_channel::<()>(0);
        let (says, ends) = sync_channel(8);
        let waits = std::sync::Mutex::new(waits);
        let sink = move |end: FileEnd| {
            says.send(end.id).expect("somebody listens");
            let _ = waits.lock().expect("nobody panicked").recv();
        };
        let (mover, bench) = one_by_one(io_uring, 2, &Failure::new(), sink);
        let prepare = || mover.prepare(vec![bench.batch(Direction::Write, 8, &[(0, 0)])]).expect("it is sound");
        let (first, second) = (prepare(), prepare());
        assert_eq!(first.estimate(), None, "nothing was written yet");
        let id = mover.post(&first).expect("there is room");
        assert_eq!(ends.recv_timeout(PATIENCE), Ok(id));
        let second_id = mover.post(&second).expect("there is room");
        assert_eq!(mover.post(&second), Err(PostError::UnderWay));
        assert_eq!(second.wait(Duration::ZERO), TransferState::UnderWay);
        assert_eq!(bench.mover.post(&second), Err(PostError::Foreign));
        goes_on.send(()).expect("it waits");
        assert_eq!(ends.recv_timeout(PATIENCE), Ok(second_id));
        assert!(matches!(second.state(), TransferState::Ended(Ok(report)) if report.bytes == 8 * UNIT));
        assert!(second.estimate().is_some_and(|time| time > Duration::ZERO));
        assert!(mover.post(&second).expect("it has ended") > second_id);
        drop(goes_on);
        // Who drops it hears of its end all the same.
        drop(second);
        ends.recv_timeout(PATIENCE).expect("it ends");
    });
}

#[test]
fn what_is_written_outlives_the_mover() {
    both(|io_uring| {
        let bench = Bench::new(io_uring, 1, 1, 4);
        (0..4).for_each(|unit| bench.set(unit, 7 + unit));
        bench.done(vec![bench.batch(Direction::Write, 4, &[(0, 0)])]);
        let mut bytes = vec![0; 4 * UNIT as usize];
        std::fs::File::open(&bench.paths[0]).expect("it exists").read_exact_at(&mut bytes, 0).expect("it is as long");
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8"))).collect();
        assert!((0..4).all(|unit| words[unit * UNIT as usize / 8] == 7 + unit as u64));
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    let bench = Bench::new(true, 1, 1, 4);
    let prepare = |batch| bench.mover.prepare(vec![batch]).err();
    let batch = |copies: &[(u64, u64)]| bench.batch(Direction::Read, 2, copies);
    assert_eq!(prepare(batch(&[(2, 2), (0, 0)])), None);
    let out = |file, memory| {
        Some(FilePrepareError::OutOfBounds {
            copy: FileCopy { file: file * UNIT, memory: memory * UNIT },
            len: 2 * UNIT as usize,
        })
    };
    assert_eq!(prepare(batch(&[(0, 0), (3, 0)])), out(3, 0));
    assert_eq!(prepare(batch(&[(0, 3)])), out(0, 3));
    let mut wrong = batch(&[(0, 0)]);
    wrong.copies[0].file = u64::MAX - 1;
    assert!(matches!(prepare(wrong), Some(FilePrepareError::OutOfBounds { .. })));
    let elsewhere = bench.mover.register(Arc::new(GuardedMemory::new(4 * UNIT as usize, None).expect("memory")));
    assert_eq!(prepare(FileBatch { memory: elsewhere, ..batch(&[(0, 0)]) }), Some(FilePrepareError::Device(elsewhere)));
    for (file, memory, len) in [(512, 0, 4096), (0, 512, 4096), (0, 0, 4000)] {
        let copy = FileCopy { file, memory };
        let wrong = FileBatch { len, copies: vec![copy], ..batch(&[]) };
        assert_eq!(prepare(wrong), Some(FilePrepareError::Unaligned { copy, len }));
    }
    let no_file = FileBatch { file: FileId(1), ..batch(&[]) };
    assert_eq!(prepare(no_file), Some(FilePrepareError::NoFile(FileId(1))));
    let no_memory = FileBatch { memory: RegionId(2), ..batch(&[]) };
    assert_eq!(prepare(no_memory), Some(FilePrepareError::NoMemory(RegionId(2))));
    bench.done(vec![]);
}

#[test]
fn a_file_that_somebody_cut_short_fails_the_read() {
    both(|io_uring| {
        let bench = Bench::new(io_uring, 1, 1, 8);
        let file = std::fs::OpenOptions::new().write(true).open(&bench.paths[0]).expect("it exists");
        for len in [2 * UNIT + UNIT / 2, 2 * UNIT + 100, 2 * UNIT] {
            file.set_len(len).expect("it is ours");
            bench.post(vec![bench.batch(Direction::Read, 8, &[(0, 0)])]);
            assert_eq!(bench.ended().result, Err(FileError::CutShort), "at {len}");
        }
        bench.done(vec![bench.batch(Direction::Read, 2, &[(0, 0)])]);
    });
}

#[test]
fn cancelled_transfers_end_once_and_a_mover_ends_with_its_transfers() {
    both(|io_uring| {
        const UNITS: u64 = 4096;
        let bench = Bench::new(io_uring, 2, 16, UNITS);
        let copies: Vec<_> = (0..UNITS).map(|unit| (unit, UNITS - 1 - unit)).collect();
        let long = || bench.batch(Direction::Write, 1, &copies);
        // All are prepared before the first one could end.
        let prepare = || bench.mover.prepare(vec![long()]).expect("it is sound");
        let more = prepare();
        let prepared: Vec<_> = (0..POSTED_MAX).map(|_| prepare()).collect();
        let post = |prepared| bench.mover.post(prepared).expect("there is room");
        let mut open: Vec<_> = prepared.iter().map(post).collect();
        assert_eq!(bench.mover.post(&more), Err(PostError::Full(POSTED_MAX)));
        bench.mover.cancel(TransferId(u64::MAX));
        open.iter().for_each(|id| bench.mover.cancel(*id));
        for _ in 0..POSTED_MAX {
            let end = bench.ended();
            assert!(matches!(end.result, Ok(_) | Err(FileError::Cancelled)), "{end:?}");
            open.retain(|id| *id != end.id);
        }
        assert_eq!(open, []);
        bench.post(vec![long()]);
        drop(bench.mover);
        let end = bench.ends.recv_timeout(PATIENCE).expect("it ends");
        assert!(matches!(end.result, Ok(_) | Err(FileError::Cancelled)), "{end:?}");
        assert!(bench.ends.recv().is_err(), "nothing ends twice");
    });
}

#[test]
fn a_sink_that_panics_leaves_no_transfer_open() {
    both(|io_uring| {
        // The mover's thread is kept where it tells of the first end until more is posted, and panics then; and
        // again with each end.
        let (goes_on, waits) = sync_channel::<()>(0);
        let (says, ends) = sync_channel(8);
        let waits = std::sync::Mutex::new(Some(waits));
        let sink = move |end: FileEnd| {
            says.send(end).expect("somebody listens");
            if let Some(waits) = waits.lock().expect("nobody panics with it").take() {
                let _ = waits.recv();
            }
            panic!("as it should");
        };
        let failure = Failure::new();
        let (mover, bench) = one_by_one(io_uring, 4, &failure, sink);
        let prepare = || mover.prepare(vec![bench.batch(Direction::Write, 8, &[(0, 0)])]).expect("it is sound");
        let transfers = [prepare(), prepare(), prepare()];
        let mut ids = vec![mover.post(&transfers[0]).expect("there is room")];
        ends.recv_timeout(PATIENCE).expect("it ends").result.expect("it succeeds");
        ids.extend(transfers[1..].iter().map(|transfer| mover.post(transfer).expect("there is room")));
        goes_on.send(()).expect("it waits");
        for id in &ids[1..] {
            let end = ends.recv_timeout(PATIENCE).expect("it ends");
            assert_eq!(end, FileEnd { id: *id, result: Err(FileError::Panicked) });
        }
        assert!(matches!(transfers[0].state(), TransferState::Ended(Ok(_))));
        for transfer in &transfers[1..] {
            assert_eq!(transfer.wait(PATIENCE), TransferState::Ended(Err(FileError::Panicked)));
        }
        assert_eq!(mover.post(&prepare()), Err(PostError::Panicked));
        let fault = failure.get().expect("it is reported");
        assert!(fault.thread == "test-file" && fault.cause.contains("as it should"), "{fault}");
        assert!(mover.status().broken.is_some_and(|why| why.contains("as it should")));
        drop(mover);
        assert!(ends.try_recv().is_err(), "nothing ends twice");
    });
}
