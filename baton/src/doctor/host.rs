//! What the checks see of a host: facts, each under a name. They come from this host, or from a recording of another.
//!
//! The one place of the doctor that asks the system. A recording holds every fact that a run of all checks asked
//! for, so it is small, and what it holds can be read before it is sent to anybody.

mod pauses;

use cuda::Driver;
use cuda::compiler::Compiler;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a file that count; nothing that is looked at is longer.
const TEXT_BYTES_MAX: usize = 256 * 1024;
/// Where the loader finds libraries that no setting names.
const LIBRARY_FOLDERS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
];
/// What a read that bypasses the page cache is made of.
const DIRECT_BYTES: usize = 4096;

/// A question to a host.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fact<'a> {
    /// The text of a file.
    File(&'a str),
    /// The names in a folder, one a line.
    Folder(&'a str),
    /// Bytes that a process may lock, or `unlimited`.
    Memlock,
    /// Bytes of the file system that holds a path.
    Space(&'a str),
    /// Whether the kernel makes an io_uring: `yes`, or why not.
    IoUring,
    /// Whether a folder's files can be read past the page cache: `yes`, or why not.
    DirectIo(&'a str),
    /// The file that a shared library is in.
    Library(&'a str),
    /// Whether libibverbs can be used: `yes`, or why not.
    Verbs,
    /// The version of CUDA that the driver implements, as in `12.8`, or why there is none.
    CudaDriver,
    /// The cards that the driver shows, one a line: name, compute capability, bytes of memory.
    CudaCards,
    /// The version of the compiler of kernels, as in `12.8`, or why there is none.
    Nvrtc,
    /// The version of the library of matrix products, as in `12.8`, or why there is none.
    CublasLt,
    /// Whether a file of a device can be opened: `yes`, or why not.
    Open(&'a str),
    /// The priorities on which an interface pauses its senders, a bit each, or why that is not known.
    Pauses(&'a str),
    /// Whether a PCIe bridge redirects what its devices say to each other: `on`, `off`, or why that is not known.
    AccessControl(&'a str),
    /// Whether something keeps the clock in step with those of other hosts: `yes`, `no`, or why that is not known.
    ClockSync,
}

impl fmt::Display for Fact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {path}"),
            Self::Folder(path) => write!(f, "folder {path}"),
            Self::Memlock => f.write_str("memlock"),
            Self::Space(path) => write!(f, "space {path}"),
            Self::IoUring => f.write_str("io_uring"),
            Self::DirectIo(path) => write!(f, "direct {path}"),
            Self::Library(name) => write!(f, "library {name}"),
            Self::Verbs => f.write_str("verbs"),
            Self::CudaDriver => f.write_str("cuda driver"),
            Self::CudaCards => f.write_str("cuda cards"),
            Self::Nvrtc => f.write_str("nvrtc"),
            Self::CublasLt => f.write_str("cublaslt"),
            Self::Open(path) => write!(f, "open {path}"),
            Self::Pauses(interface) => write!(f, "pfc {interface}"),
            Self::AccessControl(device) => write!(f, "acs {device}"),
            Self::ClockSync => f.write_str("clock sync"),
        }
    }
}

/// A text that is no recording of a host.
#[derive(Debug, thiserror::Error)]
#[error("it is no recording of a host: {0}")]
pub(super) struct NoRecording(#[from] serde_json::Error);

/// A host.
pub(super) struct Host {
    /// `None`: this one.
    recorded: Option<BTreeMap<String, String>>,
    seen: RefCell<BTreeMap<String, String>>,
}

impl Host {
    /// The host that this runs on.
    pub(super) fn this() -> Self {
        Self { recorded: None, seen: RefCell::default() }
    }

    /// Reads a recorded one. Errors: `text` is no recording.
    pub(super) fn recorded(text: &str) -> Result<Self, NoRecording> {
        let facts: BTreeMap<String, String> = serde_json::from_str(text)?;
        Ok(Self { recorded: Some(facts), seen: RefCell::default() })
    }

    /// All facts that were asked for so far, as JSON.
    pub(super) fn recording(&self) -> String {
        let facts: Map<String, Value> =
            self.seen.borrow().iter().map(|(name, fact)| (name.clone(), Value::from(fact.as_str()))).collect();
        format!("{:#}\n", Value::Object(facts))
    }

    /// Returns a fact; `None`: there is no such thing here, or it may not be read.
    pub(super) fn look(&self, fact: Fact<'_>) -> Option<String> {
        let name = fact.to_string();
        let found = match &self.recorded {
            Some(facts) => facts.get(&name).cloned(),
            None => look(fact),
        };
        if let Some(text) = &found {
            self.seen.borrow_mut().insert(name, text.clone());
        }
        found
    }

    /// Returns the text of a file, without white space around it.
    pub(super) fn file(&self, path: &str) -> Option<String> {
        self.look(Fact::File(path)).map(|text| text.trim().to_owned())
    }

    /// The number that a file holds.
    pub(super) fn number(&self, path: &str) -> Option<i64> {
        self.file(path)?.parse().ok()
    }

    /// Returns the names in a folder, in order.
    pub(super) fn folder(&self, path: &str) -> Vec<String> {
        self.look(Fact::Folder(path)).map(|names| names.lines().map(str::to_owned).collect()).unwrap_or_default()
    }
}

fn look(fact: Fact<'_>) -> Option<String> {
    match fact {
        Fact::File(path) => {
            let mut bytes = fs::read(path).ok()?;
            bytes.truncate(TEXT_BYTES_MAX);
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }
        Fact::Folder(path) => {
            let mut names: Vec<String> = fs::read_dir(path)
                .ok()?
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            Some(names.join("\n"))
        }
        Fact::Memlock => Some(getrlimit(Resource::Memlock).current.map_or("unlimited".to_owned(), |it| it.to_string())),
        Fact::Space(path) => {
            let space = rustix::fs::statvfs(path).ok()?;
            Some((space.f_blocks * space.f_frsize).to_string())
        }
        Fact::IoUring => Some(said(io_uring())),
        Fact::DirectIo(folder) => Some(said(direct_io(Path::new(folder)))),
        Fact::Library(name) => {
            let found = LIBRARY_FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())?;
            // The version is in the name of what the link leads to.
            Some(fs::canonicalize(found).ok()?.display().to_string())
        }
        Fact::Verbs => Some(transport::rdma_library().map_or_else(|error| error.to_string(), |()| "yes".to_owned())),
        Fact::CudaDriver => Some(version(Driver::load().map(|driver| driver.version()))),
        Fact::CudaCards => cards().ok(),
        Fact::Nvrtc => Some(version(Compiler::load().map(|compiler| compiler.version()))),
        Fact::CublasLt => Some(version(cuda::blas_version())),
        Fact::Open(path) => Some(said(fs::File::options().read(true).write(true).open(path).map(drop))),
        Fact::Pauses(interface) => {
            Some(pauses::priorities(interface).map_or_else(|error| error.to_string(), |all| all.to_string()))
        }
        Fact::AccessControl(device) => Some(access_control(device).unwrap_or_else(|error| error.to_string())),
        Fact::ClockSync => Some(match clock_sync() {
            Ok(kept) => if kept { "yes" } else { "no" }.to_owned(),
            Err(error) => error.to_string(),
        }),
    }
}

/// Returns a version, or why there is none.
fn version(outcome: Result<(u32, u32), impl fmt::Display>) -> String {
    outcome.map_or_else(|error| error.to_string(), |(major, minor)| format!("{major}.{minor}"))
}

/// Returns the cards of the driver. Errors: there are none.
fn cards() -> Result<String, Box<dyn Error>> {
    let mut lines = String::new();
    for card in engine::cuda::cards()? {
        let (major, minor) = card.capability;
        lines += &format!("{}; {major}.{minor}; {}\n", card.name, card.memory);
    }
    Ok(lines)
}

fn said(outcome: io::Result<()>) -> String {
    outcome.err().map_or("yes".to_owned(), |error| error.to_string())
}

/// Makes a ring of one entry, and drops it.
fn io_uring() -> io::Result<()> {
    let mut params = rustix::io_uring::io_uring_params::default();
    // SAFETY: the kernel fills the parameters and opens a descriptor, which is closed when dropped.
    unsafe { rustix::io_uring::io_uring_setup(1, &mut params) }?;
    Ok(())
}

/// Returns what the kernel says of its clock. An NTP client that steers the clock reports it to the kernel again and
/// again.
fn clock_sync() -> io::Result<bool> {
    let mut state = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: it is as large as the call expects, and all zero it asks for no change.
    let outcome = unsafe { libc::adjtimex(state.as_mut_ptr()) };
    if outcome < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is made of numbers, which were zero, or which the call has written.
    let state = unsafe { state.assume_init() };
    Ok(state.status & libc::STA_UNSYNC == 0)
}

/// Memory that may be read into past the page cache.
#[repr(align(4096))]
struct Aligned([u8; DIRECT_BYTES]);

/// Writes a file of one block, and reads it past the page cache: some file systems refuse the reading, not the opening.
fn direct_io(folder: &Path) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    io::Write::write_all(&mut file, &[1; DIRECT_BYTES])?;
    let direct = rustix::fs::open(file.path(), OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?;
    let mut block = Box::new(Aligned([0; DIRECT_BYTES]));
    let read = rustix::io::pread(&direct, &mut block.0, 0)?;
    if read < DIRECT_BYTES || block.0.contains(&0) {
        return Err(io::Error::other("what was written is not what is read past the page cache"));
    }
    Ok(())
}

/// Reads the control register of the capability Access Control Services (PCI Express Base Specification, 7.7.11)
/// out of a bridge's configuration space, whose extended part takes root.
fn access_control(device: &str) -> io::Result<String> {
    const EXTENDED: u64 = 0x100;
    const CAPABILITY: u32 = 0x000d;
    const CAPABILITIES_MAX: usize = 64;
    // Request redirect, completion redirect, egress control.
    const REDIRECTS: u16 = 0b10_1100;
    let space = fs::File::open(format!("/sys/bus/pci/devices/{device}/config"))?;
    let mut at = EXTENDED;
    for _ in 0..CAPABILITIES_MAX {
        let mut header = [0; 8];
        if space.read_at(&mut header, at)? < header.len() {
            return Err(io::Error::other("reading it takes root"));
        }
        let word = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        if word & 0xffff == CAPABILITY {
            let control = u16::from_le_bytes([header[6], header[7]]);
            return Ok(if control & REDIRECTS == 0 { "off" } else { "on" }.to_owned());
        }
        at = u64::from(word >> 20);
        if at < EXTENDED {
            break;
        }
    }
    Ok("off".to_owned())
}
