//! The file of a slab that workers of a host share. It lies in memory, only its user may read it, and no process can
//! open it for writing. The worker that keeps the slab holds the file's lock.
//!
//! The lock is the proof of life: the system releases it when its holder ends, however it ends. A file gets its name
//! when it is whole and locked, so an unlocked file belongs to a dead worker. The file is removed with the value that
//! holds its lock, or when there is no room for a new slab otherwise.

use super::shape::{HEAD, MAGIC};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, Timespec, Timestamps};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use transport::{Memory, Place};

/// What names of slabs end with.
pub(super) const SUFFIX: &str = ".slab";
/// What `statfs` says of a `tmpfs`.
const TMPFS: u64 = 0x0102_1994;

/// A slab's file, mapped.
pub(super) struct SlabFile {
    base: *mut u8,
    len: usize,
    file: OwnedFd,
    path: PathBuf,
    /// This value holds the lock.
    held: bool,
}

// SAFETY: it is an address range; what is done with it is the business of the unsafe code that does it.
unsafe impl Send for SlabFile {}
// SAFETY: as above.
unsafe impl Sync for SlabFile {}

/// Why a slab cannot be made in a folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Its files do not lie in memory.
    #[error("{} is no tmpfs: give a folder below /dev/shm, or mount a tmpfs there", .0.display())]
    NoTmpfs(PathBuf),
    /// The system refused something.
    #[error("{}: {what}: {source}", folder.display())]
    System {
        /// The folder of slabs.
        folder: PathBuf,
        /// What was refused, as a sentence.
        what: &'static str,
        /// What the system answered.
        source: io::Error,
    },
}

impl SlabFile {
    /// A file of `len` bytes in the folder, which is made where there is none: this head and zeros. All of its
    /// memory is taken now, for who wrote to memory that is not there would be killed. Where there is no room for
    /// it, slabs of the dead that nobody answers for give way. Errors: [`FolderError`].
    /// `settle` says where that memory comes from, before it is taken.
    pub(super) fn create(
        folder: &Path,
        name: &str,
        len: usize,
        head: &[u8],
        settle: impl FnOnce(&dyn Memory),
    ) -> Result<Self, FolderError> {
        Self::create_by(
            folder,
            name,
            len,
            head,
            |slab| settle(slab),
            |file| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len as u64),
        )
    }

    /// The same, where `take` takes the file's memory.
    fn create_by(
        folder: &Path,
        name: &str,
        len: usize,
        head: &[u8],
        settle: impl FnOnce(&Self),
        take: impl Fn(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<Self, FolderError> {
        let failed =
            |what| move |error: Errno| FolderError::System { folder: folder.to_owned(), what, source: error.into() };
        // Not what it lies in: that might be where a tmpfs was to be mounted.
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                return Err(FolderError::System { folder: folder.to_owned(), what: "it cannot be made", source });
            }
            _ => {}
        }
        let kind = rustix::fs::statfs(folder).map_err(failed("it cannot be looked at"))?.f_type;
        if kind as u64 != TMPFS {
            return Err(FolderError::NoTmpfs(folder.to_owned()));
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(folder, flags, Mode::RUSR).map_err(failed("no file can be made in it"))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // Nobody knows the mapping, so nobody touches what is not there yet.
        let mut slab =
            Self::map(file, len, protection, folder.join(name)).map_err(failed("the slab cannot be mapped"))?;
        settle(&slab);
        let mut taken = retry_on_intr(|| take(&slab.file));
        if taken == Err(Errno::NOSPC) {
            // Nobody may be there who would remove them in time.
            let mut others = Self::all(folder).into_iter();
            while taken == Err(Errno::NOSPC) && others.any(Self::remove_if_dead) {
                taken = retry_on_intr(|| take(&slab.file));
            }
        }
        taken.map_err(failed("it has no room for the slab"))?;
        assert!(head.len() <= len, "a slab is longer than its head");
        // SAFETY: the head is inside the mapping, which nobody else knows yet.
        unsafe { std::ptr::copy_nonoverlapping(head.as_ptr(), slab.base, head.len()) };
        assert!(slab.hold().map_err(failed("the slab cannot be locked"))?, "nobody else knows the file");
        let unnamed = format!("/proc/self/fd/{}", slab.file.as_raw_fd());
        rustix::fs::linkat(CWD, &unnamed, CWD, &slab.path, AtFlags::SYMLINK_FOLLOW).map_err(|error| {
            // What has the name is not this one's to remove.
            slab.held = false;
            failed("the slab cannot be named")(error)
        })?;
        Ok(slab)
    }

    /// The slabs in the folder, the one first that was read longest ago.
    fn all(folder: &Path) -> Vec<Self> {
        let paths = std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let named = paths.filter(|path| path.to_str().is_some_and(|path| path.ends_with(SUFFIX)));
        let mut slabs: Vec<Self> = named.filter_map(|path| Self::open(path, HEAD)).collect();
        slabs.sort_by_key(Self::touched);
        slabs
    }

    /// Removes the file if it is a slab whose owner is dead and that nobody answers for. Whether it did.
    fn remove_if_dead(mut self) -> bool {
        if !matches!(self.hold(), Ok(true)) {
            return false;
        }
        // SAFETY: a file that was opened has room for a head.
        let magic = unsafe { self.base.cast::<[u8; MAGIC.len()]>().read() };
        if magic != MAGIC {
            self.release();
            return false;
        }
        let path = self.path.display();
        tracing::warn!(%path, bytes = self.len, "there is no room for a slab: that of a dead worker is removed");
        true
    }

    /// Maps the file of another worker for reading. `None`: it is gone, or none of this user's, or too short for a
    /// head of so many bytes.
    pub(super) fn open(path: PathBuf, head: usize) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::open(&path, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let len = usize::try_from(stat.st_size).ok()?;
        // What others could write is not relied on, whatever it says of itself.
        let mine = stat.st_uid == rustix::process::geteuid().as_raw();
        (mine && len >= head).then(|| Self::map(file, len, ProtFlags::READ, path).ok()).flatten()
    }

    fn map(file: OwnedFd, len: usize, protection: ProtFlags, path: PathBuf) -> Result<Self, Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0)? };
        // A value from here on, so that an error unmaps it.
        let slab = Self { base: base.cast(), len, file, path, held: false };
        // SAFETY: the range is the mapping's.
        unsafe {
            // A child that lived on would keep a mapping to write with.
            rustix::mm::madvise(base, len, Advice::LinuxDontFork)?;
            // A hint; nothing depends on it but speed.
            let _ = rustix::mm::madvise(base, len, Advice::LinuxHugepage);
        }
        Ok(slab)
    }

    /// Takes the lock, if nobody has it. Errors: of the system.
    pub(super) fn hold(&mut self) -> Result<bool, Errno> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => self.held = true,
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Gives the lock back, for somebody else.
    pub(super) fn release(&mut self) {
        self.held = false;
        // It was held, so it can be given back; and it is when the file is closed.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }

    /// Says to whoever answers for the file that it is read: the time of its last change is now, which its mapping
    /// does not touch.
    pub(super) fn touch(&self) {
        let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = Timestamps { last_access: omit, last_modification: now };
        if let Err(error) = rustix::fs::futimens(&self.file, &times) {
            tracing::debug!(path = %self.path.display(), %error, "a slab's readers cannot say that they read it");
        }
    }

    /// Returns what is another when somebody touched the file.
    pub(super) fn touched(&self) -> Option<(i64, i64)> {
        let stat = rustix::fs::fstat(&self.file).ok()?;
        Some((stat.st_mtime, i64::try_from(stat.st_mtime_nsec).ok()?))
    }

    /// Returns the first byte.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// Returns whether this value holds the lock.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }
}

// SAFETY: the mapping is this value's own and stays as it is until it is dropped. It is writable where the file
// was made here; what others made is only read. Such a file has no seals: processes of one user trust each other
// not to cut them.
unsafe impl Memory for SlabFile {
    fn place(&self) -> Place<'_> {
        Place::Host(self.base)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.file.as_fd(), 0))
    }
}

impl Drop for SlabFile {
    fn drop(&mut self) {
        if self.held {
            // Before the lock is given back, lest somebody adopts it.
            let removed = std::fs::remove_file(&self.path);
            if let Err(error) = removed.or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }) {
                tracing::warn!(path = %self.path.display(), %error, "a slab stays in memory");
            }
        }
        // SAFETY: the mapping is this value's own, and who used it held the value.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of one's own can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// One in a folder that has room for two files.
    fn slab(folder: &Path, name: &str) -> Result<SlabFile, FolderError> {
        SlabFile::create_by(
            folder,
            name,
            HEAD,
            &MAGIC,
            |_| (),
            |file| match names(folder).len() {
                ..2 => rustix::fs::fallocate(file, FallocateFlags::empty(), 0, HEAD as u64),
                _ => Err(Errno::NOSPC),
            },
        )
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("it is there");
        let names = entries.map(|entry| entry.expect("it is read").file_name().into_string().expect("it is text"));
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn slabs_of_the_dead_give_way_to_a_new_one_and_those_of_the_living_do_not() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("there is memory");
        let folder = folder.path();
        let dead = ["a.slab", "b.slab"].map(|name| slab(folder, name).expect("there is room"));
        // The system's clock of files turns a few hundred times a second.
        std::thread::sleep(Duration::from_millis(20));
        dead[0].touch();
        dead.into_iter().for_each(|mut killed| killed.release());
        let _third = slab(folder, "c.slab").expect("one gives way");
        assert_eq!(names(folder), ["a.slab", "c.slab"], "no more of them, and first what nobody read");
        let fourth = slab(folder, "d.slab").expect("the other gives way");
        let refused = slab(folder, "e.slab").map(drop).expect_err("both are alive");
        assert!(refused.to_string().contains("no room"), "{refused}");
        assert_eq!(names(folder), ["c.slab", "d.slab"]);
        drop(fourth);
        std::fs::write(folder.join("text.slab"), vec![b'x'; HEAD]).expect("it is written");
        assert!(slab(folder, "e.slab").is_err());
        assert_eq!(names(folder), ["c.slab", "text.slab"], "what is no slab stays");
    }
}
