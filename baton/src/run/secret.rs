//! The secrets by which the processes of a cluster know each other: as configured, or, where a cluster is of one
//! host alone, one that the processes of this user make and share.

use crate::config::{Cluster, DiscoveryEtcd, SECRET_BYTES_MIN};
use domain::{Secret, Secrets};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, linkat, mkdir, open, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Largest file with a secret.
const FILE_BYTES_MAX: u64 = 4096;
/// Random bytes of a secret that is made here.
const MADE_BYTES: usize = 32;
/// The file of the secret that is made here.
const MADE_FILE: &str = "cluster.secret";

/// Why a process does not know its cluster's secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    /// Others than this host's processes are spoken to.
    #[error(
        "{key}: {address} is not of this host alone, and the cluster has no secret. Set cluster.secret_file, or \
         BATON_CLUSTER__SECRET in the environment, to the same secret everywhere (`openssl rand -hex 32` makes one); or use addresses of \
         this host alone, such as 127.0.0.1; or, if every process that reaches it may use it, set cluster.insecure = true"
    )]
    Exposed {
        /// The setting.
        key: &'static str,
        /// Its address.
        address: String,
    },
    /// A file that was named is of no use.
    #[error("{key}: {path}: {reason}")]
    File {
        /// The setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: SecretFileError,
    },
    /// No secret can be shared on this host.
    #[error(
        "the secret that processes of one user share on this host cannot be had in {folder}: {reason}. Set \
         cluster.runtime_folder to a folder of this user alone; or set cluster.secret_file, or BATON_CLUSTER__SECRET in the environment; or, \
         where every user of this host may use the workers, set cluster.insecure = true"
    )]
    OfHost {
        /// Where it was looked for.
        folder: PathBuf,
        /// What is wrong there.
        reason: String,
    },
}

/// Why a file holds no secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretFileError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// Its secret is too short.
    #[error(
        "it has {bytes} bytes, which others can find by trying: at least {SECRET_BYTES_MIN}, such as `openssl rand -hex 32` makes"
    )]
    Short {
        /// Bytes of the secret.
        bytes: usize,
    },
    /// It is no file of a secret.
    #[error("it has more than {FILE_BYTES_MAX} bytes")]
    Long,
}

/// Finds the secrets of a cluster of which this process uses `addresses`: those that it listens on, or dials. Each
/// comes with the setting that names it. Errors: [`SecretError`].
pub(crate) fn secrets(cluster: &Cluster, addresses: &[(&'static str, &str)]) -> Result<Secrets, SecretError> {
    if let Some(own) = of_cluster(&cluster.secret.0, "cluster.secret_file", &cluster.secret_file)? {
        let also = of_cluster(&cluster.accept_secret.0, "cluster.accept_secret_file", &cluster.accept_secret_file)?;
        return Ok(Secrets::new(own, also));
    }
    if cluster.insecure {
        tracing::warn!(
            "cluster.insecure: every process that reaches this cluster may use it, read its KV and pretend to be a worker"
        );
        return Ok(Secrets::default());
    }
    if let Some((key, address)) = addresses.iter().find(|(_, address)| !is_of_this_host(address)) {
        return Err(SecretError::Exposed { key, address: (*address).to_owned() });
    }
    let folder = match cluster.runtime_folder.as_str() {
        "" => std::env::temp_dir().join(format!("baton-{}", geteuid().as_raw())),
        folder => Path::new(folder).join("baton"),
    };
    let secret = of_host(&folder);
    secret.map(Secrets::from).map_err(|error| SecretError::OfHost { folder, reason: error.to_string() })
}

/// Makes a secret at random.
pub(crate) fn draw_secret() -> io::Result<String> {
    let mut bytes = [0; MADE_BYTES];
    // So few bytes come at once.
    getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the password with which etcd is asked. Errors: [`SecretError::File`].
pub(super) fn etcd_password(etcd: &DiscoveryEtcd) -> Result<String, SecretError> {
    let password = configured(&etcd.password.0, "discovery.etcd.password_file", &etcd.password_file, 1)?;
    Ok(password.unwrap_or_default())
}

/// Takes the secret of the cluster that the configuration says, or reads the file that it names.
fn of_cluster(secret: &str, key: &'static str, file: &str) -> Result<Option<Secret>, SecretError> {
    Ok(configured(secret, key, file, SECRET_BYTES_MIN)?.map(Secret::new))
}

/// Takes the secret that the configuration says, or reads the file that it names, with `bytes_min` bytes at least.
fn configured(secret: &str, key: &'static str, file: &str, bytes_min: usize) -> Result<Option<String>, SecretError> {
    if file.is_empty() {
        return Ok(Some(secret.to_owned()).filter(|secret| !secret.is_empty()));
    }
    let wrong = |reason: SecretFileError| SecretError::File { key, path: PathBuf::from(file), reason };
    // Links are followed: secrets that Kubernetes mounts are links.
    let opened = File::open(file).map_err(|error| wrong(error.into()))?;
    let mode = opened.metadata().map_err(|error| wrong(error.into()))?.mode();
    if mode & 0o077 != 0 {
        tracing::warn!(
            "{key}: others of this host may read {file}: `chmod 600 {file}`, unless only this process sees it"
        );
    }
    read(opened, bytes_min).map(Some).map_err(wrong)
}

/// Reads the secret in a file.
fn read(file: File, bytes_min: usize) -> Result<String, SecretFileError> {
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    let secret = text.trim_end_matches(['\r', '\n']);
    match secret.len() {
        0 => Err(SecretFileError::Empty),
        bytes if bytes < bytes_min => Err(SecretFileError::Short { bytes }),
        _ if text.len() as u64 > FILE_BYTES_MAX => Err(SecretFileError::Long),
        _ => Ok(secret.to_owned()),
    }
}

/// Says whether `address` (`HOST:PORT`) belongs to this host alone.
pub(super) fn is_of_this_host(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Reads the secret in `folder`, which is of this user alone; where there is none, makes it. Others can neither
/// read it nor put another one there: nothing is followed, and folder and file must be of this user and closed to
/// others.
fn of_host(folder: &Path) -> io::Result<Secret> {
    match mkdir(folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(folder, flags | OFlags::DIRECTORY, Mode::empty())?;
    check_private(&folder, "the folder")?;
    let file = match openat(&folder, MADE_FILE, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            make(&folder)?;
            openat(&folder, MADE_FILE, flags, Mode::empty())?
        }
        file => file?,
    };
    check_private(&file, MADE_FILE)?;
    let secret = read(File::from(file), SECRET_BYTES_MIN).map(Secret::new);
    secret.map_err(|reason| io::Error::other(format!("{MADE_FILE}: {reason}")))
}

/// Makes the file. It has its name only once it is whole; of several that are made at once, the first one counts.
fn make(folder: &OwnedFd) -> io::Result<()> {
    let secret = draw_secret()?;
    let name = format!("{MADE_FILE}.{}", &draw_secret()?[..16]);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, &name, flags, Mode::RUSR | Mode::WUSR)?;
    let written = File::from(file).write_all(format!("{secret}\n").as_bytes());
    let linked = written.and_then(|()| match linkat(folder, &name, folder, MADE_FILE, AtFlags::empty()) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    });
    unlinkat(folder, &name, AtFlags::empty())?;
    linked
}

/// Checks that only this user may change or read it.
fn check_private(file: impl AsFd, what: &str) -> io::Result<()> {
    let stat = fstat(file)?;
    if stat.st_uid != geteuid().as_raw() {
        return Err(io::Error::other(format!("{what} is of another user")));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(io::Error::other(format!("{what} is open to other users")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    /// A cluster that says nothing, and the folder where its processes share a secret.
    fn cluster() -> (Cluster, TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime_folder = folder.path().to_str().expect("a plain name").to_owned();
        (Cluster { runtime_folder, ..Cluster::default() }, folder)
    }

    #[track_caller]
    fn check_refused(cluster: &Cluster, addresses: &[(&'static str, &str)], wanted: &str) {
        let error = secrets(cluster, addresses).expect_err("it is refused").to_string();
        assert!(error.contains(wanted), "{error}");
    }

    #[test]
    fn processes_of_one_user_share_a_secret_that_one_of_them_made() {
        let (cluster, folder) = cluster();
        let here =
            [("worker.listen", "127.0.0.1:0"), ("transport.listen", "[::1]:0"), ("cluster.workers", "localhost:1")];
        let made: Vec<Secrets> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| secrets(&cluster, &here))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic").expect("a secret")).collect()
        });
        assert!(made.iter().all(|secrets| *secrets == made[0] && !secrets.is_empty()));
        assert_eq!(secrets(&cluster, &here).expect("a secret"), made[0]);
        let files: Vec<_> = fs::read_dir(folder.path().join("baton")).expect("it is there").collect();
        assert_eq!(files.len(), 1, "{files:?}");
        let mode = |name: &str| fs::metadata(folder.path().join(name)).expect("it is there").mode() & 0o777;
        assert_eq!((mode("baton"), mode("baton/cluster.secret")), (0o700, 0o600));
    }

    #[test]
    fn a_place_that_others_can_change_is_refused() {
        let (cluster, folder) = cluster();
        let place = folder.path().join("baton");
        let file = place.join(MADE_FILE);
        secrets(&cluster, &[]).expect("a secret");
        for (path, open, closed) in [(&file, 0o640, 0o600), (&place, 0o701, 0o700)] {
            fs::set_permissions(path, Permissions::from_mode(open)).expect("it is ours");
            check_refused(&cluster, &[], "is open to other users. Set cluster.runtime_folder");
            fs::set_permissions(path, Permissions::from_mode(closed)).expect("it is ours");
        }
        fs::rename(&file, folder.path().join("elsewhere")).expect("it is ours");
        symlink(folder.path().join("elsewhere"), &file).expect("it is ours");
        check_refused(&cluster, &[], "cluster.insecure = true");
        fs::remove_dir_all(&place).expect("it is ours");
        symlink(folder.path(), &place).expect("it is ours");
        check_refused(&cluster, &[], "cluster.insecure = true");
        let nowhere = Cluster { runtime_folder: "/nowhere".to_owned(), ..Cluster::default() };
        check_refused(&nowhere, &[], "cannot be had in /nowhere/baton: No such file");
    }

    #[test]
    fn other_hosts_are_not_spoken_to_without_a_secret() {
        let (cluster, _folder) = cluster();
        for address in ["0.0.0.0:9001", "10.0.0.1:1", "[::]:1", "worker-1:9001"] {
            check_refused(
                &cluster,
                &[("worker.listen", "127.0.0.1:1"), ("transport.listen", address)],
                "transport.listen",
            );
        }
        let open = [("worker.listen", "0.0.0.0:9001")];
        check_refused(&cluster, &open, "worker.listen: 0.0.0.0:9001 is not of this host alone");
        check_refused(&cluster, &open, "cluster.insecure = true");
        let insecure = Cluster { insecure: true, ..cluster.clone() };
        assert!(secrets(&insecure, &open).expect("as it is told").is_empty());
        let mut with = insecure;
        with.secret.0 = "of sixteen bytes".to_owned();
        assert_eq!(secrets(&with, &open).expect("a secret"), Secret::new("of sixteen bytes").into());
    }

    #[test]
    fn a_password_is_said_or_in_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("password");
        fs::write(&path, "short\n").expect("there is room");
        let mut etcd = DiscoveryEtcd::default();
        assert_eq!(etcd_password(&etcd).expect("there is none"), "");
        etcd.password.0 = "said".to_owned();
        assert_eq!(etcd_password(&etcd).expect("it is said"), "said");
        etcd.password_file = path.to_str().expect("a plain name").to_owned();
        assert_eq!(etcd_password(&etcd).expect("it is there"), "short");
        fs::write(&path, "\n").expect("there is room");
        let error = etcd_password(&etcd).expect_err("it is empty").to_string();
        assert!(error.starts_with("discovery.etcd.password_file: ") && error.ends_with(": it is empty"), "{error}");
    }

    #[test]
    fn a_file_holds_a_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("there is room");
            path.to_str().expect("a plain name").to_owned()
        };
        let with = |secret_file: String, accept_secret_file: String| {
            let cluster = Cluster { secret_file, accept_secret_file, ..Cluster::default() };
            secrets(&cluster, &[("worker.listen", "0.0.0.0:1")])
        };
        let new = file("new", "the one that is new\n");
        let known = with(new.clone(), file("old", "the one of before\r\n")).expect("both are good");
        let wanted = Secrets::new(Secret::new("the one that is new"), Some(Secret::new("the one of before")));
        assert_eq!(known, wanted);
        for (name, text, reason) in [
            ("empty", "\n", "it is empty"),
            ("short", "short\n", "it has 5 bytes"),
            ("long", &"a".repeat(5000), "more than 4096"),
        ] {
            let path = file(name, text);
            let error = with(path.clone(), String::new()).expect_err("it is refused").to_string();
            assert!(error.starts_with(&format!("cluster.secret_file: {path}: ")) && error.contains(reason), "{error}");
            let error = with(new.clone(), path).expect_err("it is refused").to_string();
            assert!(error.starts_with("cluster.accept_secret_file: "), "{error}");
        }
        with("/nowhere".to_owned(), String::new()).expect_err("there is none");
    }
}
