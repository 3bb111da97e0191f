//! Files and folders of this user alone: what is in them is nobody else's to read, and not relied on where
//! somebody else could have put it there.

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// What nobody but its owner may do.
const OTHERS: u32 = 0o077;

/// Why a file or a folder is not this user's alone.
#[derive(Debug, thiserror::Error)]
enum OwnFileError {
    #[error("it is no regular file: remove it")]
    NotRegular,
    #[error("it is a link, which is not followed: remove it")]
    Link,
    #[error("it is a link, or no folder: put a folder there, and name what the link leads to in the settings")]
    NotFolder,
    #[error("it belongs to user {theirs}, and this process is user {own}'s: chown or remove it")]
    OtherUser { theirs: u32, own: u32 },
}

impl From<OwnFileError> for io::Error {
    fn from(error: OwnFileError) -> Self {
        let kind = match error {
            OwnFileError::OtherUser { .. } => io::ErrorKind::PermissionDenied,
            OwnFileError::NotRegular | OwnFileError::Link | OwnFileError::NotFolder => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Opens a file of this user, which is made with mode 0600 if `flags` say so. One that others may read or write is
/// taken away from them. Errors: it is a link, or no file, or somebody else's; of the system.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use rustix::fs::OFlags;
/// use std::os::unix::fs::PermissionsExt;
///
/// let path = std::env::temp_dir().join(format!("baton-example-own-{}", std::process::id()));
/// transport::open_own_file(&path, OFlags::RDWR | OFlags::CREATE)?;
/// assert_eq!(std::fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
/// # std::fs::remove_file(path)
/// # }
/// ```
pub fn open_own_file(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(named)?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OwnFileError::NotRegular.into());
    }
    claim(&file, &stat, Mode::RUSR | Mode::WUSR)?;
    Ok(file)
}

/// Makes a folder of mode 0700, or takes one that is there and this user's away from others. Errors: it is a link,
/// or no folder, or somebody else's; of the system.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use std::os::unix::fs::PermissionsExt;
///
/// let path = std::env::temp_dir().join(format!("baton-example-own-folder-{}", std::process::id()));
/// for _ in 0..2 {
///     transport::make_own_folder(&path)?;
///     assert_eq!(std::fs::metadata(&path)?.permissions().mode() & 0o777, 0o700);
/// }
/// # std::fs::remove_dir(path)
/// # }
/// ```
pub fn make_own_folder(path: &Path) -> io::Result<()> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOTDIR | Errno::LOOP => OwnFileError::NotFolder.into(),
        errno => io::Error::from(errno),
    })?;
    claim(&folder, &rustix::fs::fstat(&folder)?, Mode::RWXU)
}

/// Takes it away from all other users, if it is this user's.
fn claim(file: &OwnedFd, stat: &Stat, mode: Mode) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    if stat.st_uid != own {
        return Err(OwnFileError::OtherUser { theirs: stat.st_uid, own }.into());
    }
    if stat.st_mode & OTHERS != 0 {
        rustix::fs::fchmod(file, mode)?;
    }
    Ok(())
}

fn named(errno: Errno) -> io::Error {
    match errno {
        Errno::LOOP => OwnFileError::Link.into(),
        errno => errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    fn open(path: &Path) -> io::Result<OwnedFd> {
        open_own_file(path, OFlags::RDWR | OFlags::CREATE)
    }

    #[test]
    fn what_others_could_read_is_taken_away_from_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inner, file) = (folder.path().join("inner"), folder.path().join("inner/file"));
        for loosened in [false, true] {
            if loosened {
                fs::set_permissions(&inner, Permissions::from_mode(0o755)).expect("it is ours");
                fs::set_permissions(&file, Permissions::from_mode(0o666)).expect("it is ours");
            }
            make_own_folder(&inner).expect("it is ours");
            open(&file).expect("it is ours");
            assert_eq!((mode(&inner), mode(&file)), (0o700, 0o600));
        }
    }

    #[test]
    fn links_and_what_is_no_file_are_refused_with_what_mends_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "kept").expect("it is made");
        symlink(path("file"), path("link")).expect("links can be made");
        symlink(folder.path(), path("folder-link")).expect("links can be made");
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        for (name, expected) in [("link", "is a link"), ("pipe", "no regular file")] {
            let refused = open(&path(name)).expect_err(name);
            assert!(refused.to_string().contains(expected), "{name}: {refused}");
        }
        for name in ["link", "file", "folder-link"] {
            let refused = make_own_folder(&path(name)).expect_err(name);
            assert!(refused.to_string().contains("a link, or no folder"), "{name}: {refused}");
        }
        assert_eq!(fs::read(path("file")).expect("it is there"), b"kept");
    }

    #[test]
    fn what_is_somebody_elses_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root can give a file away");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (inner, file) = (folder.path().join("inner"), folder.path().join("file"));
        make_own_folder(&inner).expect("it is made");
        open(&file).expect("it is made");
        for path in [&inner, &file] {
            std::os::unix::fs::chown(path, Some(12_345), None).expect("root may");
        }
        for refused in [make_own_folder(&inner).err(), open(&file).err()] {
            let refused = refused.expect("it is somebody else's");
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            assert!(refused.to_string().contains("belongs to user 12345"), "{refused}");
        }
    }
}
