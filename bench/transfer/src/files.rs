//! Blocks in files of this host, by the mover that the disk tier has.

use crate::ends::PATIENCE;
use crate::error::BenchError;
use crate::own::{Own, Storage};
use crate::settings::{Cell, Over, Settings};
use std::path::PathBuf;
use std::time::Duration;
use transport::{
    Direction, Failure, FileBatch, FileConfig, FileCopy, FileId, FileMover, FileSpec, FileTransfer, RegionId,
    TransferState,
};

/// Blocks that are written and read in a pass, at most.
pub(crate) const FILE_BLOCKS_MAX: usize = 16 << 10;
/// Bytes that follow each other in one file before the next one's turn: as the disk tier has it.
const STRIPE_BYTES: u64 = 1 << 20;
/// What the file in each folder is called, before its number.
const NAME: &str = "baton-bench-transfer";

/// The files of a run. They are removed when it is dropped, unless they are to be kept.
pub(crate) struct RunFiles<'a> {
    settings: &'a Settings,
    paths: Vec<PathBuf>,
}

/// The files as a cell has them.
pub(crate) struct FileBlocks {
    mover: FileMover,
    file: FileId,
    memory: RegionId,
    bytes: usize,
}

impl<'a> RunFiles<'a> {
    pub(crate) fn new(settings: &'a Settings) -> Self {
        let folders = settings.files.folders.iter().enumerate();
        Self { settings, paths: folders.map(|(n, folder)| folder.join(format!("{NAME}-{n}"))).collect() }
    }

    /// Opens the files. Errors: of the system, with the path.
    pub(crate) fn open(&self, cell: Cell, own: &Own) -> Result<FileBlocks, BenchError> {
        let depth = self.settings.files.depth;
        let config = FileConfig { name: "bench".to_owned(), depth, posted_max: cell.in_flight, io_uring: true };
        // Every transfer is waited for.
        let mover = FileMover::start(config, &Failure::new(), Box::new(drop))?;
        let memory = mover.register(own.memory());
        let spec =
            FileSpec { paths: self.paths.clone(), bytes: self.settings.pool_bytes as u64, stripe_bytes: STRIPE_BYTES };
        let file = mover.open(&spec)?;
        Ok(FileBlocks { mover, file, memory, bytes: cell.bytes })
    }

    /// Returns which way was taken, and where the files are.
    pub(crate) fn told(&self, blocks: &FileBlocks) -> String {
        let status = blocks.mover.status();
        let folders: Vec<_> = self.settings.files.folders.iter().map(|it| it.display().to_string()).collect();
        let (folders, depth) = (folders.join(" and "), self.settings.files.depth);
        let cache = status.buffered.iter().flatten().next();
        let cache = cache.map_or("past the page cache".to_owned(), |why| format!("through the page cache: {why}"));
        format!("file: {status} in {folders}, at most {depth} reads or writes under way, {cache}")
    }
}

impl Drop for RunFiles<'_> {
    fn drop(&mut self) {
        if !self.settings.keep {
            // What cannot be removed was not made, or is its folder's matter.
            self.paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
        }
    }
}

impl Storage for FileBlocks {
    type Transfer = FileTransfer;

    fn prepare(&self, direction: Direction, blocks: &[usize], first: usize) -> Result<FileTransfer, BenchError> {
        let copy = |(&block, place): (&usize, usize)| FileCopy {
            file: (block * self.bytes) as u64,
            memory: (place * self.bytes) as u64,
        };
        let copies = blocks.iter().zip(first..).map(copy).collect();
        let batch = FileBatch { direction, file: self.file, memory: self.memory, len: self.bytes, copies };
        Ok(self.mover.prepare(vec![batch])?)
    }

    fn post(&self, transfer: &FileTransfer) -> Result<(), BenchError> {
        self.mover.post(transfer)?;
        Ok(())
    }

    fn wait(&self, transfer: &FileTransfer) -> Result<Duration, BenchError> {
        match transfer.wait(PATIENCE) {
            TransferState::Ended(result) => Ok(result?.wire),
            TransferState::UnderWay | TransferState::Unposted => Err(BenchError::hangs(Over::File, PATIENCE)),
        }
    }

    fn make_way(&self, _: &[usize]) -> Result<(), BenchError> {
        Ok(())
    }
}
