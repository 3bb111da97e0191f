//! Host memory that only its owner and its copier may touch, as if it were a device's.

use crate::copier::Copier;
use crate::device::DeviceFile;
use crate::host_copier::{self, DEVICE, KIND};
use crate::memory::{DevicePlace, Exports, Memory, Place};
use crate::sealed::sealed;
use crate::writable_mapping::WritableMapping;
use domain::KvPart;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Zeroed memory that is mapped twice: once for its owner and its copier, and once, without any right, for all other
/// code. A touch of the second one ends the process (`SIGSEGV`). It is exported as a device's: copiers of guarded
/// memory in other processes map it, to read. No network card is given it.
///
/// ```
/// use kv_memory::{CopyOrder, GuardedMemory, Memory, PoolRange, SumOf, checksum};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = GuardedMemory::new(8192, None)?;
/// assert!(pool.place().host().is_none() && pool.file().is_none(), "no host may map it");
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
    file: OwnedFd,
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
        let (working, file) = sealed("baton-guarded", len)?;
        let working = Arc::new(working);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::empty(), MapFlags::SHARED, &file, 0)? };
        let shown = Forbidden { base: base.cast(), len };
        let copier = Arc::new(host_copier::start(&working)?);
        Ok(Self { working, shown, file, copier, part })
    }

    /// Returns the first byte, for the owner alone.
    pub fn as_ptr(&self) -> *mut u8 {
        self.working.as_ptr()
    }
}

// SAFETY: it is said to be a device's, whose address nobody touches; the copier keeps to the length.
unsafe impl Memory for GuardedMemory {
    fn place(&self) -> Place<'_> {
        let address = self.shown.base.addr() as u64;
        let file = DeviceFile { file: self.file.as_fd(), bytes: self.working.len() as u64, offset: 0 };
        let exports = Exports { file: Some(file), ..Exports::default() };
        Place::Device(DevicePlace { id: DEVICE, kind: KIND, address, exports, copier: &self.copier })
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
    use crate::copier::{CopyError, FetchOrder, FetchRange};
    use crate::peer_memory::PeerMemory;
    use proptest::prelude::*;
    use std::os::fd::BorrowedFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const LEN: usize = 256 << 10;

    fn copier(pool: &GuardedMemory) -> &Arc<dyn Copier> {
        pool.place().device().expect("it is as a device's").copier
    }

    fn exported(pool: &GuardedMemory) -> DeviceFile<'_> {
        pool.place().device().and_then(|place| place.exports.file).expect("it is exported")
    }

    #[allow(clippy::mut_from_ref)]
    fn bytes(pool: &GuardedMemory) -> &mut [u8] {
        // SAFETY: the owner may, and no order is under way.
        unsafe { std::slice::from_raw_parts_mut(pool.as_ptr(), LEN) }
    }

    fn fetch(source: &Arc<PeerMemory>, ranges: &[(u64, u64, usize)]) -> FetchOrder {
        let ranges = ranges.iter().map(|&(from, to, len)| FetchRange { from, to, len }).collect();
        FetchOrder { source: source.clone(), ranges, waker: None }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// What is fetched is what a copy would bring, and nothing else changes.
        #[test]
        fn what_is_fetched_is_what_the_peer_has(
            lens in proptest::collection::vec(1..20_000_usize, 1..8), from in any::<u64>(), gap in 1..4096_u64,
        ) {
            let [owner, reader] = [(); 2].map(|()| GuardedMemory::new(LEN, None).expect("memory"));
            bytes(&owner).iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 31 % 251) as u8);
            bytes(&reader).fill(0xAA);
            let source = copier(&reader).import(exported(&owner), LEN).expect("it is mapped");
            let (mut to, mut ranges) = (0, Vec::new());
            for len in lens {
                if to as usize + len <= LEN {
                    ranges.push(((from ^ to) % (LEN - len) as u64, to, len));
                }
                to += len as u64 + gap;
            }
            let fetched = copier(&reader).fetch(fetch(&source, &ranges)).wait().expect("it is sound");
            prop_assert_eq!(fetched.bytes, ranges.iter().map(|range| range.2 as u64).sum::<u64>());
            let mut expected = vec![0xAA; LEN];
            for &(from, to, len) in &ranges {
                expected[to as usize..][..len].copy_from_slice(&bytes(&owner)[from as usize..][..len]);
            }
            prop_assert!(bytes(&reader) == &expected[..]);
        }
    }

    #[test]
    fn what_is_mapped_outlives_its_owner_and_is_kept_by_what_reads_it() {
        let [owner, reader] = [(); 2].map(|()| GuardedMemory::new(LEN, None).expect("memory"));
        bytes(&owner).fill(7);
        let source = copier(&reader).import(exported(&owner), LEN).expect("it is mapped");
        drop(owner);
        let tried = copier(&reader).try_out(&source, 2 * LEN).wait().expect("it is readable");
        assert_eq!(tried.bytes, LEN as u64, "no more than there is");
        assert!(bytes(&reader).iter().all(|&byte| byte == 0), "it goes nowhere");
        let order = fetch(&source, &[(0, 0, LEN)]);
        drop(source);
        copier(&reader).fetch(order).wait().expect("the order holds it");
        assert!(bytes(&reader).iter().all(|&byte| byte == 7));
    }

    #[test]
    fn what_is_no_export_is_refused_and_so_is_what_leaves_it() {
        let [owner, reader] = [(); 2].map(|()| GuardedMemory::new(LEN, None).expect("memory"));
        let memfd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
        let refused = |file: BorrowedFd<'_>, offset, len| {
            let file = DeviceFile { file, bytes: LEN as u64, offset };
            copier(&reader).import(file, len).expect_err("it is refused").to_string()
        };
        let (pipe, _other) = std::io::pipe().expect("descriptors");
        assert!(refused(pipe.as_fd(), 0, LEN).contains("no memfd"));
        assert!(refused(memfd.as_fd(), 0, LEN).contains("could shrink"));
        let sound = exported(&owner).file;
        assert!(refused(sound, 0, LEN + 1).contains("not 262145 from 0"));
        assert!(refused(sound, LEN as u64, 1).contains("not 1 from"));
        let source = copier(&reader).import(exported(&owner), LEN).expect("it is mapped");
        let outside = copier(&reader).fetch(fetch(&source, &[(0, 0, 1), (1, 0, LEN)])).wait();
        assert!(matches!(outside, Err(CopyError::Fetch { .. })), "{outside:?}");
        assert!(bytes(&reader).iter().all(|&byte| byte == 0), "nothing of the order is written");
    }

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
