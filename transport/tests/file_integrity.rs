//! Random interleavings of whatever may happen to transfers of files: nothing is written into memory, and nothing
//! read from it, once its transfer has ended, and files hold what the writes that ended say.

use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use transport::{
    Direction, FILE_ALIGN, Failure, FileBatch, FileConfig, FileCopy, FileEnd, FileError, FileId, FileMover, FileSpec,
    FileTransfer, PostError, RegionId, SealedMemory, TransferId, TransferState,
};

/// Nothing takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);
const POSTED_MAX: usize = 4;
const UNIT: usize = FILE_ALIGN as usize;
/// Units of a block, which are in several stripes.
const UNITS: usize = 5;
/// Blocks of each region of memory, and of each of files.
const BLOCKS: usize = 3;
const REGIONS_MAX: usize = 3;
/// What is in memory that no transfer uses.
const UNTOUCHED: u64 = u64::MAX;

/// A block of a region of memory or of files.
type Place = (usize, usize);

/// What may happen. Regions are counted round among those that there are.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// A block goes from memory to files, or back.
    Move { direction: Way, memory: Place, file: Place },
    /// A transfer that ended is posted once more.
    Again(usize),
    /// One that is under way is cancelled.
    Cancel(usize),
    /// One more region of memory is registered, and one of files opened.
    Region,
    /// All that has ended is taken.
    Look,
    /// So is one more, which is waited for.
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Read,
    Write,
}

fn action() -> impl Strategy<Value = Action> {
    let place = || (0..REGIONS_MAX, 0..BLOCKS);
    let direction = prop_oneof![Just(Way::Read), Just(Way::Write)];
    prop_oneof![
        8 => (direction, place(), place()).prop_map(|(direction, memory, file)| Action::Move { direction, memory, file }),
        3 => any::<usize>().prop_map(Action::Again),
        3 => any::<usize>().prop_map(Action::Cancel),
        1 => Just(Action::Region),
        3 => Just(Action::Look),
        2 => Just(Action::Wait),
    ]
}

struct Open {
    transfer: FileTransfer,
    direction: Way,
    memory: Place,
    file: Place,
    /// What a write writes.
    value: u64,
}

struct World {
    mover: Option<FileMover>,
    ends: Receiver<FileEnd>,
    memories: Vec<(RegionId, Arc<SealedMemory>)>,
    files: Vec<FileId>,
    folder: tempfile::TempDir,
    /// What each unit of each file may hold: one value, or those of writes that did not end well, too.
    held: HashMap<(Place, usize), BTreeSet<u64>>,
    open: HashMap<TransferId, Open>,
    rest: Vec<Open>,
    value: u64,
}

impl World {
    fn new(io_uring: bool) -> Self {
        let (sender, ends) = sync_channel(REGIONS_MAX * BLOCKS);
        // Fewer operations at once than transfers have, so that they are cancelled half done.
        let config = FileConfig { name: "test".to_owned(), depth: 2, posted_max: POSTED_MAX, io_uring };
        let sink = Box::new(move |end| sender.try_send(end).expect("few end"));
        let mover = Some(FileMover::start(config, &Failure::new(), sink).expect("it starts"));
        let folder = tempfile::tempdir().expect("a folder");
        let (memories, files, held) = (Vec::new(), Vec::new(), HashMap::new());
        let mut world =
            Self { mover, ends, memories, files, folder, held, open: HashMap::new(), rest: Vec::new(), value: 0 };
        world.act(Action::Region);
        world
    }

    fn mover(&self) -> &FileMover {
        self.mover.as_ref().expect("it lives")
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Move { direction, memory, file } => {
                let memory = (memory.0 % self.memories.len(), memory.1);
                let file = (file.0 % self.files.len(), file.1);
                let batch = FileBatch {
                    direction: if direction == Way::Read { Direction::Read } else { Direction::Write },
                    file: self.files[file.0],
                    memory: self.memories[memory.0].0,
                    len: UNIT,
                    copies: (0..UNITS)
                        .map(|unit| FileCopy { file: at(file, unit), memory: at(memory, unit) })
                        .collect(),
                };
                let transfer = self.mover().prepare(vec![batch]).expect("it is sound");
                assert_eq!(transfer.state(), TransferState::Unposted);
                self.post(Open { transfer, direction, memory, file, value: 0 });
            }
            Action::Again(which) => {
                if !self.rest.is_empty() {
                    let again = self.rest.swap_remove(which % self.rest.len());
                    self.post(again);
                }
            }
            Action::Cancel(which) => {
                let ids: BTreeSet<_> = self.open.keys().copied().collect();
                if let Some(id) = ids.iter().nth(which % ids.len().max(1)) {
                    self.mover().cancel(*id);
                }
            }
            Action::Region => {
                let n = self.files.len();
                if n < REGIONS_MAX {
                    let memory = Arc::new(SealedMemory::new("test", BLOCKS * UNITS * UNIT).expect("memory"));
                    let region = self.mover().register(memory.clone());
                    self.memories.push((region, memory));
                    (0..BLOCKS).for_each(|block| self.fill((n, block), UNTOUCHED));
                    let paths = (0..=n).map(|file| self.folder.path().join(format!("{n}-{file}"))).collect();
                    let spec = FileSpec { paths, bytes: (BLOCKS * UNITS * UNIT) as u64, stripe_bytes: 2 * FILE_ALIGN };
                    self.files.push(self.mover().open(&spec).expect("it opens"));
                }
            }
            Action::Look => {
                while let Ok(end) = self.ends.try_recv() {
                    self.take(end);
                }
            }
            Action::Wait => {
                if !self.open.is_empty() {
                    let end = self.ends.recv_timeout(PATIENCE).expect("it ends");
                    self.take(end);
                }
            }
        }
        self.check_untouched();
    }

    /// Unless somebody has the memory or the file.
    fn post(&mut self, mut next: Open) {
        if self.open.values().any(|open| open.memory == next.memory || open.file == next.file) {
            return;
        }
        if next.direction == Way::Write {
            self.value += 1;
            next.value = self.value;
            self.fill(next.memory, next.value);
        }
        match self.mover().post(&next.transfer) {
            Ok(id) => drop(self.open.insert(id, next)),
            Err(error) => {
                // Those count here that have ended, and were not taken.
                assert!(error == PostError::Full(POSTED_MAX) && self.open.len() >= POSTED_MAX, "{error}");
                self.fill(next.memory, UNTOUCHED);
            }
        }
    }

    fn take(&mut self, end: FileEnd) {
        let open = self.open.remove(&end.id).expect("each ends once");
        assert_eq!(open.transfer.state(), TransferState::Ended(end.result));
        assert!(matches!(end.result, Ok(_) | Err(FileError::Cancelled)), "{end:?}");
        for unit in 0..UNITS {
            let held = self.held.entry((open.file, unit)).or_insert_with(|| [0].into());
            match (open.direction, &end.result) {
                (Way::Write, Ok(_)) => *held = [open.value].into(),
                (Way::Write, Err(_)) => drop(held.insert(open.value)),
                (Way::Read, Ok(_)) => {
                    let found = word(&self.memories[open.memory.0].1, open.memory.1, unit);
                    assert!(held.contains(&found), "unit {unit} of {:?}: {found}, not {held:?}", open.file);
                    *held = [found].into();
                }
                (Way::Read, Err(_)) => {}
            }
        }
        // The memory is another's now.
        self.fill(open.memory, UNTOUCHED);
        self.rest.push(open);
    }

    fn fill(&self, (region, block): Place, value: u64) {
        let memory = &self.memories[region].1;
        for unit in 0..UNITS {
            // SAFETY: inside the memory and aligned; no transfer uses it.
            words(memory, block, unit).for_each(|at| unsafe { at.write(value) });
        }
    }

    /// Nothing is in memory that no transfer uses.
    fn check_untouched(&self) {
        for region in 0..self.memories.len() {
            for block in 0..BLOCKS {
                if self.open.values().all(|open| open.memory != (region, block)) {
                    let memory = &self.memories[region].1;
                    let touched = (0..UNITS).any(|unit| word(memory, block, unit) != UNTOUCHED);
                    assert!(!touched, "block {block} of region {region} is written after its transfer ended");
                }
            }
        }
    }

    /// The mover ends with what is open, and nothing comes after.
    fn finish(mut self) {
        self.rest.clear();
        drop(self.mover.take());
        while let Ok(end) = self.ends.recv() {
            self.take(end);
        }
        assert!(self.open.is_empty(), "each ends");
        self.check_untouched();
    }
}

/// Where a unit of a block begins.
fn at((_, block): Place, unit: usize) -> u64 {
    ((block * UNITS + unit) * UNIT) as u64
}

fn words(memory: &SealedMemory, block: usize, unit: usize) -> impl Iterator<Item = *mut u64> {
    let first = memory.as_ptr().cast::<u64>().wrapping_add(at((0, block), unit) as usize / 8);
    (0..UNIT / 8).map(move |n| first.wrapping_add(n))
}

/// What a unit of memory that no transfer uses is full of.
fn word(memory: &SealedMemory, block: usize, unit: usize) -> u64 {
    // SAFETY: inside the memory and aligned, and nobody else writes there.
    let mut words = words(memory, block, unit).map(|at| unsafe { at.read() });
    let first = words.next().expect("a unit has words");
    assert!(words.all(|word| word == first), "unit {unit} of block {block} is of one piece");
    first
}

/// Few, since each starts movers and files.
fn cases() -> u32 {
    (ProptestConfig::default().cases / 4).max(1)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn memory_and_files_are_not_touched_after_the_end(actions in proptest::collection::vec(action(), 1..60)) {
        for io_uring in [true, false] {
            let mut world = World::new(io_uring);
            actions.iter().for_each(|&action| world.act(action));
            world.finish();
        }
    }
}
