//! A region of files: bytes that are spread over one or several preallocated files, of as many devices.

use crate::storage::own_file::open_own_file;
use rustix::fs::{FallocateFlags, OFlags};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// What direct reads and writes are aligned to, in memory and in files: no device asks for more.
pub const FILE_ALIGN: u64 = 4096;

/// What a region of files is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// The files, of this user alone ([`crate::open_own_file`]); made where they do not exist, and as long as
    /// their share from then on. One for each device, and none twice, under whatever name.
    pub paths: Vec<PathBuf>,
    /// Bytes of the region, a multiple of [`FILE_ALIGN`].
    pub bytes: u64,
    /// Bytes that follow each other in one file before the next one's turn, a multiple of [`FILE_ALIGN`].
    pub stripe_bytes: u64,
}

/// Why a region of files is not opened.
#[derive(Debug, thiserror::Error)]
enum SpecError {
    /// No path is named.
    #[error("a region of files has no file")]
    NoFile,
    /// Direct reads and writes need multiples of [`FILE_ALIGN`], and at least one.
    #[error("{bytes} bytes in stripes of {stripe_bytes}: multiples of {FILE_ALIGN} are wanted")]
    Unaligned { bytes: u64, stripe_bytes: u64 },
    /// A file's share is more than any file can have.
    #[error("more bytes than a file can have")]
    TooLarge,
    /// Stripes of one file under two names would overwrite each other.
    #[error("{} and {} are one file: a region needs a file of its own for each name", first.display(), second.display())]
    OneFile { first: PathBuf, second: PathBuf },
    /// The file system has less room than the file needs.
    #[error("{wanted} bytes more are wanted than the file has, and its file system has {free} free")]
    NoRoom { wanted: u64, free: u64 },
}

impl From<SpecError> for io::Error {
    fn from(error: SpecError) -> Self {
        let kind = match error {
            SpecError::NoRoom { .. } => io::ErrorKind::StorageFull,
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// A region of files that is open. What is in it survives its owner.
#[derive(Debug)]
pub(super) struct Stripes {
    files: Vec<OwnedFd>,
    bytes: u64,
    stripe_bytes: u64,
    /// Why reads and writes go through the page cache, where they do.
    buffered: Option<String>,
}

/// A range of bytes in one of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileRange {
    pub(super) file: RawFd,
    pub(super) offset: u64,
    pub(super) len: usize,
}

impl Stripes {
    /// Opens the files and takes their room on the devices. Errors: of the system, with the path; a spec that is none.
    pub(super) fn open(spec: &FileSpec) -> io::Result<Self> {
        let FileSpec { ref paths, bytes, stripe_bytes } = *spec;
        if paths.is_empty() {
            return Err(SpecError::NoFile.into());
        }
        if bytes == 0 || stripe_bytes == 0 || bytes % FILE_ALIGN != 0 || stripe_bytes % FILE_ALIGN != 0 {
            return Err(SpecError::Unaligned { bytes, stripe_bytes }.into());
        }
        let stripes = bytes.div_ceil(stripe_bytes);
        let each = stripes.div_ceil(paths.len() as u64).checked_mul(stripe_bytes);
        let each = each.ok_or(SpecError::TooLarge)?;
        let mut buffered = None;
        let mut files = Vec::with_capacity(paths.len());
        let mut names: BTreeMap<(u64, u64), &Path> = BTreeMap::new();
        for path in paths {
            let (file, why) = open(path).map_err(at(path))?;
            buffered = buffered.or(why);
            let status = rustix::fs::fstat(&file).map_err(io::Error::from).map_err(at(path))?;
            if let Some(first) = names.insert((status.st_dev, status.st_ino), path) {
                return Err(SpecError::OneFile { first: first.to_owned(), second: path.clone() }.into());
            }
            files.push(file);
        }
        for (file, path) in files.iter().zip(paths) {
            take_room(file, each).map_err(at(path))?;
        }
        Ok(Self { files, bytes, stripe_bytes, buffered })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn buffered(&self) -> Option<&str> {
        self.buffered.as_deref()
    }

    /// Where the byte at `offset` is, and how many of the `len` from there on are together.
    pub(super) fn range(&self, offset: u64, len: usize) -> FileRange {
        let (stripe, inside) = (offset / self.stripe_bytes, offset % self.stripe_bytes);
        let files = self.files.len() as u64;
        let file = self.files[(stripe % files) as usize].as_raw_fd();
        // With one file its stripes follow each other.
        let together = if files == 1 { self.bytes - offset } else { self.stripe_bytes - inside };
        let len = len.min(usize::try_from(together).unwrap_or(usize::MAX));
        FileRange { file, offset: stripe / files * self.stripe_bytes + inside, len }
    }
}

/// Has an error tell the path.
fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Opens a file for direct reads and writes, and why they are not direct where the file system refuses.
fn open(path: &Path) -> io::Result<(OwnedFd, Option<String>)> {
    let flags = OFlags::RDWR | OFlags::CREATE;
    match open_own_file(path, flags | OFlags::DIRECT) {
        Ok(file) => Ok((file, None)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let why = format!("the file system of {} refuses O_DIRECT", path.display());
            Ok((open_own_file(path, flags)?, Some(why)))
        }
        Err(error) => Err(error),
    }
}

/// Makes the file so long, with all its room on the device: it may be as long already and have holes.
fn take_room(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    let had = rustix::fs::fstat(file)?.st_size.cast_unsigned();
    if had > bytes {
        rustix::fs::ftruncate(file, bytes)?;
    }
    // Asked beforehand: a file system that runs full on the way fails others, too.
    let room = rustix::fs::fstatvfs(file)?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let blocks = rustix::fs::fstat(file)?.st_blocks.cast_unsigned();
    let wanted = bytes.saturating_sub(blocks.saturating_mul(512));
    if wanted > free {
        return Err(SpecError::NoRoom { wanted, free }.into());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // Room that was not taken beforehand may be missing later; the write that finds it missing fails.
        Err(rustix::io::Errno::OPNOTSUPP) => rustix::fs::ftruncate(file, bytes)?,
        Err(error) => {
            // Some file systems keep what they had given until none was left.
            let _ = rustix::fs::ftruncate(file, had.min(bytes));
            return Err(error.into());
        }
        Ok(()) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripes(files: usize, bytes: u64, stripe_bytes: u64) -> (Stripes, Vec<PathBuf>, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let paths: Vec<_> = (0..files).map(|n| folder.path().join(n.to_string())).collect();
        let spec = FileSpec { paths: paths.clone(), bytes, stripe_bytes };
        (Stripes::open(&spec).expect("it opens"), paths, folder)
    }

    #[test]
    fn a_file_that_does_not_fit_is_left_as_it_was() {
        let (kept, paths, folder) = stripes(1, 4 * FILE_ALIGN, FILE_ALIGN);
        drop(kept);
        let sized = |bytes| Stripes::open(&FileSpec { paths: paths.clone(), bytes, stripe_bytes: FILE_ALIGN });
        let len = || std::fs::metadata(&paths[0]).expect("it exists").len();
        let error = sized(1 << 60).expect_err("no file system has so much").to_string();
        assert!(error.contains("are wanted"), "{error}");
        assert_eq!(len(), 4 * FILE_ALIGN);
        sized(2 * FILE_ALIGN).expect("it opens");
        assert_eq!(len(), 2 * FILE_ALIGN, "room that is not wanted any more is given back");
        drop(folder);
    }

    #[test]
    fn a_file_that_is_long_enough_has_its_room_too() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let sparse = std::fs::File::create(&path).expect("it is made");
        sparse.set_len(16 * FILE_ALIGN).expect("it is ours");
        let room = || std::fs::metadata(&path).expect("it exists").blocks() * 512;
        assert_eq!(room(), 0, "it is a hole");
        let spec = FileSpec { paths: vec![path.clone()], bytes: 16 * FILE_ALIGN, stripe_bytes: FILE_ALIGN };
        Stripes::open(&spec).expect("it opens");
        assert!(room() >= 16 * FILE_ALIGN, "{} bytes", room());
    }

    #[test]
    fn a_file_with_two_names_is_no_two_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a"), "kept").expect("it is made");
        std::fs::hard_link(path("a"), path("hard")).expect("links can be made");
        for name in ["a", "hard"] {
            let paths = ["b", name, "c", "a"].map(path).to_vec();
            let refused = Stripes::open(&FileSpec { paths, bytes: 16 * FILE_ALIGN, stripe_bytes: FILE_ALIGN });
            let error = refused.expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let expected = format!("{} and {} are one file", path(name).display(), path("a").display());
            assert!(error.to_string().contains(&expected), "{error}");
            assert_eq!(std::fs::read(path("a")).expect("it is there"), b"kept", "it is as it was");
        }
    }

    #[test]
    fn every_byte_has_a_place_of_its_own_inside_the_files() {
        const UNIT: u64 = FILE_ALIGN;
        for (files, bytes, stripe) in [(1, 7, 2), (2, 7, 1), (3, 20, 3), (4, 4, 8)] {
            let (stripes, paths, _folder) = stripes(files, bytes * UNIT, stripe * UNIT);
            let mut seen = std::collections::BTreeSet::new();
            for unit in 0..bytes {
                let left = ((bytes - unit) * UNIT) as usize;
                let place = stripes.range(unit * UNIT, left);
                assert!(place.len >= UNIT as usize && place.len <= left);
                assert!(seen.insert((place.file, place.offset)), "unit {unit} is where another is");
                let at = stripes.files.iter().position(|file| file.as_raw_fd() == place.file).expect("one of them");
                let size = std::fs::metadata(&paths[at]).expect("it exists").len();
                assert!(place.offset + place.len as u64 <= size, "{place:?} leaves its file of {size}");
                // What is together is where walking on by units leads, too.
                let next = stripes.range((unit + 1).min(bytes - 1) * UNIT, UNIT as usize);
                if place.len > UNIT as usize {
                    assert_eq!((next.file, next.offset), (place.file, place.offset + UNIT));
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_a_region_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let spec = |paths: &[&Path], bytes, stripe_bytes| FileSpec {
            paths: paths.iter().map(|path| path.to_path_buf()).collect(),
            bytes,
            stripe_bytes,
        };
        for wrong in [
            spec(&[], 4096, 4096),
            spec(&[&path], 0, 4096),
            spec(&[&path], 4097, 4096),
            spec(&[&path], 4096, 0),
            spec(&[&path], 4096, 512),
            spec(&[&path], u64::MAX - 4095, 1 << 62),
        ] {
            assert_eq!(Stripes::open(&wrong).expect_err("refused").kind(), io::ErrorKind::InvalidInput, "{wrong:?}");
        }
        let nowhere = spec(&[Path::new("/nowhere/at/all")], 4096, 4096);
        assert!(Stripes::open(&nowhere).expect_err("refused").to_string().contains("/nowhere/at/all"));
    }
}
