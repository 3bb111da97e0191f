//! File transfers: prepared once from lists of copies, checked, and cut into operations as they are carried out.

use super::operation::Operation;
use super::stripes::{FILE_ALIGN, Stripes};
use crate::regions::RegionId;
use crate::speed::storage_speed::Both;
use kv_memory::Memory;
use std::sync::Arc;

/// A region of files of one mover, in the order in which they were opened, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From files to memory.
    Read,
    /// From memory to files.
    Write,
}

/// One contiguous piece of a region of files and of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileCopy {
    /// Byte offset in the files.
    pub file: u64,
    /// Byte offset in the memory.
    pub memory: u64,
}

/// Copies of one length between one region of files and one of memory, in no order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileBatch {
    /// Which way.
    pub direction: Direction,
    /// The files.
    pub file: FileId,
    /// The memory.
    pub memory: RegionId,
    /// Bytes of each copy, a multiple of [`FILE_ALIGN`] as all offsets are.
    pub len: usize,
    /// The copies; they may be carried out in any order.
    pub copies: Vec<FileCopy>,
}

/// Why a file transfer could not be prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilePrepareError {
    /// Files that were never opened.
    #[error("the mover has no files {0:?}")]
    NoFile(FileId),
    /// Memory that was never registered.
    #[error("the mover has no memory {0:?}")]
    NoMemory(RegionId),
    /// Memory of a device, which neither the system nor this process reads or writes.
    #[error("the memory {0:?} is a device's: files are read into the host's")]
    Device(RegionId),
    /// A copy that leaves its files or its memory.
    #[error("the copy of {len} bytes at {} of the files and {} of the memory leaves them", copy.file, copy.memory)]
    OutOfBounds {
        /// The copy.
        copy: FileCopy,
        /// Its bytes.
        len: usize,
    },
    /// A copy that direct reads and writes cannot do.
    #[error("the copy of {len} bytes at {} of the files and {} of the memory is not aligned to {FILE_ALIGN} bytes", copy.file, copy.memory)]
    Unaligned {
        /// The copy.
        copy: FileCopy,
        /// Its bytes.
        len: usize,
    },
}

/// Pieces of one region of files and of memory.
pub(super) struct Run {
    direction: Direction,
    stripes: Arc<Stripes>,
    region: RegionId,
    memory: Arc<dyn Memory>,
    pieces: Vec<(FileCopy, usize)>,
}

/// What a transfer does: checked against the bounds of its regions, holding them open and mapped.
pub(super) struct FilePlan {
    runs: Vec<Run>,
    pub(super) bytes: Both<u64>,
}

/// What is done next. Not the cursor of transfers between agents: a run may be empty here, and stripes cut pieces.
#[derive(Clone, Copy, Default)]
pub(super) struct Cursor {
    run: usize,
    piece: usize,
    /// Bytes of the piece that operations were made of.
    offset: usize,
}

impl Run {
    /// Checks a batch and merges what is neighboured at both ends.
    pub(super) fn new(
        batch: FileBatch,
        stripes: Arc<Stripes>,
        memory: Arc<dyn Memory>,
    ) -> Result<Self, FilePrepareError> {
        let FileBatch { direction, memory: region, len, mut copies, .. } = batch;
        let first = memory.place().host().ok_or(FilePrepareError::Device(region))?;
        let inside = |offset: u64, bytes: u64| offset.checked_add(len as u64).is_some_and(|end| end <= bytes);
        let base = first.addr() as u64;
        for &copy in &copies {
            if !inside(copy.file, stripes.bytes()) || !inside(copy.memory, memory.len() as u64) {
                return Err(FilePrepareError::OutOfBounds { copy, len });
            }
            if [copy.file, base + copy.memory, len as u64].iter().any(|value| value % FILE_ALIGN != 0) {
                return Err(FilePrepareError::Unaligned { copy, len });
            }
        }
        copies.sort_unstable_by_key(|copy| copy.file);
        let mut pieces: Vec<(FileCopy, usize)> = Vec::with_capacity(copies.len());
        for copy in copies.into_iter().filter(|_| len > 0) {
            match pieces.last_mut() {
                Some((first, bytes))
                    if first.file + *bytes as u64 == copy.file && first.memory + *bytes as u64 == copy.memory =>
                {
                    *bytes += len;
                }
                _ => pieces.push((copy, len)),
            }
        }
        Ok(Self { direction, stripes, region, memory, pieces })
    }
}

impl FilePlan {
    pub(super) fn new(runs: Vec<Run>) -> Self {
        let mut bytes = Both::default();
        for run in &runs {
            let of = match run.direction {
                Direction::Read => &mut bytes.read,
                Direction::Write => &mut bytes.written,
            };
            *of += run.pieces.iter().map(|(_, len)| *len as u64).sum::<u64>();
        }
        Self { runs, bytes }
    }

    /// Returns whether nothing is behind the cursor.
    pub(super) fn is_over(&self, cursor: &Cursor) -> bool {
        let begun = self.runs.get(cursor.run).is_none_or(|run| run.pieces.len() == cursor.piece);
        begun && self.runs.iter().skip(cursor.run + 1).all(|run| run.pieces.is_empty())
    }

    /// The next operation of at most `len_max(region offset)` bytes, and moves on behind it.
    pub(super) fn next(&self, cursor: &mut Cursor, len_max: impl Fn(u64) -> usize) -> Option<Operation> {
        loop {
            let run = self.runs.get(cursor.run)?;
            let Some(&(copy, len)) = run.pieces.get(cursor.piece) else {
                *cursor = Cursor { run: cursor.run + 1, ..Cursor::default() };
                continue;
            };
            let region_offset = copy.memory + cursor.offset as u64;
            let left = (len - cursor.offset).min(len_max(region_offset));
            let range = run.stripes.range(copy.file + cursor.offset as u64, left);
            cursor.offset += range.len;
            if cursor.offset == len {
                *cursor = Cursor { piece: cursor.piece + 1, offset: 0, ..*cursor };
            }
            // Inside the memory: it was checked.
            let memory =
                run.memory.place().host().expect("it was seen to be host memory").wrapping_add(region_offset as usize);
            let write = run.direction == Direction::Write;
            return Some(Operation { range, memory, region: run.region, region_offset, write, repeats: 0 });
        }
    }
}
