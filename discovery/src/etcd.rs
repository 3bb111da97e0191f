//! Workers that register themselves in etcd, version 3.4 or later.
//!
//! A worker has one key, `PREFIX/workers/ID`, and a lease that it keeps alive; the key is gone when the lease lapses.
//! A reader reads all keys, and then watches from that revision. After every loss of the connection it reads all keys
//! again and compares: so a store that was compacted, restored or emptied meanwhile needs no case of its own. While
//! etcd is away, what is listed does not change, and Baton tries again with growing pauses.

mod client;
mod config;
mod connection;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod registration;
#[cfg(test)]
mod tests;
mod watcher;

pub use config::{Credentials, EtcdConfig, TlsFiles};
pub use error::EtcdError;
pub use registration::Registration;
pub use watcher::EtcdWatcher;

use crate::Entry;
use connection::Connector;

/// An etcd that answers, or may answer later.
#[derive(Debug)]
pub struct Etcd {
    config: EtcdConfig,
}

impl Etcd {
    /// Tries to read the workers. An etcd that is away is no error: it may come. Errors: it refuses this process, and
    /// would do so again.
    pub async fn open(config: EtcdConfig) -> Result<Self, EtcdError> {
        let etcd = Self { config };
        let tried = match etcd.connector().connect().await {
            Ok(client) => client.workers().await.map(drop),
            Err(error) => Err(error),
        };
        match tried {
            Err(error) if error.is_refusal() => Err(error),
            Err(error) => {
                tracing::warn!("{error}; Baton goes on without it, and tries again");
                Ok(etcd)
            }
            Ok(()) => Ok(etcd),
        }
    }

    /// Follows which workers are registered, until dropped. It takes a runtime.
    pub fn watch(&self) -> EtcdWatcher {
        EtcdWatcher::start(self.connector())
    }

    /// Registers a worker, and keeps it registered until [`Registration::withdraw`]. Where etcd is away, it is
    /// registered later. Errors: etcd refuses this process.
    pub async fn register(&self, entry: Entry) -> Result<Registration, EtcdError> {
        Registration::start(self.connector(), self.config.lease, entry).await
    }

    fn connector(&self) -> Connector {
        Connector::new(self.config.clone())
    }
}
