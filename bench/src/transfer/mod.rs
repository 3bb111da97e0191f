//! Reads between two processes, beside what the machine does at best by the same pattern: plain copies of one's own
//! memory, and a plain stream over loopback.
//!
//! A pass reads the owner's pool once, block by block in order, with a given number of reads in flight: all blocks of a size
//! are read before any is read again, so that no cache holds the next one because it was the last one. After the passes of
//! a size every byte is compared. (bench/peers/rotation.py does the same with other transfer engines, and writes the same
//! rows.)

mod ends;
mod latency;
mod stream;

use clap::Args;
use ends::{Owner, Reader};
use serde_json::{Value, json};
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;
use transport::{Lane, Memory, SealedMemory};

const POOL_BYTES: usize = 256 << 20;
const QUICK_POOL_BYTES: usize = 32 << 20;
const SIZES: [usize; 8] = [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20];
const QUICK_SIZES: [usize; 3] = [4 << 10, 64 << 10, 4 << 20];
const IN_FLIGHT: [usize; 2] = [1, 8];
/// Passes that are measured, after one that touches memory; the median counts.
const PASSES: usize = 3;

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// The lane; all, `tcp` with checksums and without, if it is not given.
    #[arg(long)]
    lane: Option<Lane>,
    /// With checksums over the lane that is given.
    #[arg(long, requires = "lane")]
    checksums: bool,
    /// Connections of `tcp`.
    #[arg(long, default_value_t = transport::TcpConfig::default().connections)]
    connections: u16,
    /// Three sizes, a small pool, one pass: to see that it works.
    #[arg(long)]
    quick: bool,
    /// File for the rows.
    #[arg(long)]
    json: Option<PathBuf>,
    /// The other process of the measurement.
    #[arg(long, hide = true)]
    owner: bool,
}

impl Options {
    fn pool_bytes(&self) -> usize {
        if self.quick { QUICK_POOL_BYTES } else { POOL_BYTES }
    }

    fn sizes(&self) -> &'static [usize] {
        if self.quick { &QUICK_SIZES } else { &SIZES }
    }

    /// The lanes to measure, and whether with checksums.
    fn lanes(&self) -> Vec<(Lane, bool)> {
        match self.lane {
            Some(lane) => vec![(lane, self.checksums)],
            None => vec![(Lane::Shm, false), (Lane::Tcp, false), (Lane::Tcp, true)],
        }
    }

    fn passes(&self) -> usize {
        if self.quick { 1 } else { PASSES }
    }
}

/// One line of the table.
struct Row {
    peer: &'static str,
    lane: String,
    bytes: usize,
    in_flight: usize,
    seconds: f64,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    if options.owner {
        return ends::own(options.pool_bytes());
    }
    let owner = Owner::spawn(options)?;
    let pool = ends::pool(options.pool_bytes())?;
    let mut rows = limits(options)?;
    for (lane, checksums) in options.lanes() {
        let reader = Reader::connect(lane, checksums, options.connections, &owner, pool.clone())?;
        for &bytes in options.sizes() {
            ends::clear(&pool);
            for in_flight in IN_FLIGHT.into_iter().filter(|in_flight| bytes * in_flight <= pool.len()) {
                let seconds = measure(options, || reader.prepare_pass(bytes), |reads| reader.pass(reads, in_flight))?;
                let lane = if checksums { format!("{lane}, checksums") } else { lane.to_string() };
                rows.push(Row {
                    peer: "baton",
                    lane,
                    bytes,
                    in_flight,
                    seconds: seconds / (pool.len() / bytes) as f64,
                });
            }
            if !ends::is_filled(&pool) {
                return Err(format!("reads of {bytes} bytes over {lane} arrived wrong").into());
            }
        }
    }
    rows.extend(latency::rows()?);
    report(&rows);
    if let Some(path) = &options.json {
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        std::fs::write(path, serde_json::to_string_pretty(&rows)?)?;
    }
    Ok(())
}

/// The rows of plain copies, on one thread between two memories of this process, and of a plain stream.
fn limits(options: &Options) -> Result<Vec<Row>, Box<dyn Error>> {
    let (from, to) = (ends::pool(options.pool_bytes())?, ends::pool(options.pool_bytes())?);
    let copy = |bytes: usize| {
        for at in (0..from.len()).step_by(bytes) {
            // SAFETY: both memories are as long, this function's own, and apart.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().add(at), to.as_ptr().add(at), bytes) };
        }
        std::hint::black_box(to.as_ptr());
        Ok(())
    };
    let mut rows = Vec::new();
    for &bytes in options.sizes() {
        let mut add = |peer, lane: &str, seconds: f64| {
            let seconds = seconds / (from.len() / bytes) as f64;
            rows.push(Row { peer, lane: lane.to_owned(), bytes, in_flight: 1, seconds });
        };
        add("memcpy", "this process", measure(options, || Ok(()), |()| copy(bytes))?);
        add("stream", "loopback", stream::pass(options, &from, &to, bytes)?);
    }
    Ok(rows)
}

/// The median of the passes, without what prepares each.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn measure<T>(
    options: &Options,
    prepare: impl Fn() -> Result<T, Box<dyn Error>>,
    pass: impl Fn(T) -> Result<(), Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    pass(prepare()?)?;
    let mut seconds = Vec::new();
    for _ in 0..options.passes() {
        let prepared = prepare()?;
        let begin = Instant::now();
        pass(prepared)?;
        seconds.push(begin.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}

impl Row {
    fn json(&self) -> Value {
        json!({
            "peer": self.peer,
            "lane": self.lane,
            "operation": "read",
            "bytes": self.bytes,
            "in_flight": self.in_flight,
            "seconds": self.seconds,
        })
    }
}

fn report(rows: &[Row]) {
    println!("| bytes | who | lane | in flight | us a block | GB/s |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by_key(|row| row.bytes);
    for Row { peer, lane, bytes, in_flight, seconds } in rows {
        let (us, rate) = (seconds * 1e6, *bytes as f64 / seconds / 1e9);
        println!("| {bytes} | {peer} | {lane} | {in_flight} | {us:.2} | {rate:.2} |");
    }
}

/// Memory that both ends can have.
type Pool = std::sync::Arc<SealedMemory>;
