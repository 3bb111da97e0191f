//! What a run measures.

use crate::error::BenchError;
use crate::pool::PART_BYTES;
use domain::Secrets;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use transport::{FILE_ALIGN, Lane, ObjectCredentials, Tls};

/// Reads in flight, at most.
pub(crate) const IN_FLIGHT_MAX: usize = 64;
/// Blocks are multiples of it, and at least as large.
const BLOCK_BYTES_MIN: usize = 64;

/// Over what blocks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// A lane to another process, whose memory is read; over `local` to another memory of this one.
    Peer(Wire),
    /// Files of this host, which are written and read.
    File,
    /// Objects of a store, which are written and read. Each block is one.
    Object,
}

/// A lane to a peer, and whether its bytes carry checksums, come encoded, and are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// The lane.
    pub lane: Lane,
    /// Whether they carry checksums.
    pub checksums: bool,
    /// Whether KV comes encoded: as whole numbers of a byte, of numbers of two.
    pub int8: bool,
    /// Whether they are encrypted.
    pub tls: bool,
}

/// What proves to both ends that they belong together.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// What both know.
    pub secrets: Secrets,
    /// What also encrypts; `None`: nothing does.
    pub tls: Option<Tls>,
}

/// The files of [`Over::File`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct Files {
    /// Folders, of as many devices: the pool is striped over a file in each.
    pub folders: Vec<PathBuf>,
    /// Reads and writes under way at once, whatever is in flight.
    pub depth: u32,
}

/// The store of [`Over::Object`].
#[derive(Clone, Debug, Serialize)]
pub struct Store {
    /// Where it is: `https://HOST[:PORT]`, or `http://`.
    pub endpoint: String,
    /// Region that requests are signed for.
    pub region: String,
    /// Bucket of all objects.
    pub bucket: String,
    /// Credentials of the requests.
    #[serde(skip)]
    pub credentials: ObjectCredentials,
    /// Requests under way at once, whatever is in flight.
    pub requests: usize,
}

/// Where the owner is: what a reader of another host has to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerAddress {
    /// Drawn at random by its process.
    pub process: u64,
    /// Name of an abstract Unix socket; empty: none.
    pub unix: String,
    /// `host:port`; empty: none.
    pub tcp: String,
}

/// What to measure.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// The lanes, in order.
    #[serde(serialize_with = "names")]
    pub over: Vec<Over>,
    /// Bytes of a block.
    pub sizes: Vec<usize>,
    /// Blocks of a transfer.
    pub batches: Vec<usize>,
    /// Transfers in flight.
    pub in_flight: Vec<usize>,
    /// Bytes of the pool that is read: of the owner's memory, of the files, or of the objects together.
    pub pool_bytes: usize,
    /// Passes that count, after one that does not; the median is told.
    pub passes: usize,
    /// Connections of `tcp`.
    pub connections: u16,
    /// What proves that both ends belong together.
    #[serde(skip)]
    pub trust: Trust,
    /// Where files are.
    pub files: Files,
    /// Where objects are; `None`: nowhere.
    pub store: Option<Store>,
    /// Whether files and objects are left for others to read.
    pub keep: bool,
}

/// One cell of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) bytes: usize,
    pub(crate) batch: usize,
    pub(crate) in_flight: usize,
}

impl Over {
    /// Returns the lane, if it is one to a peer.
    pub(crate) fn wire(self) -> Option<Wire> {
        match self {
            Self::Peer(wire) => Some(wire),
            Self::File | Self::Object => None,
        }
    }

    /// Returns whether it can do that.
    pub(crate) fn takes(self, cell: Cell) -> bool {
        // An object that is missing is no failure of its neighbours, so a transfer is about one.
        self != Self::Object || cell.batch == 1
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(wire) => wire.fmt(f),
            Self::File => f.write_str("file"),
            Self::Object => f.write_str("object"),
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |is: bool, name| if is { name } else { "" };
        let (int8, checksums) = (name(self.int8, ", int8"), name(self.checksums, ", checksums"));
        write!(f, "{}{int8}{checksums}{}", self.lane, name(self.tls, ", tls"))
    }
}

impl fmt::Display for OwnerAddress {
    /// Writes it as [`OwnerAddress::from_str`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}@{}", self.process, self.tcp)
    }
}

/// A text that is no [`OwnerAddress`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not what an owner says of itself, like 0123456789abcdef@10.0.0.2:7000")]
pub struct OwnerAddressError(String);

impl FromStr for OwnerAddress {
    type Err = OwnerAddressError;

    fn from_str(text: &str) -> Result<Self, OwnerAddressError> {
        let wrong = || OwnerAddressError(text.to_owned());
        let (process, tcp) = text.split_once('@').ok_or_else(wrong)?;
        let process = u64::from_str_radix(process, 16).map_err(|_| wrong())?;
        let port =
            tcp.rsplit_once(':').filter(|(host, _)| !host.is_empty()).and_then(|(_, port)| port.parse::<u16>().ok());
        port.ok_or_else(wrong)?;
        Ok(Self { process, unix: String::new(), tcp: tcp.to_owned() })
    }
}

fn names<S: serde::Serializer>(over: &[Over], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(over.iter().map(ToString::to_string))
}

impl Settings {
    /// Returns all cells that fit the pool, in the order in which they are measured. Errors: a number is out of its
    /// bounds, or nothing fits.
    pub(crate) fn cells(&self) -> Result<Vec<Cell>, BenchError> {
        let refuse = |why: String| Err(BenchError::Settings(why));
        let pool = self.pool_bytes;
        if let Some(bytes) =
            self.sizes.iter().find(|bytes| **bytes < BLOCK_BYTES_MIN || !bytes.is_multiple_of(BLOCK_BYTES_MIN))
        {
            return refuse(format!("--sizes {bytes}: multiples of {BLOCK_BYTES_MIN} bytes"));
        }
        if let Some(bytes) = self.sizes.iter().find(|bytes| !pool.is_multiple_of(**bytes)) {
            let next = pool.next_multiple_of(*bytes);
            return refuse(format!("--pool {pool} is no multiple of blocks of {bytes} bytes; {next} is the next one"));
        }
        let unaligned = |bytes: &&usize| !bytes.is_multiple_of(FILE_ALIGN as usize);
        if let Some(bytes) = self.sizes.iter().find(unaligned).filter(|_| self.over.contains(&Over::File)) {
            return refuse(format!("--sizes {bytes}: blocks of files are multiples of {FILE_ALIGN} bytes"));
        }
        let encoded = self.over.iter().any(|over| over.wire().is_some_and(|wire| wire.int8));
        if let Some(bytes) = self.sizes.iter().find(|bytes| encoded && !bytes.is_multiple_of(PART_BYTES)) {
            return refuse(format!("--sizes {bytes}: what comes encoded is multiples of {PART_BYTES} bytes"));
        }
        if self.batches.contains(&0) {
            return refuse("--batches 0: a transfer has one block at least".to_owned());
        }
        if let Some(number) = self.in_flight.iter().find(|number| !(1..=IN_FLIGHT_MAX).contains(*number)) {
            return refuse(format!("--in-flight {number}: 1 to {IN_FLIGHT_MAX}"));
        }
        if self.passes == 0 || self.connections == 0 {
            return refuse("--passes and --connections: at least 1".to_owned());
        }
        let mut cells = Vec::new();
        for &bytes in &self.sizes {
            for &batch in &self.batches {
                for &in_flight in &self.in_flight {
                    if bytes.saturating_mul(batch).saturating_mul(in_flight) <= pool {
                        cells.push(Cell { bytes, batch, in_flight });
                    }
                }
            }
        }
        if cells.is_empty() || self.over.is_empty() {
            return refuse(format!("nothing of what is asked for fits a pool of {pool} bytes"));
        }
        if let Some(over) = self.over.iter().find(|over| !cells.iter().any(|&cell| over.takes(cell))) {
            return refuse(format!("--batches: a transfer over {over} is of one block, so it wants a 1 among them"));
        }
        Ok(cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            over: vec![Over::Peer(Wire { lane: Lane::Shm, checksums: false, int8: false, tls: false })],
            sizes: vec![4096, 1 << 20],
            batches: vec![1, 4],
            in_flight: vec![1, 2],
            pool_bytes: 4 << 20,
            passes: 1,
            connections: 1,
            trust: Trust::default(),
            files: Files::default(),
            store: None,
            keep: false,
        }
    }

    #[test]
    fn what_does_not_fit_the_pool_is_left_out() {
        let cells = settings().cells().expect("most fit");
        let large: Vec<_> =
            cells.iter().filter(|cell| cell.bytes == 1 << 20).map(|it| (it.batch, it.in_flight)).collect();
        assert_eq!((cells.len(), large), (7, vec![(1, 1), (1, 2), (4, 1)]));
    }

    #[test]
    fn what_cannot_be_measured_is_refused_by_name() {
        let check = |change: &dyn Fn(&mut Settings), part: &str| {
            let mut settings = settings();
            change(&mut settings);
            let error = settings.cells().expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        };
        check(&|it| it.sizes = vec![100], "--sizes 100");
        check(&|it| it.sizes = vec![0], "--sizes 0");
        let int8 = Over::Peer(Wire { lane: Lane::Tcp, checksums: false, int8: true, tls: false });
        check(&|it| (it.over, it.sizes) = (vec![int8], vec![1024]), "--sizes 1024");
        check(&|it| (it.over, it.sizes) = (vec![Over::File], vec![4096, 1024]), "--sizes 1024: blocks of files");
        check(&|it| (it.over, it.batches) = (vec![Over::Object], vec![2, 4]), "over object is of one block");
        check(&|it| it.sizes = vec![3 << 20], "--pool 4194304");
        check(&|it| it.batches = vec![0], "--batches 0");
        check(&|it| it.in_flight = vec![65], "1 to 64");
        check(&|it| it.passes = 0, "--passes");
        check(&|it| it.batches = vec![usize::MAX], "nothing of what");
        check(&|it| it.over = vec![], "nothing of what");
    }

    #[test]
    fn an_owner_is_named_as_it_names_itself() {
        let place = OwnerAddress { process: 0x1234, unix: String::new(), tcp: "[::1]:7000".to_owned() };
        assert_eq!(place.to_string().parse(), Ok(place));
        for wrong in ["", "12", "12@", "x@host:1", "12@host", "12@:1", "12@host:99999"] {
            assert!(wrong.parse::<OwnerAddress>().is_err(), "{wrong}");
        }
    }
}
