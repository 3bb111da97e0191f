//! What the emulator tells of launches beside their results. A card tells none of it.

use crate::{Buffer, Plain};
use libloading::Library;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_ulonglong, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The emulator.
pub struct Emulator {
    launches: unsafe extern "C" fn(*const c_char) -> c_ulonglong,
    kernel: unsafe extern "C" fn(usize) -> *const c_char,
    enqueued: unsafe extern "C" fn() -> c_ulonglong,
    hold: unsafe extern "C" fn(c_int),
    hold_behind: unsafe extern "C" fn(*const c_char),
    is_held: unsafe extern "C" fn() -> c_int,
    go_on: unsafe extern "C" fn(),
    watch: unsafe extern "C" fn(*const c_void, usize),
    watched: unsafe extern "C" fn(*const c_void, *mut Traffic) -> c_int,
    watch_nothing: unsafe extern "C" fn(),
    /// Where its functions are. It is never closed.
    _library: Library,
}

/// What launches did with a buffer, as `simt_runtime.h` has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that warps read and wrote: what lanes of an instruction share counts once.
    pub bytes: u64,
    /// Sectors of 32 bytes, summed over the instructions of warps.
    pub sectors: u64,
    /// Bytes that were touched at all.
    pub unique_bytes: u64,
    /// Sectors that were touched at all.
    pub unique_sectors: u64,
}

impl Emulator {
    /// Returns the emulator. `None`: the driver is a card's, or there is none.
    pub fn find() -> Option<&'static Self> {
        static EMULATOR: OnceLock<Option<Emulator>> = OnceLock::new();
        EMULATOR.get_or_init(Self::load).as_ref()
    }

    fn load() -> Option<Self> {
        // SAFETY: the driver's library is the one that `cuda` uses, and its initialisers run once.
        let library = unsafe { Library::new("libcuda.so.1") }.ok()?;
        // SAFETY: the functions have these types in `cuda/README.md` and `runtime/simt_runtime.h` of the emulator.
        unsafe {
            let launches = *library.get(b"simt_launches").ok()?;
            let kernel = *library.get(b"simt_kernel").ok()?;
            let enqueued = *library.get(b"simt_enqueued").ok()?;
            let hold = *library.get(b"simt_hold").ok()?;
            let hold_behind = *library.get(b"simt_hold_behind").ok()?;
            let is_held = *library.get(b"simt_is_held").ok()?;
            let go_on = *library.get(b"simt_go_on").ok()?;
            let watch = *library.get(b"simt_watch").ok()?;
            let watched = *library.get(b"simt_watched").ok()?;
            let watch_nothing = *library.get(b"simt_watch_nothing").ok()?;
            Some(Self {
                launches,
                kernel,
                enqueued,
                hold,
                hold_behind,
                is_held,
                go_on,
                watch,
                watched,
                watch_nothing,
                _library: library,
            })
        }
    }

    /// Returns how often each kernel has run in this process, by name.
    ///
    /// # Panics
    /// A name is no text.
    pub fn launches(&self) -> BTreeMap<String, u64> {
        // SAFETY: the function returns names, which are never freed, and null behind the last one.
        let names = (0..).map(|index| unsafe { (self.kernel)(index) }).take_while(|name| !name.is_null());
        let count = |name: *const c_char| {
            // SAFETY: the name ends with a zero.
            let (text, count) = unsafe { (CStr::from_ptr(name), (self.launches)(name)) };
            (text.to_str().expect("names are texts").to_owned(), count)
        };
        names.map(count).collect()
    }

    /// Returns how many operations were enqueued in this process.
    pub fn enqueued(&self) -> u64 {
        // SAFETY: the function only reads a number.
        unsafe { (self.enqueued)() }
    }

    /// Holds the device: nothing runs until it is let go.
    pub fn hold(&self) {
        // SAFETY: the function only sets a flag.
        unsafe { (self.hold)(1) };
    }

    /// Holds a stream behind each launch of a kernel. `None`: behind none, and the one that is held goes on.
    pub fn hold_behind(&self, kernel: Option<&CStr>) {
        // SAFETY: the name ends with a zero.
        unsafe { (self.hold_behind)(kernel.map_or(std::ptr::null(), CStr::as_ptr)) };
    }

    /// Returns whether a stream is held behind a kernel.
    pub fn is_held(&self) -> bool {
        // SAFETY: the function only reads a flag.
        unsafe { (self.is_held)() != 0 }
    }

    /// Lets the stream go on that is held behind a kernel, until the next launch of it.
    pub fn go_on(&self) {
        // SAFETY: the function only sets a flag.
        unsafe { (self.go_on)() };
    }

    /// Returns whether the emulator checks each access.
    #[expect(clippy::disallowed_methods, reason = "the emulator reads its settings from the environment")]
    pub fn is_checked(&self) -> bool {
        std::env::var("SIMT_CHECK").is_ok_and(|on| on == "1")
    }

    /// Lets the device go.
    pub fn let_go(&self) {
        // SAFETY: as above.
        unsafe { (self.hold)(0) };
    }
}

/// Counts what launches move, as long as it lives. One watch at a time: others wait.
pub struct Watch {
    emulator: &'static Emulator,
    buffers: Vec<(u64, Counted)>,
    _alone: MutexGuard<'static, ()>,
}

/// How the traffic with a buffer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Each access: what is read twice comes from memory twice.
    Each,
    /// Once, whatever is touched: what is read again comes from a cache.
    Once,
}

/// What launches moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes.
    pub bytes: u64,
    /// Sectors of 32 bytes.
    pub sectors: u64,
    /// Bytes that were read again, of buffers that count once.
    pub again: u64,
}

impl Watch {
    /// Begins to watch nothing. `None`: the emulator does not count here, which is said.
    pub fn begin() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let Some(emulator) = Emulator::find().filter(|emulator| emulator.is_checked()) else {
            println!("skipped: bytes are counted in the emulator, with SIMT_CHECK=1; `make test-cuda` sets it");
            return None;
        };
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Self { emulator, buffers: Vec::new(), _alone })
    }

    /// Watches a buffer, too.
    pub fn add<T: Plain>(&mut self, buffer: &Buffer<'_, T>, counted: Counted) {
        if buffer.len == 0 {
            return;
        }
        // SAFETY: any range can be watched.
        unsafe { (self.emulator.watch)(buffer.address() as *const c_void, buffer.len * size_of::<T>()) };
        self.buffers.push((buffer.address(), counted));
    }

    /// Returns what the launches so far did with a buffer.
    ///
    /// # Panics
    /// It is not watched.
    pub fn of<T: Plain>(&self, buffer: &Buffer<'_, T>) -> Traffic {
        self.at(buffer.address())
    }

    fn at(&self, address: u64) -> Traffic {
        let mut traffic = Traffic::default();
        // SAFETY: the emulator writes one value of this type.
        let found = unsafe { (self.emulator.watched)(address as *const c_void, &raw mut traffic) };
        assert_eq!(found, 0, "the buffer is watched");
        traffic
    }

    /// Returns what the launches so far moved: call it when their end was waited for.
    pub fn moved(&self) -> Moved {
        self.buffers.iter().fold(Moved::default(), |sum, &(address, counted)| {
            let Traffic { bytes, sectors, unique_bytes, unique_sectors } = self.at(address);
            match counted {
                Counted::Each => Moved { bytes: sum.bytes + bytes, sectors: sum.sectors + sectors, ..sum },
                Counted::Once => Moved {
                    bytes: sum.bytes + unique_bytes,
                    sectors: sum.sectors + unique_sectors,
                    again: sum.again + bytes.saturating_sub(unique_bytes),
                },
            }
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: the function only forgets ranges.
        unsafe { (self.emulator.watch_nothing)() };
    }
}

/// Bytes that a kernel may move of those that it must, in percent.
const BYTES_MAX_PERCENT: f64 = 110.0;
/// The same of sectors of 32 bytes.
const SECTORS_MAX_PERCENT: f64 = 120.0;

/// Fails if a kernel moved much more than it must: these bytes of each operand.
///
/// # Panics
/// It did.
pub fn assert_moves_little(moved: Moved, operands: &[usize], what: &str) {
    let bytes: usize = operands.iter().sum();
    let sectors: usize = operands.iter().map(|bytes| bytes.div_ceil(32)).sum();
    let percent = |moved: u64, least: usize| moved as f64 * 100.0 / least as f64;
    let (of_bytes, of_sectors) = (percent(moved.bytes, bytes), percent(moved.sectors, sectors));
    let again = percent(moved.again, bytes);
    println!("{what}: {of_bytes:.1}% of {bytes} bytes, {of_sectors:.1}% of {sectors} sectors, {again:.0}% again");
    assert!(moved.bytes >= bytes as u64, "{what}: {} bytes moved of {bytes}", moved.bytes);
    assert!(of_bytes <= BYTES_MAX_PERCENT, "{what}: {of_bytes:.1}% of the bytes that it must move");
    assert!(of_sectors <= SECTORS_MAX_PERCENT, "{what}: {of_sectors:.1}% of the sectors that it must move");
}
