//! What came of a run, as data and as text.

use crate::settings::Settings;
use bench_report::short;
use serde::Serialize;
use std::fmt;

/// What rows are of: of reads, unless they say that they are of writes.
pub(crate) const READ: &str = "read";
pub(crate) const WRITE: &str = "write";

/// What came of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Of the program.
    pub version: &'static str,
    /// What was measured.
    pub settings: Settings,
    /// What else is to be known of how files and objects were reached.
    pub notes: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
}

/// A figure: reads of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// `baton`, or what it is compared with.
    pub peer: &'static str,
    /// The lane, and what is special about it.
    pub lane: String,
    /// What was done.
    pub operation: &'static str,
    /// Bytes of a block.
    pub bytes: usize,
    /// Blocks of a transfer.
    pub batch: usize,
    /// Transfers in flight.
    pub in_flight: usize,
    /// Seconds for each block, of the median pass.
    pub seconds: f64,
    /// GB/s of it.
    pub gb_per_s: f64,
    /// Microseconds from the post of a transfer until its end was heard of: the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_us: Option<f64>,
    /// The same, of half of them at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// The same, of all but one in a hundred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Microseconds to prepare a transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepare_us: Option<f64>,
    /// Microseconds inside the call that posts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_us: Option<f64>,
    /// Microseconds in which its bytes were copied or came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire_us: Option<f64>,
}

impl Row {
    /// Returns the blocks that are read one by one.
    pub(crate) fn plain(peer: &'static str, lane: String, bytes: usize, in_flight: usize, seconds: f64) -> Self {
        Self {
            peer,
            lane,
            operation: READ,
            bytes,
            batch: 1,
            in_flight,
            seconds,
            gb_per_s: bytes as f64 / seconds / 1e9,
            mean_us: None,
            p50_us: None,
            p99_us: None,
            prepare_us: None,
            post_us: None,
            wire_us: None,
        }
    }

    /// Returns the system and the lane, and whether it wrote, as tables name them.
    pub(crate) fn who(&self) -> String {
        match (self.peer, self.operation) {
            ("baton", WRITE) => format!("{}, {WRITE}", self.lane),
            ("baton", _) => self.lane.clone(),
            (peer, _) => format!("{peer}, {}", self.lane),
        }
    }

    /// Returns the times of a transfer, in the order of [`TIMES`].
    pub(crate) fn times(&self) -> [Option<f64>; 6] {
        [self.mean_us, self.p50_us, self.p99_us, self.prepare_us, self.post_us, self.wire_us]
    }
}

/// What the times of a transfer are called.
pub(crate) const TIMES: [&str; 6] = ["mean", "P50", "P99", "prepare", "post", "wire"];

/// Returns a number of bytes in the unit that suits it.
pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

impl fmt::Display for Report {
    /// Returns a table for a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = self.rows.iter().map(|row| row.who().len()).max().unwrap_or(0).max(4) + 1;
        write!(f, "{:<who$}{:>9}{:>7}{:>10}{:>8}{:>10}", "over", "block", "batch", "in flight", "GB/s", "us/block")?;
        for name in TIMES {
            write!(f, "{name:>10}")?;
        }
        writeln!(f)?;
        for row in &self.rows {
            let (name, block, us) = (row.who(), size(row.bytes), short(row.seconds * 1e6));
            write!(f, "{name:<who$}{block:>9}{:>7}{:>10}{:>8.2}{us:>10}", row.batch, row.in_flight, row.gb_per_s)?;
            for time in row.times() {
                write!(f, "{:>10}", time.map_or(String::new(), short))?;
            }
            writeln!(f)?;
        }
        writeln!(f, "\nmean to wire are microseconds of a transfer; what was read was compared")?;
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}
