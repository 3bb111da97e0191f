//! Reads and writes of a file by the mover of files, at random places, with a given number under way: the pattern that fio
//! has in bench/peers/fio, which runs both in turn.

use crate::filled::{FILLED, fill, is_filled};
use clap::Args;
use serde_json::json;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use transport::{
    Direction, FileBatch, FileConfig, FileCopy, FileEnd, FileId, FileMover, FileSpec, FileTransfer, Memory, RegionId,
    SealedMemory,
};

/// Transfers posted at once, each of as many operations as may be under way: while one ends the other is. So little memory is read
/// into again and again that caches hold it, as they do fio's.
const POSTED_MAX: usize = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// A file on the device to measure; it is made and filled, and then removed.
    #[arg(long, default_value = "target/bench-file")]
    path: PathBuf,
    /// Bytes of the file.
    #[arg(long, default_value_t = 1 << 30)]
    bytes: u64,
    /// Bytes of a read or write.
    #[arg(long, default_value_t = 1 << 20)]
    block: usize,
    /// Reads or writes under way.
    #[arg(long, default_value_t = 16)]
    depth: u32,
    /// Seconds of each direction.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Threads that block in place of io_uring.
    #[arg(long)]
    threads: bool,
    /// Leave the file, for others to read and write the same places of the device.
    #[arg(long)]
    keep: bool,
    /// File for the figures.
    #[arg(long)]
    json: Option<PathBuf>,
}

struct Mover {
    mover: FileMover,
    ends: Receiver<FileEnd>,
    memory: Arc<SealedMemory>,
    file: FileId,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let blocks = options.bytes / options.block as u64;
    let memory_bytes = options.block * options.depth as usize * POSTED_MAX;
    let (sender, ends) = sync_channel(2 * POSTED_MAX);
    let config = FileConfig {
        name: "bench".to_owned(),
        depth: options.depth,
        posted_max: POSTED_MAX,
        io_uring: !options.threads,
    };
    let mover = FileMover::start(config, Box::new(move |end| drop(sender.try_send(end))))?;
    let memory = Arc::new(SealedMemory::new("bench", memory_bytes)?);
    mover.register(memory.clone());
    let spec = FileSpec { paths: vec![options.path.clone()], bytes: options.bytes, stripe_bytes: options.bytes };
    let file = mover.open(&spec)?;
    let mover = Mover { mover, ends, memory, file };
    eprintln!("{:?}", mover.mover.status());
    fill(&mover.memory, FILLED);
    mover.whole(options)?;
    let mut figures = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
        let bytes_per_s = mover.measure(options, direction, blocks)?;
        let name = if direction == Direction::Read { "read" } else { "write" };
        let (block, depth, threads) = (options.block, options.depth, options.threads);
        println!(
            "{name} of {block} bytes, {depth} under way: {:.3} GB/s, {:.0} a second",
            bytes_per_s / 1e9,
            bytes_per_s / block as f64
        );
        figures.push(json!({
            "direction": name, "block": block, "depth": depth, "threads": threads, "bytes_per_s": bytes_per_s,
        }));
    }
    drop(mover);
    if !options.keep {
        fs::remove_file(&options.path)?;
    }
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string_pretty(&figures)?)?;
    }
    Ok(())
}

impl Mover {
    /// Writes the whole file: reads of what was never written touch no device.
    fn whole(&self, options: &Options) -> Result<(), Box<dyn Error>> {
        let len = self.memory.len() as u64;
        for at in (0..options.bytes).step_by(self.memory.len()) {
            let len = len.min(options.bytes - at) as usize;
            self.post(&self.prepare(Direction::Write, len, vec![FileCopy { file: at, memory: 0 }])?)?;
            self.ended()?;
        }
        Ok(())
    }

    fn prepare(&self, direction: Direction, len: usize, copies: Vec<FileCopy>) -> Result<FileTransfer, Box<dyn Error>> {
        Ok(self.mover.prepare(vec![FileBatch { direction, file: self.file, memory: RegionId(0), len, copies }])?)
    }

    fn post(&self, transfer: &FileTransfer) -> Result<(), Box<dyn Error>> {
        self.mover.post(transfer)?;
        Ok(())
    }

    fn ended(&self) -> Result<u64, Box<dyn Error>> {
        Ok(self.ends.recv_timeout(PATIENCE)?.result?.bytes)
    }

    /// Bytes a second. What was read is compared afterwards.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
    fn measure(&self, options: &Options, direction: Direction, blocks: u64) -> Result<f64, Box<dyn Error>> {
        let each = options.depth as usize;
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut transfer = |turn: usize| {
            let copy = |n: usize| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let block = ((u128::from(random) * u128::from(blocks)) >> 64) as u64;
                let memory = ((turn % POSTED_MAX) * each + n) * options.block;
                FileCopy { file: block * options.block as u64, memory: memory as u64 }
            };
            self.prepare(direction, options.block, (0..each).map(copy).collect())
        };
        if direction == Direction::Read {
            fill(&self.memory, 0);
        }
        let begin = Instant::now();
        let (mut bytes, mut turn) = (0, 0);
        while turn < POSTED_MAX {
            self.post(&transfer(turn)?)?;
            turn += 1;
        }
        while begin.elapsed() < Duration::from_secs(options.seconds) {
            bytes += self.ended()?;
            self.post(&transfer(turn)?)?;
            turn += 1;
        }
        let seconds = begin.elapsed().as_secs_f64();
        for _ in 0..POSTED_MAX {
            self.ended()?;
        }
        if direction == Direction::Read && !is_filled(&self.memory) {
            return Err("what was read is not what was written".into());
        }
        Ok(bytes as f64 / seconds)
    }
}
