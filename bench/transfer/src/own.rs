//! Blocks that this process writes to files or objects and reads again.
//!
//! Memory is as large as what is in flight, used again and again, and of this process alone, like the frames of a
//! tier: so caches and huge pages hold it as they do there. So it cannot be compared as a whole after a pass. In
//! the first pass, which does not count, each block is full of bytes of its own, and all of them are compared when
//! it was read. In those that count, its first and its last word say which block and which pass it is of; they are
//! compared, and cleared for the next block, as soon as it was read.

use crate::error::BenchError;
use crate::pool::word;
use crate::report::{READ, Row, WRITE};
use crate::settings::{Cell, Over, Settings};
use crate::turns::{Passes, Turns, now};
use std::sync::Arc;
use std::time::Duration;
use transport::{Direction, Memory, PrivateMemory};

/// Bytes of a word.
const WORD: usize = 8;

/// Where blocks are written, and read from.
pub(crate) trait Storage {
    type Transfer;

    /// Prepares a transfer of these blocks, whose places in memory follow each other from the `first` block of it on.
    fn prepare(&self, direction: Direction, blocks: &[usize], first: usize) -> Result<Self::Transfer, BenchError>;

    fn post(&self, transfer: &Self::Transfer) -> Result<(), BenchError>;

    /// Waits for the end of a transfer. The time in which its bytes moved.
    fn wait(&self, transfer: &Self::Transfer) -> Result<Duration, BenchError>;

    /// Makes these blocks ready to be written.
    fn make_way(&self, blocks: &[usize]) -> Result<(), BenchError>;
}

/// A cell that is measured with memory of its own.
pub(crate) struct Own {
    cell: Cell,
    passes: usize,
    memory: Arc<PrivateMemory>,
    /// In the order in which they are written and read.
    blocks: Vec<usize>,
}

/// One direction of a pass.
struct Turn<'a, S: Storage> {
    own: &'a Own,
    over: Over,
    storage: &'a S,
    direction: Direction,
    transfers: &'a [S::Transfer],
    pass: usize,
}

impl Own {
    /// Chooses no more than `blocks_max` of the pool's blocks, drawn at random: a device must not guess which one
    /// comes next. They are the same in every run. Errors: of the system.
    pub(crate) fn new(settings: &Settings, cell: Cell, blocks_max: usize) -> Result<Self, BenchError> {
        let memory = Arc::new(PrivateMemory::new(cell.bytes * cell.batch * cell.in_flight)?);
        let blocks = draw(settings.pool_bytes / cell.bytes, blocks_max);
        Ok(Self { cell, passes: settings.passes, memory, blocks })
    }

    pub(crate) fn memory(&self) -> Arc<PrivateMemory> {
        self.memory.clone()
    }

    pub(crate) fn blocks(&self) -> &[usize] {
        &self.blocks
    }

    /// Writes and reads all blocks, as often as there are passes. A row of each.
    pub(crate) fn rows<S: Storage>(&self, over: Over, storage: &S) -> Result<[Row; 2], BenchError> {
        let (writes, mut written) = self.prepare(storage, Direction::Write)?;
        let (reads, mut read) = self.prepare(storage, Direction::Read)?;
        for pass in 0..=self.passes {
            storage.make_way(&self.blocks)?;
            let turn = |direction, transfers| Turn { own: self, over, storage, direction, transfers, pass };
            written.pass(&turn(Direction::Write, &writes), self.cell.in_flight)?;
            read.pass(&turn(Direction::Read, &reads), self.cell.in_flight)?;
            if pass == 0 {
                written.forget();
                read.forget();
            }
        }
        let row = |passes: Passes, operation| passes.row(over.to_string(), operation, self.cell, self.blocks.len());
        Ok([row(written, WRITE), row(read, READ)])
    }

    /// Returns the transfers of a pass.
    fn prepare<S: Storage>(&self, storage: &S, direction: Direction) -> Result<(Vec<S::Transfer>, Passes), BenchError> {
        let begin = now();
        let transfers = self.blocks.chunks(self.cell.batch).enumerate();
        let prepare = |(turn, blocks): (usize, &[usize])| storage.prepare(direction, blocks, self.first(turn));
        let transfers = transfers.map(prepare).collect::<Result<Vec<_>, _>>()?;
        let passes = Passes::new(now().duration_since(begin), transfers.len());
        Ok((transfers, passes))
    }

    /// Returns the first place in memory of a transfer. The transfer that had it before has to end first.
    fn first(&self, turn: usize) -> usize {
        turn % self.cell.in_flight * self.cell.batch
    }

    /// Returns the blocks of a transfer, with their places in memory.
    fn of(&self, turn: usize) -> impl Iterator<Item = (usize, usize)> {
        let blocks = self.blocks.iter().copied().skip(turn * self.cell.batch).take(self.cell.batch);
        blocks.zip(self.first(turn)..)
    }

    fn words(&self) -> usize {
        self.cell.bytes / WORD
    }

    /// Returns a word of a place in memory, which no transfer uses now: those of the place have ended, or begin later.
    fn at(&self, place: usize, word: usize) -> *mut u64 {
        let at = place * self.words() + word;
        assert!((at + 1) * WORD <= self.memory.len(), "a place of the memory");
        self.memory.as_ptr().cast::<u64>().wrapping_add(at)
    }

    fn put(&self, place: usize, word: usize, value: u64) {
        // SAFETY: it is inside the memory and aligned, and nobody else touches it.
        unsafe { self.at(place, word).write(value) };
    }

    fn take(&self, place: usize, word: usize) -> u64 {
        // SAFETY: as above.
        unsafe { self.at(place, word).replace(0) }
    }

    /// Returns the content of a block in the first pass, between its ends.
    fn inner(&self, block: usize) -> impl Iterator<Item = (usize, u64)> {
        let first = block * self.words();
        (1..self.words() - 1).map(move |at| (at, word(first + at)))
    }

    /// Returns the first word of a block, and the last one.
    fn ends(&self) -> [usize; 2] {
        [0, self.words() - 1]
    }

    /// Prepares memory: with what is to be written, or cleared for what is to be read.
    fn before(&self, turn: usize, direction: Direction, pass: usize) {
        for (block, place) in self.of(turn) {
            match direction {
                Direction::Write => {
                    if pass == 0 {
                        self.inner(block).for_each(|(at, word)| self.put(place, at, word));
                    }
                    self.ends().into_iter().for_each(|at| self.put(place, at, mark(block, pass)));
                }
                Direction::Read => self.ends().into_iter().for_each(|at| self.put(place, at, 0)),
            }
        }
    }

    /// Returns whether a transfer read what was written.
    fn is_right(&self, turn: usize, pass: usize) -> bool {
        self.of(turn).all(|(block, place)| {
            let whole = pass > 0 || self.inner(block).all(|(at, word)| self.take(place, at) == word);
            whole && self.ends().into_iter().all(|at| self.take(place, at) == mark(block, pass))
        })
    }
}

impl<S: Storage> Turns for Turn<'_, S> {
    fn before(&self, turn: usize) {
        self.own.before(turn, self.direction, self.pass);
    }

    fn post(&self, turn: usize) -> Result<(), BenchError> {
        self.storage.post(&self.transfers[turn])
    }

    fn wait(&self, turn: usize) -> Result<Duration, BenchError> {
        self.storage.wait(&self.transfers[turn])
    }

    fn after(&self, turn: usize) -> Result<(), BenchError> {
        if self.direction == Direction::Read && !self.own.is_right(turn, self.pass) {
            return Err(BenchError::Wrong { over: self.over.to_string(), bytes: self.own.cell.bytes });
        }
        Ok(())
    }
}

/// Returns the word with which a block begins and ends in a pass; never 0.
fn mark(block: usize, pass: usize) -> u64 {
    mixed(((pass as u64) << 32) + block as u64 + 1)
}

/// Maps each number to another one, and 0 alone to 0.
fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Draws at most `most` of the numbers below `all`, each once, at random, and always the same ones.
fn draw(all: usize, most: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..all).collect();
    let most = most.min(all);
    for at in 0..most {
        let other = at + (mixed(at as u64 + 1) >> 32) as usize % (all - at);
        numbers.swap(at, other);
    }
    numbers.truncate(most);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::{BTreeMap, BTreeSet};

    /// What goes wrong with a storage.
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        None,
        /// From this pass on nothing is written.
        Deaf(usize),
        /// From this pass on nothing is read.
        Mute(usize),
        /// Blocks are mistaken for their neighbours.
        Mixed,
        /// A byte amid a block is another.
        Flipped,
    }

    /// Blocks in the memory of this process.
    struct Kept {
        memory: Arc<PrivateMemory>,
        bytes: usize,
        fault: Fault,
        pass: RefCell<usize>,
        blocks: RefCell<BTreeMap<usize, Vec<u8>>>,
    }

    impl Storage for Kept {
        type Transfer = (Direction, Vec<usize>, usize);

        fn prepare(&self, direction: Direction, blocks: &[usize], first: usize) -> Result<Self::Transfer, BenchError> {
            Ok((direction, blocks.to_vec(), first))
        }

        fn post(&self, (direction, blocks, first): &Self::Transfer) -> Result<(), BenchError> {
            let (pass, mut kept) = (*self.pass.borrow(), self.blocks.borrow_mut());
            for (&block, place) in blocks.iter().zip(*first..) {
                // SAFETY: it is inside the memory, and nobody else touches it.
                let own = unsafe {
                    let at = self.memory.as_ptr().add(place * self.bytes);
                    std::slice::from_raw_parts_mut(at, self.bytes)
                };
                match (direction, self.fault) {
                    (Direction::Write, Fault::Deaf(from)) | (Direction::Read, Fault::Mute(from)) if pass > from => {}
                    (Direction::Write, _) => drop(kept.insert(block, own.to_vec())),
                    (Direction::Read, fault) => {
                        let from = block ^ usize::from(fault == Fault::Mixed);
                        own.fill(0);
                        kept.get(&from).into_iter().for_each(|bytes| own.copy_from_slice(bytes));
                        own[self.bytes / 2] ^= u8::from(fault == Fault::Flipped);
                    }
                }
            }
            Ok(())
        }

        fn wait(&self, _: &Self::Transfer) -> Result<Duration, BenchError> {
            Ok(Duration::ZERO)
        }

        fn make_way(&self, _: &[usize]) -> Result<(), BenchError> {
            *self.pass.borrow_mut() += 1;
            Ok(())
        }
    }

    fn check(fault: Fault, is_right: bool) {
        let cell = Cell { bytes: 64, batch: 2, in_flight: 3 };
        let memory = Arc::new(PrivateMemory::new(1 << 12).expect("memory"));
        let own = Own { cell, passes: 2, memory: memory.clone(), blocks: draw(50, 50) };
        let (pass, blocks) = (RefCell::default(), RefCell::default());
        let storage = Kept { memory, bytes: cell.bytes, fault, pass, blocks };
        match own.rows(Over::File, &storage) {
            Ok([written, read]) => {
                assert!(is_right, "it is noticed");
                assert_eq!((written.who().as_str(), read.who().as_str()), ("file, write", "file"));
                assert!(read.gb_per_s > 0.0 && read.p50_us <= read.p99_us);
            }
            Err(error) => assert!(!is_right && error.to_string().contains("64 bytes over file arrived wrong")),
        }
    }

    #[test]
    fn what_is_not_written_or_read_in_some_pass_is_noticed() {
        check(Fault::None, true);
        for pass in 0..3 {
            check(Fault::Deaf(pass), false);
            check(Fault::Mute(pass), false);
        }
        check(Fault::Mixed, false);
        check(Fault::Flipped, false);
    }

    #[test]
    fn each_block_is_drawn_once() {
        let drawn = draw(100, 40);
        let different: BTreeSet<_> = drawn.iter().collect();
        assert!(different.len() == 40 && drawn.iter().all(|&number| number < 100) && !drawn.is_sorted());
        assert_eq!((draw(100, 40), draw(3, 9).len()), (drawn, 3));
    }
}
