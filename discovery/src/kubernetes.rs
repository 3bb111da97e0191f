//! Workers that are pods of Kubernetes.
//!
//! Workers do nothing for it: the API server says where the pods of a selector are, and their sessions say the rest. A
//! reader lists the pods, and then watches from that version. A watch that ends or breaks is resumed from the last
//! version it delivered. When that version is forgotten (410 Gone) or the API server was away, the reader lists again
//! and compares. While the API server is away, what is listed does not change.

mod client;
mod config;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod lines;
mod messages;
mod nodes;
mod pod;
mod watcher;

pub use config::KubernetesConfig;
pub use error::KubernetesError;
pub use watcher::PodWatcher;

use client::Client;

/// An API server that answers, or may answer later.
#[derive(Debug)]
pub struct Kubernetes {
    config: KubernetesConfig,
}

impl Kubernetes {
    /// Tries to list the pods. An API server that is away is no error: it may come. Errors: it refuses this process,
    /// and would do so again.
    pub async fn open(config: KubernetesConfig) -> Result<Self, KubernetesError> {
        let tried = match Client::new(&config) {
            Ok(client) => client.pods().await.map(drop),
            Err(error) => Err(error),
        };
        match tried {
            Err(error) if error.is_refusal() => return Err(error),
            Err(error) => tracing::warn!("{error}; Baton goes on without it, and tries again"),
            Ok(()) => {}
        }
        Ok(Self { config })
    }

    /// Follows which pods there are, until dropped. It takes a runtime.
    pub fn watch(self) -> PodWatcher {
        PodWatcher::start(self.config)
    }
}
