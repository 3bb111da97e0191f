//! TLS of the ports of a process, and of the sessions that a router dials.
//!
//! A process has one certificate for all its ports, and one list of authorities for those that connect. A router has a
//! list of authorities for the workers that it dials, and shows them its own certificate. All of it comes from PEM
//! files, which are read again when they change. A connection keeps what it began with.
//!
//! - `acceptor`: the ports, and what is refused there.
//! - `connector`: the end that dials.
//! - `configs`: from files to what rustls is told at each kind of port.
//! - `operator`: the end that asks a port of operators.
//! - `explain`: what went wrong, in words.
//! - `plain`: answers to those that speak plain HTTP to a port of TLS.
//! - `validity`: when a certificate expires.
//!
//! What is deliberately absent: TLS between workers, which is the transport's, and lists of revoked certificates:
//! issue certificates that expire soon.

mod acceptor;
mod configs;
mod connector;
mod explain;
mod operator;
mod plain;
mod validity;

pub use acceptor::{Accepted, Acceptor, Port, Refused};
pub use configs::{PortUse, TlsError};
pub use connector::Connector;
pub use explain::explain;
pub use operator::OperatorTls;

use configs::Configs;
use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval_at};

/// How often the files are looked at.
const RELOAD_EVERY: Duration = Duration::from_secs(1);

/// The PEM files of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate by which this process is known, followed by those that link it to an authority, and the file
    /// of its private key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Authorities of the certificates that others show at the ports. Without an identity it is of no effect.
    pub client_authorities: Option<PathBuf>,
    /// Authorities of the workers that are dialed. `None`: they are dialed without TLS.
    pub authorities: Option<PathBuf>,
    /// What the certificates of these workers must be for. `None`: the host that is dialed.
    pub server_name: Option<String>,
}

/// What a process knows of TLS now. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    files: TlsFiles,
    /// What the files were like when they were first read.
    first: Vec<Version>,
    current: RwLock<Configs>,
}

/// What tells versions of a file apart; `None`: there is no file.
type Version = Option<(u64, u64, i64, i64, u64)>;

impl Tls {
    /// Reads the files. Errors: [`TlsError`].
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let first = files.versions();
        let current = RwLock::new(Configs::read(&files)?);
        Ok(Self(Arc::new(Shared { files, first, current })))
    }

    /// Returns a port that speaks TLS if this process has a certificate.
    pub fn port(&self, listener: TcpListener, at: PortUse) -> Port {
        let acceptor = self.0.files.identity.is_some().then(|| Acceptor::new(self.clone(), at));
        Port { listener, acceptor }
    }

    /// Returns what dials workers; `None`: they are dialed without TLS.
    pub fn connector(&self) -> Option<Connector> {
        self.0.files.authorities.is_some().then(|| Connector::new(self.clone()))
    }

    /// Returns when the certificate of this process expires, in seconds since the Unix epoch; `None`: there is none.
    pub fn expiry_s(&self) -> Option<u64> {
        self.current().expiry_s
    }

    /// Reads the files again when one of them has changed, until dropped, and tells what came of it. Files that are of
    /// no use change nothing.
    pub async fn follow(&self, mut told: impl FnMut(Result<(), TlsError>)) -> Infallible {
        let mut seen = self.0.first.clone();
        let mut ticks = interval_at(tokio::time::Instant::now() + RELOAD_EVERY, RELOAD_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let look = tokio::task::spawn_blocking({
                let (files, seen) = (self.0.files.clone(), seen.clone());
                move || {
                    let versions = files.versions();
                    (versions != seen).then(|| (versions, Configs::read(&files)))
                }
            });
            // A panic is told by itself, and the next look is the next chance.
            let Ok(Some((versions, read))) = look.await else { continue };
            seen = versions;
            told(read.map(|configs| *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = configs));
        }
    }

    fn current(&self) -> Configs {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TlsFiles {
    fn versions(&self) -> Vec<Version> {
        let identity = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        identity.chain(&self.client_authorities).chain(&self.authorities).map(|path| version(path)).collect()
    }
}

/// Returns which version of a file is there. Links are followed: files that Kubernetes mounts are links.
fn version(path: &Path) -> Version {
    let about = fs::metadata(path).ok()?;
    // The time of the last change of the file or of what the system knows of it: nothing sets that back.
    Some((about.dev(), about.ino(), about.ctime(), about.ctime_nsec(), about.len()))
}
