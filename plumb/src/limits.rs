//! What moving the bytes of a prompt takes at best: a plain copy of one thread, and plain reads past the page cache by the mover that
//! the disk tier has.

use crate::TURNS;
use crate::error::PlumbError;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use transport::{
    Direction, FILE_ALIGN, FileBatch, FileConfig, FileCopy, FileMover, FileSpec, Memory, RegionId, SealedMemory,
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

/// Seconds of plain copies of these records, given by length and number, once for each round.
pub(crate) fn copies(records: &[(usize, u32)], rounds: usize) -> io::Result<Vec<f64>> {
    let bytes: usize = records.iter().map(|&(len, count)| len * count as usize).sum();
    let longest = records.iter().map(|&(len, _)| len).max().unwrap_or(0);
    let room = bytes.max(COPIED_BYTES_MIN) + longest;
    let (from, to) = (SealedMemory::new("plumb-from", room)?, SealedMemory::new("plumb-to", room)?);
    for memory in [&from, &to] {
        // SAFETY: the memory is that long, and nobody else has it. A page that was never touched is given out while it is copied.
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

/// Plain reads of as many bytes as a prompt has.
pub(crate) struct RawReads {
    /// Seconds of each round.
    pub(crate) seconds: Vec<f64>,
    /// What read, in words.
    pub(crate) mover: String,
    /// Why the page cache was in the way, if it was.
    pub(crate) buffered: Option<String>,
}

/// Reads these records from a file in the folder, which is made and removed, with `depth` reads under way: each round those of another
/// prompt, like the tier, since what was read just now comes back faster. Errors: [`PlumbError::Raw`].
pub(crate) fn raw_reads(
    records: &[(usize, u32)],
    rounds: usize,
    depth: u32,
    folder: &Path,
) -> Result<RawReads, PlumbError> {
    let path = folder.join("raw");
    let read = read(records, rounds, depth, &path);
    // It is there unless it could not be made.
    let _ = fs::remove_file(&path);
    read.map_err(|why| PlumbError::Raw { folder: folder.to_owned(), why })
}

fn read(records: &[(usize, u32)], rounds: usize, depth: u32, path: &Path) -> Result<RawReads, String> {
    let system = |error: io::Error| error.to_string();
    let room = |len: usize| len.next_multiple_of(FILE_ALIGN as usize);
    let bytes: usize = records.iter().map(|&(len, count)| room(len) * count as usize).sum();
    let (sender, ends) = sync_channel(1);
    let config = FileConfig { name: "plumb".to_owned(), depth, posted_max: 1, io_uring: true };
    let mover = FileMover::start(config, Box::new(move |end| drop(sender.try_send(end)))).map_err(system)?;
    let memory = Arc::new(SealedMemory::new("plumb-raw", bytes).map_err(system)?);
    // SAFETY: the memory is that long, and nobody else has it. What is written is not what was there before.
    unsafe { std::ptr::write_bytes(memory.as_ptr(), 0x5A, bytes) };
    mover.register(memory);
    let file_bytes = (bytes as u64 * TURNS as u64).next_multiple_of(STRIPE_BYTES);
    let spec = FileSpec { paths: vec![path.to_owned()], bytes: file_bytes, stripe_bytes: STRIPE_BYTES };
    let file = mover.open(&spec).map_err(system)?;
    let run = |direction, turn: usize| {
        let (mut at, mut batches) = (0, Vec::new());
        let begin = bytes as u64 * (turn % TURNS) as u64;
        for &(len, count) in records {
            let len = room(len);
            let copies =
                (0..u64::from(count)).map(|n| at + n * len as u64).map(|at| FileCopy { file: begin + at, memory: at });
            batches.push(FileBatch { direction, file, memory: RegionId(0), len, copies: copies.collect() });
            at += u64::from(count) * len as u64;
        }
        let transfer = mover.prepare(batches).map_err(|error| error.to_string())?;
        let begin = now();
        mover.post(transfer).map_err(|error| error.to_string())?;
        let end = ends.recv_timeout(PATIENCE).map_err(|_| format!("it takes longer than {} s", PATIENCE.as_secs()))?;
        end.result.map_err(|error| error.to_string())?;
        Ok::<_, String>(seconds_since(begin))
    };
    (0..TURNS).try_for_each(|turn| run(Direction::Write, turn).map(drop))?;
    let seconds = (0..rounds).map(|round| run(Direction::Read, round)).collect::<Result<_, _>>()?;
    let status = mover.status();
    let how = status.no_io_uring.map_or("io_uring".to_owned(), |why| format!("threads that block ({why})"));
    Ok(RawReads { seconds, mover: how, buffered: status.buffered.into_iter().flatten().next() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_reads_are_done_as_often_as_asked() {
        let records = [(10_000, 7), (4096, 3)];
        assert_eq!(copies(&records, 2).expect("there is memory").len(), 2);
        let folder = tempfile::tempdir().expect("a folder");
        let reads = raw_reads(&records, 2, 4, folder.path()).expect("files can be read");
        assert!(reads.seconds.len() == 2 && reads.seconds.iter().all(|seconds| *seconds > 0.0));
        assert!(!folder.path().join("raw").exists(), "it is removed");
        let error = raw_reads(&records, 1, 4, Path::new("/proc/none")).err().expect("no file can be there");
        assert!(error.to_string().contains("--folder"), "{error}");
    }
}
