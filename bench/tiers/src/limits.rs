//! What moving the bytes of a prompt takes at best: a plain copy of one thread, and plain reads past the page
//! cache by the mover that the disk tier has.

use crate::bounds::TURNS;
use crate::error::{BenchError, RawError};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use transport::{
    Direction, FILE_ALIGN, Failure, FileBatch, FileConfig, FileCopy, FileEnd, FileId, FileMover, FileSpec,
    PrivateMemory, RegionId, SealedMemory,
};

/// Copies go round in as much memory, so that no cache holds the next record because it was the last one.
const COPIED_BYTES_MIN: usize = 256 << 20;
/// Time for the raw read of a prompt.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes that follow each other in the file that is read.
const STRIPE_BYTES: u64 = 1 << 20;

#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn seconds_since(begin: Instant) -> f64 {
    now().duration_since(begin).as_secs_f64()
}

/// Measures the seconds of plain copies of these records, given by length and number, once for each round.
pub(crate) fn copies(records: &[(usize, u32)], rounds: usize) -> io::Result<Vec<f64>> {
    let bytes: usize = records.iter().map(|&(len, count)| len * count as usize).sum();
    let longest = records.iter().map(|&(len, _)| len).max().unwrap_or(0);
    let room = bytes.max(COPIED_BYTES_MIN) + longest;
    let (from, to) = (SealedMemory::new("bench-from", room)?, SealedMemory::new("bench-to", room)?);
    for memory in [&from, &to] {
        // SAFETY: the memory is that long, and nobody else has it. A page that was never touched is given out
        // while it is copied.
        unsafe { std::ptr::write_bytes(memory.as_ptr(), 1, room) };
    }
    let mut at = 0;
    let mut pass = || {
        let begin = now();
        for &(len, count) in records {
            for _ in 0..count {
                // SAFETY: `at + len` is inside both memories, which are apart and nobody else's.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().add(at), to.as_ptr().add(at), len) };
                at = if at + len + longest > room { 0 } else { at + len };
            }
        }
        std::hint::black_box(to.as_ptr());
        seconds_since(begin)
    };
    Ok((0..rounds).map(|_| pass()).collect())
}

/// Plain reads of as many bytes as a prompt has, from a file that lasts as long as this value: each turn those of
/// another prompt, like the tier's, since what was read just now comes back faster.
pub(crate) struct RawReads {
    mover: FileMover,
    ends: Receiver<FileEnd>,
    file: FileId,
    /// Length and number.
    records: Vec<(usize, u32)>,
    /// Of all of them.
    bytes: usize,
    path: PathBuf,
}

impl RawReads {
    /// Writes the file into the folder, for reads of which `depth` are under way. Errors: [`BenchError::Raw`].
    pub(crate) fn new(records: Vec<(usize, u32)>, depth: u32, folder: &Path) -> Result<Self, BenchError> {
        let path = folder.join("raw");
        Self::written(records, depth, path.clone()).map_err(|why| {
            // It is there unless it could not be made.
            let _ = fs::remove_file(&path);
            BenchError::Raw { folder: folder.to_owned(), why }
        })
    }

    fn written(records: Vec<(usize, u32)>, depth: u32, path: PathBuf) -> Result<Self, RawError> {
        let bytes: usize = records.iter().map(|&(len, count)| room(len) * count as usize).sum();
        let (sender, ends) = sync_channel(1);
        let config = FileConfig { name: "bench".to_owned(), depth, posted_max: 1, io_uring: true };
        let mover = FileMover::start(config, &Failure::new(), Box::new(move |end| drop(sender.try_send(end))))?;
        let memory = Arc::new(PrivateMemory::new(bytes)?);
        // SAFETY: the memory is that long, and nobody else has it. What is written is not what was there before.
        unsafe { std::ptr::write_bytes(memory.as_ptr(), 0x5A, bytes) };
        mover.register(memory);
        let file_bytes = (bytes as u64 * TURNS as u64).next_multiple_of(STRIPE_BYTES);
        let spec = FileSpec { paths: vec![path.clone()], bytes: file_bytes, stripe_bytes: STRIPE_BYTES };
        let file = mover.open(&spec)?;
        let raw = Self { mover, ends, file, records, bytes, path };
        (0..TURNS).try_for_each(|turn| raw.run(Direction::Write, turn).map(drop))?;
        Ok(raw)
    }

    /// Measures the seconds that it takes to read what a turn has. Errors: [`BenchError::Raw`].
    pub(crate) fn read(&self, turn: usize) -> Result<f64, BenchError> {
        let folder = || self.path.parent().unwrap_or(&self.path).to_owned();
        self.run(Direction::Read, turn).map_err(|why| BenchError::Raw { folder: folder(), why })
    }

    fn run(&self, direction: Direction, turn: usize) -> Result<f64, RawError> {
        let (mut at, mut batches) = (0, Vec::new());
        let begin = self.bytes as u64 * turn as u64;
        for &(len, count) in &self.records {
            let len = room(len);
            let copies =
                (0..u64::from(count)).map(|n| at + n * len as u64).map(|at| FileCopy { file: begin + at, memory: at });
            batches.push(FileBatch { direction, file: self.file, memory: RegionId(0), len, copies: copies.collect() });
            at += u64::from(count) * len as u64;
        }
        let transfer = self.mover.prepare(batches)?;
        let begin = now();
        self.mover.post(&transfer)?;
        let end = self.ends.recv_timeout(PATIENCE).map_err(|_| RawError::Late { seconds: PATIENCE.as_secs() })?;
        end.result?;
        Ok(seconds_since(begin))
    }

    /// Returns the mover that reads, and why it is not a faster one.
    pub(crate) fn mover(&self) -> String {
        self.mover.status().to_string()
    }

    /// Returns why the page cache is in the way, if it is.
    pub(crate) fn buffered(&self) -> Option<String> {
        self.mover.status().buffered.into_iter().flatten().next()
    }
}

impl Drop for RawReads {
    fn drop(&mut self) {
        // What cannot be removed goes with the folder.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns what a record takes in files.
fn room(len: usize) -> usize {
    len.next_multiple_of(FILE_ALIGN as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_reads_are_done_as_often_as_asked() {
        let records = [(10_000, 7), (4096, 3)];
        assert_eq!(copies(&records, 2).expect("there is memory").len(), 2);
        let folder = tempfile::tempdir().expect("a folder");
        let raw = RawReads::new(records.to_vec(), 4, folder.path()).expect("files can be written");
        assert!((0..TURNS).all(|turn| raw.read(turn).expect("files can be read") > 0.0));
        drop(raw);
        assert!(!folder.path().join("raw").exists(), "it is removed");
        let error = RawReads::new(records.to_vec(), 4, Path::new("/proc/none")).err().expect("no file can be there");
        assert!(error.to_string().contains("--folder"), "{error}");
    }
}
