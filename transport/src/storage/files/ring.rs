//! Operations through io_uring: one system call starts many and takes in many that ended, and memory that is
//! registered is not pinned anew for each.

use super::operation::{Done, Operation};
use crate::regions::RegionId;
use crate::wake::Doorbell;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};
use kv_memory::Memory;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Registered pieces of memory; what is beyond them is pinned for each operation.
const BUFFERS_MAX: u32 = 4096;
/// Bytes of a registered piece: the kernel takes no more at once, and pinning them stops nobody for long.
const BUFFER_BYTES: usize = 1 << 30;
/// What the kernel is told that is to pin nothing.
const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
/// Asks the kernel to work off what ended (`IORING_ENTER_GETEVENTS`).
const GET_EVENTS: u32 = 1;
/// What the look for the bell is called; operations are called by their slots.
const BELL: u64 = u64::MAX;

/// Why memory is not registered with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PinError {
    /// The kernel keeps no table of memory for the ring.
    #[error("the kernel takes no table of buffers: {}", io::Error::from_raw_os_error(*errno))]
    NoTable { errno: i32 },
    /// The table has no room for so many pieces.
    #[error(
        "the kernel takes {BUFFERS_MAX} pieces of memory, of {} MiB at most, has {pinned}, and is to take {more} more",
        BUFFER_BYTES >> 20
    )]
    TooMany { pinned: u32, more: usize },
    /// The kernel refuses to pin a piece.
    #[error("memory cannot be pinned: {} (see the memlock limit)", io::Error::from_raw_os_error(*errno))]
    Refused { errno: i32 },
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

pub(super) struct Ring {
    ring: IoUring,
    bell: Arc<Doorbell>,
    /// Whether a look for that is under way.
    listens: bool,
    /// The first registered piece of each region.
    buffers: BTreeMap<RegionId, u32>,
    taken: u32,
    /// Why memory is not registered, where it is not.
    unregistered: Option<PinError>,
}

impl Ring {
    /// Returns a ring for so many operations at once. Errors: the kernel has none, or does not allow it.
    pub(super) fn new(depth: u32, bell: Arc<Doorbell>) -> io::Result<Self> {
        // One more for the bell.
        let entries = (depth + 1).next_power_of_two();
        // What ended is worked off when the thread asks, all at once, and never interrupts it. Before Linux 6.1:
        // as it ends.
        let ring =
            match IoUring::builder().setup_r_disabled().setup_single_issuer().setup_defer_taskrun().build(entries) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    IoUring::builder().setup_r_disabled().build(entries)?
                }
                built => built?,
            };
        let unregistered = ring.submitter().register_buffers_sparse(BUFFERS_MAX).err();
        let unregistered = unregistered.map(|error| PinError::NoTable { errno: errno(&error) });
        Ok(Self { ring, bell, listens: false, buffers: BTreeMap::new(), taken: 0, unregistered })
    }

    /// Lets the calling thread, and no other from then on, use it. Errors: of the system.
    pub(super) fn begin(&self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()
    }

    /// Registers memory, so that operations on it cost less. It must outlive the ring. Where that fails they work
    /// all the same; why it did is kept.
    pub(super) fn register(&mut self, id: RegionId, memory: &dyn Memory) {
        if self.unregistered.is_some() {
            return;
        }
        let Some(first) = memory.place().host() else { return };
        let piece = |at: usize| libc::iovec {
            iov_base: first.wrapping_add(at).cast(),
            iov_len: (memory.len() - at).min(BUFFER_BYTES),
        };
        let pieces: Vec<_> = (0..memory.len()).step_by(BUFFER_BYTES).map(piece).collect();
        // SAFETY: the pieces are the memory, which the caller keeps mapped as long as the ring is there.
        match unsafe { self.pin(&pieces) } {
            Ok(first) => drop(self.buffers.insert(id, first)),
            Err(why) => self.unregistered = Some(why),
        }
    }

    /// Registers pieces one behind the other, all of them or none, and returns the number of the first.
    ///
    /// # Safety
    ///
    /// They stay mapped as long as the ring is there.
    unsafe fn pin(&mut self, pieces: &[libc::iovec]) -> Result<u32, PinError> {
        let (first, count) = (self.taken, pieces.len());
        if count > (BUFFERS_MAX - first) as usize {
            return Err(PinError::TooMany { pinned: first, more: count });
        }
        for (at, piece) in (first..).zip(pieces) {
            // SAFETY: as the caller says.
            if let Err(error) = unsafe { self.set(at, *piece) } {
                for at in first..at {
                    // SAFETY: it is no memory.
                    if let Err(error) = unsafe { self.set(at, NOTHING) } {
                        tracing::warn!(%error, "memory that is not registered stays pinned");
                    }
                }
                return Err(PinError::Refused { errno: errno(&error) });
            }
        }
        self.taken += count as u32;
        Ok(first)
    }

    /// Has the kernel pin a piece, in place of what it had of that number.
    ///
    /// # Safety
    ///
    /// It stays mapped as long as the ring is there.
    unsafe fn set(&self, at: u32, piece: libc::iovec) -> io::Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.ring.submitter().register_buffers_update(at, &[piece], None) }.map(drop)
    }

    pub(super) fn unregistered(&self) -> Option<PinError> {
        self.unregistered
    }

    /// Returns how many bytes from `offset` of a region on one operation can have.
    pub(super) fn at_once(offset: u64) -> usize {
        BUFFER_BYTES - offset as usize % BUFFER_BYTES
    }

    /// Queues an operation. There is room for as many as the ring was made for.
    pub(super) fn push(&mut self, slot: usize, operation: &Operation) {
        let Operation { range, memory, region, region_offset, write, .. } = *operation;
        let (fd, len) = (Fd(range.file), range.len as u32);
        let buffer =
            self.buffers.get(&region).map(|first| (first + (region_offset as usize / BUFFER_BYTES) as u32) as u16);
        let entry = match (write, buffer) {
            (true, Some(at)) => opcode::WriteFixed::new(fd, memory, len, at).offset(range.offset).build(),
            (false, Some(at)) => opcode::ReadFixed::new(fd, memory, len, at).offset(range.offset).build(),
            (true, None) => opcode::Write::new(fd, memory, len).offset(range.offset).build(),
            (false, None) => opcode::Read::new(fd, memory, len).offset(range.offset).build(),
        };
        self.queue(&entry.user_data(slot as u64));
    }

    fn queue(&mut self, entry: &squeue::Entry) {
        // SAFETY: what it reads or writes is lent to it until it has ended (see `Operation`), or is the ring's own.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("there is room for every slot and the bell");
    }

    /// Starts what is queued, and does not look at what ended.
    pub(super) fn start(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() { Ok(()) } else { self.enter(0, 0) }
    }

    fn enter(&mut self, wanted: u32, flags: u32) -> io::Result<()> {
        let queued = self.ring.submission().len() as u32;
        // SAFETY: no argument comes along, so none is read.
        let entered = unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, wanted, flags, None) };
        match entered {
            // What cannot be started for now is started in the next turn, after something has ended.
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Starts what is queued; waits until something ended, or the bell rang, if `wait`.
    pub(super) fn turn(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        if !self.listens {
            let entry =
                opcode::PollAdd::new(Fd(self.bell.fd().as_raw_fd()), libc::POLLIN as u32).build().user_data(BELL);
            self.queue(&entry);
            self.listens = true;
        }
        self.enter(u32::from(wait), GET_EVENTS)?;
        for entry in self.ring.completion() {
            if entry.user_data() == BELL {
                self.listens = false;
                self.bell.still();
                continue;
            }
            let result = entry.result();
            let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
            done.push(Done { slot: entry.user_data() as usize, result });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_memory::PrivateMemory;

    const PAGE: usize = 4096;

    /// Returns how many pieces the kernel says that it has pinned.
    fn pinned(ring: &Ring) -> usize {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", ring.ring.as_raw_fd())).expect("it is open");
        info.lines().filter(|line| line.contains("0x") && line.ends_with(&format!("/{PAGE}"))).count()
    }

    #[test]
    fn pieces_are_registered_together_or_not_at_all() {
        let bell = Arc::new(Doorbell::new().expect("a bell"));
        let mut ring = match Ring::new(4, bell) {
            Ok(ring) => ring,
            Err(error) => return println!("SKIPPED: this host allows no io_uring: {error}"),
        };
        ring.begin().expect("it is this thread's");
        assert_eq!(ring.unregistered(), None, "it has a table");
        let memory = PrivateMemory::new(2 * PAGE).expect("memory");
        let piece = |at| libc::iovec { iov_base: memory.as_ptr().wrapping_add(at).cast(), iov_len: PAGE };
        let nowhere = libc::iovec { iov_base: std::ptr::without_provenance_mut(PAGE), iov_len: PAGE };
        // SAFETY: the memory outlives the ring, and what is nowhere is nobody's: the kernel refuses it.
        let mut pin = |pieces: &[libc::iovec]| (unsafe { ring.pin(pieces) }, pinned(&ring));
        let (refused, left) = pin(&[piece(0), piece(PAGE), nowhere]);
        assert!(refused.is_err_and(|why| why.to_string().contains("memlock")));
        assert_eq!(left, 0, "what was pinned is let go of");
        assert_eq!(pin(&[piece(0), piece(PAGE)]), (Ok(0), 2));
        assert_eq!(pin(&[piece(0)]), (Ok(2), 3));
        let (refused, left) = pin(&vec![piece(0); BUFFERS_MAX as usize]);
        assert!(refused.is_err_and(|why| why.to_string().contains("has 3, and is to take 4096 more")));
        assert_eq!(left, 3);
    }
}
