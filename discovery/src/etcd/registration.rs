//! A worker's own key, and the lease under which it is kept.

use super::client::{Client, EtcdLease};
use super::connection::Connector;
use super::error::EtcdError;
use crate::outage::Outage;
use crate::{ENTRY_BYTES_MAX, Entry};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Signs of life in the time that a lease lives without one: two may be lost.
const BEATS: u32 = 3;
/// How often a key is tried that others write at the same time.
const CLAIMS_MAX: u32 = 3;
/// How long the withdrawal may take. Without it, the key is gone when the lease lapses.
const WITHDRAW_MAX: Duration = Duration::from_secs(2);

/// A worker that is registered, or will be once etcd answers. Dropped, it stays registered until its lease lapses.
#[derive(Debug)]
pub struct Registration {
    /// Dropped, it ends the task with a withdrawal.
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Registration {
    pub(super) async fn start(connector: Connector, lives: Duration, entry: Entry) -> Result<Self, EtcdError> {
        let key = entry.id.0.to_string();
        let value = entry.encode();
        if value.len() > ENTRY_BYTES_MAX {
            return Err(EtcdError::Entry { bytes: value.len() });
        }
        let mut holder = Holder { connector, lives, entry, key, value, client: None, lease: None };
        let first = holder.beat().await;
        if let Err(error) = &first
            && error.is_refusal()
        {
            return Err(error.clone());
        }
        let (end, ended) = oneshot::channel();
        Ok(Self { end: Some(end), task: tokio::spawn(holder.keep(first, ended)) })
    }

    /// Removes the worker's key, if etcd answers in time.
    pub async fn withdraw(mut self) {
        drop(self.end.take());
        if timeout(WITHDRAW_MAX, &mut self.task).await.is_err() {
            tracing::warn!("etcd does not answer: the worker stays registered until its lease lapses");
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task that keeps a worker registered.
struct Holder {
    connector: Connector,
    lives: Duration,
    entry: Entry,
    key: String,
    value: Vec<u8>,
    client: Option<Client>,
    lease: Option<EtcdLease>,
}

impl Holder {
    async fn keep(mut self, mut outcome: Result<(), EtcdError>, mut ended: oneshot::Receiver<()>) {
        let mut outage = Outage::new("the registration of this worker");
        loop {
            let beat = self.lease.map_or(self.lives, |lease| lease.lives) / BEATS;
            let pause = match outcome {
                Ok(()) => {
                    outage.over();
                    beat
                }
                // An etcd that returns lets each lease live once more: the worker has to be there in time.
                Err(error) => outage.failed(error).min(beat),
            };
            let next = async {
                sleep(pause).await;
                self.beat().await
            };
            outcome = tokio::select! {
                outcome = next => outcome,
                _ = &mut ended => return self.withdraw().await,
            };
        }
    }

    /// Keeps the lease and the key, and makes what there is not. Errors: why they may be lost.
    async fn beat(&mut self) -> Result<(), EtcdError> {
        let outcome = self.hold().await;
        match &outcome {
            Ok(()) | Err(EtcdError::Full | EtcdError::Superseded { .. } | EtcdError::Contended(_)) => {}
            Err(EtcdError::Lapsed) => self.lease = None,
            // The next attempt takes another connection, and maybe another member.
            Err(_) => self.client = None,
        }
        outcome
    }

    async fn hold(&mut self) -> Result<(), EtcdError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => self.connector.connect().await?,
        };
        let client = self.client.insert(client);
        if let Some(lease) = self.lease
            && !client.keep_alive(lease).await?
        {
            self.lease = None;
        }
        let lease = match self.lease {
            Some(lease) => lease,
            None => *self.lease.insert(client.grant(self.lives).await?),
        };
        let key = [client.keys(), self.key.as_str()].concat();
        for _ in 0..CLAIMS_MAX {
            let seen = client.get(&key).await?;
            if seen.as_ref().is_some_and(|seen| seen.lease == lease.id && seen.value == self.value) {
                return Ok(());
            }
            // What is no entry may be overwritten.
            let other = seen.as_ref().and_then(|seen| Entry::decode(&seen.value).ok());
            if let Some(other) = other.filter(|other| other.incarnation > self.entry.incarnation) {
                let Entry { id, name, address, incarnation, .. } = other;
                return Err(EtcdError::Superseded { id, name, address: address.to_string(), later: incarnation });
            }
            let revision = seen.map_or(0, |seen| seen.mod_revision);
            if client.put_if(&key, revision, &self.value, lease.id).await? {
                tracing::info!("etcd: this worker is registered as {key}");
                return Ok(());
            }
        }
        Err(EtcdError::Contended(self.entry.id))
    }

    /// Ends the lease, and with it the key.
    async fn withdraw(mut self) {
        if let (Some(client), Some(lease)) = (self.client.take(), self.lease) {
            match client.revoke(lease).await {
                Ok(()) => tracing::info!("etcd: this worker is not registered any more"),
                Err(error) => tracing::warn!("{error}; the worker stays registered until its lease lapses"),
            }
        }
    }
}
