//! A worker's own key, and the lease under which it is kept.

use super::client::{Client, EtcdLease};
use super::connection::Connector;
use super::error::EtcdError;
use crate::outage::Outage;
use crate::{ENTRY_BYTES_MAX, Entry};
use domain::session::Role;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Signs of life in the time that a lease lives without one: two may be lost.
const BEATS: u32 = 3;
/// A sign of life may take this part of that time. After one that etcd does not answer, another one is still in time.
const BEAT_SHARE: u32 = 4;
/// How often a key is tried that others write at the same time.
const CLAIMS_MAX: u32 = 3;
/// How long the withdrawal may take. Without it, the key is gone when the lease lapses.
const WITHDRAW_MAX: Duration = Duration::from_secs(2);
/// Pause between attempts to withdraw.
const WITHDRAW_PAUSE: Duration = Duration::from_millis(100);

/// A worker that is registered, or will be once etcd answers. Dropped, it stays registered until its lease lapses.
#[derive(Debug)]
pub struct Registration {
    /// Takes the worker's role. Dropped, it ends the task with a withdrawal.
    role: Option<watch::Sender<Role>>,
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
        let (role, roles) = watch::channel(holder.entry.role);
        Ok(Self { role: Some(role), task: tokio::spawn(holder.keep(first, roles)) })
    }

    /// Lists the worker with another role from now on, or once etcd answers.
    pub fn take_role(&self, role: Role) {
        if let Some(listed) = &self.role {
            listed.send_replace(role);
        }
    }

    /// Removes the worker's key, if etcd answers in time. The log says if it does not.
    pub async fn withdraw(mut self) {
        drop(self.role.take());
        // An error says that the runtime ends.
        let _ = (&mut self.task).await;
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
    async fn keep(mut self, first: Result<(), EtcdError>, mut roles: watch::Receiver<Role>) {
        let mut outage = Outage::new("the registration of this worker");
        let mut pause = self.pause_after(first, &mut outage);
        loop {
            let next = async {
                sleep(pause).await;
                self.beat().await
            };
            pause = tokio::select! {
                outcome = next => self.pause_after(outcome, &mut outage),
                changed = roles.changed() => match changed {
                    Ok(()) => {
                        self.entry.role = *roles.borrow_and_update();
                        self.value = self.entry.encode();
                        Duration::ZERO
                    }
                    Err(_) => return self.withdraw().await,
                },
            };
        }
    }

    /// Notes how a beat went, and returns how long to wait before the next one.
    fn pause_after(&self, outcome: Result<(), EtcdError>, outage: &mut Outage<EtcdError>) -> Duration {
        let beat = self.lease.map_or(self.lives, |lease| lease.lives) / BEATS;
        match outcome {
            Ok(()) => {
                outage.over();
                beat
            }
            // An etcd that returns lets each lease live once more: the worker has to be there in time.
            Err(error) => outage.failed(error).min(beat),
        }
    }

    /// Keeps the lease and the key, and makes what there is not. Errors: why they may be lost.
    async fn beat(&mut self) -> Result<(), EtcdError> {
        let outcome = match self.lease {
            None => self.hold().await,
            Some(lease) => {
                let share = lease.lives / BEAT_SHARE;
                timeout(share, self.hold()).await.unwrap_or_else(|_| Err(self.connector.silent(share)))
            }
        };
        match &outcome {
            Ok(()) | Err(EtcdError::Full | EtcdError::Superseded { .. } | EtcdError::Contended(_)) => {}
            Err(EtcdError::Lapsed) => self.lease = None,
            // The next attempt takes another connection, and maybe another member.
            Err(_) => self.client = None,
        }
        outcome
    }

    async fn hold(&mut self) -> Result<(), EtcdError> {
        let client = connected(&mut self.client, &mut self.connector).await?;
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

    /// Ends the lease, and with it the key, if etcd answers within [`WITHDRAW_MAX`].
    async fn withdraw(mut self) {
        let Some(lease) = self.lease else { return };
        let mut last = None;
        let revoked = timeout(WITHDRAW_MAX, async {
            loop {
                match self.revoke(lease).await {
                    // It lapsed before.
                    Ok(()) | Err(EtcdError::Lapsed) => return true,
                    Err(error) => {
                        let is_final = error.is_refusal();
                        last = Some(error);
                        if is_final {
                            return false;
                        }
                    }
                }
                // The next attempt takes another connection, and maybe another member.
                self.client = None;
                sleep(WITHDRAW_PAUSE).await;
            }
        });
        if revoked.await.unwrap_or(false) {
            return tracing::info!("etcd: this worker is not registered any more");
        }
        let error = last.unwrap_or_else(|| self.connector.silent(WITHDRAW_MAX));
        tracing::warn!("{error}; the worker stays registered until its lease lapses, in {:?}", lease.lives);
    }

    async fn revoke(&mut self, lease: EtcdLease) -> Result<(), EtcdError> {
        connected(&mut self.client, &mut self.connector).await?.revoke(lease).await
    }
}

/// Returns the connection that is there, or else makes one.
async fn connected<'a>(client: &'a mut Option<Client>, connector: &mut Connector) -> Result<&'a mut Client, EtcdError> {
    let there = match client.take() {
        Some(client) => client,
        None => connector.connect().await?,
    };
    Ok(client.insert(there))
}
