//! Host memory that only its owner and its copier may touch, as if it were a device's.

use crate::copier::Copier;
use crate::host_copier::HostCopier;
use crate::memory::{DeviceId, DevicePlace, Exports, Memory, Place};
use crate::writable_mapping::WritableMapping;
use domain::KvPart;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::sync::Arc;

/// The device that guarded memory claims to be of.
const DEVICE: DeviceId = DeviceId(0);

/// Zeroed memory that is mapped twice: once for its owner and its copier, and once, without any right, for all other
/// code. A touch of the second one ends the process (`SIGSEGV`). No other process can map it, and no network card is
/// given it.
///
/// ```
/// use kv_memory::{CopyOrder, GuardedMemory, Memory, PoolRange, SumOf, checksum};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = GuardedMemory::new(8192, None)?;
/// assert!(pool.place().host().is_none() && pool.file().is_none());
/// let copier = pool.place().device().expect("it is as a device's").copier.clone();
/// let order = |frame, ranges| CopyOrder { frame, ranges, part: None, sum: SumOf::Frame, waker: None };
///
/// let (mut frame, there) = (copier.frame(6)?, vec![PoolRange { at: 4095, len: 2 }, PoolRange { at: 10, len: 4 }]);
/// frame.copy_from_slice(b"batons");
/// let frame = copier.scatter(order(frame, there), checksum(b"batons")).wait()?.frame;
/// let back = copier.gather(order(frame, vec![PoolRange { at: 10, len: 4 }])).wait()?;
/// assert_eq!((&back.frame[..back.bytes], back.sum), (&b"tons"[..], checksum(b"tons")));
/// # Ok(())
/// # }
/// ```
pub struct GuardedMemory {
    working: Arc<WritableMapping>,
    shown: Forbidden,
    copier: Arc<dyn Copier>,
    part: Option<KvPart>,
}

/// Addresses that must not be touched.
struct Forbidden {
    base: *mut u8,
    len: usize,
}

// SAFETY: it is an address range that nobody may touch.
unsafe impl Send for Forbidden {}
// SAFETY: as above.
unsafe impl Sync for Forbidden {}

impl GuardedMemory {
    /// Makes `len` zero bytes, at least one, made of such parts, and starts their copier. Errors: of the system.
    pub fn new(len: usize, part: Option<KvPart>) -> io::Result<Self> {
        let len = len.max(1);
        let file = rustix::fs::memfd_create("baton-guarded", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        let working = Arc::new(WritableMapping::new(len, Some(&file))?);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::empty(), MapFlags::SHARED, &file, 0)? };
        let shown = Forbidden { base: base.cast(), len };
        let copier = Arc::new(HostCopier::new(&working)?);
        Ok(Self { working, shown, copier, part })
    }

    /// Returns the first byte, for the owner alone.
    pub fn as_ptr(&self) -> *mut u8 {
        self.working.as_ptr()
    }
}

// SAFETY: it is said to be a device's, whose address nobody touches; the copier keeps to the length.
unsafe impl Memory for GuardedMemory {
    fn place(&self) -> Place<'_> {
        let (address, exports) = (self.shown.base.addr() as u64, Exports::default());
        Place::Device(DevicePlace { id: DEVICE, address, exports, copier: &self.copier })
    }

    fn len(&self) -> usize {
        self.working.len()
    }

    fn part(&self) -> Option<KvPart> {
        self.part
    }
}

impl Drop for Forbidden {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nobody touches it.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of one's own can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Set for the process that is to be ended.
    const TOUCH: &str = "BATON_TEST_TOUCHES";

    #[test]
    #[expect(clippy::disallowed_methods, reason = "it tells the process that is to end from the one that looks")]
    fn whoever_touches_it_ends_the_process() {
        const NAME: &str = "guarded::tests::whoever_touches_it_ends_the_process";
        if std::env::var_os(TOUCH).is_some() {
            let memory = GuardedMemory::new(4096, None).expect("memory");
            // SAFETY: the owner may.
            unsafe { memory.as_ptr().write(7) };
            // SAFETY: none; it ends this process, which is what is tested.
            let seen = unsafe { (memory.place().address() as *const u8).read_volatile() };
            panic!("it reads {seen}");
        }
        let ended = Command::new(std::env::current_exe().expect("it has a path"))
            .args(["--exact", NAME])
            .env(TOUCH, "1")
            .output()
            .expect("it starts");
        assert_eq!(ended.status.signal(), Some(libc::SIGSEGV), "{ended:?}");
    }
}
