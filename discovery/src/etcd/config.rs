//! How etcd is reached.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How etcd is reached, and where in it a cluster's workers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// `http://HOST:PORT` or `https://HOST:PORT` of its members, at least one.
    pub endpoints: Vec<String>,
    /// What the keys of this cluster begin with: clusters with different prefixes do not see each other.
    pub prefix: String,
    /// How long a worker stays registered without a sign of life, in whole seconds. etcd may grant more.
    pub lease: Duration,
    /// The user, if etcd requires one.
    pub credentials: Option<Credentials>,
    /// For endpoints with `https`.
    pub tls: TlsFiles,
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub username: String,
    /// The password.
    pub password: String,
}

/// Files in PEM. They are read at every connection, so that they can be replaced while Baton runs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// The authorities of etcd's certificate. None: those that the system trusts.
    pub authorities: Option<PathBuf>,
    /// The certificate of this process and its private key, if etcd requires one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?})", self.username)
    }
}

impl EtcdConfig {
    /// Returns what the keys of workers begin with.
    pub(super) fn workers(&self) -> String {
        format!("{}/workers/", self.prefix.trim_end_matches('/'))
    }
}
