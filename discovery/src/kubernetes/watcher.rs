//! Which pods are workers, as a stream of changes.

use super::client::{Client, Event, Pods};
use super::config::KubernetesConfig;
use super::error::KubernetesError;
use super::messages::Pod;
use super::nodes::Nodes;
use super::pod::{Seen, place, seen};
use crate::backoff::Backoff;
use crate::outage::Outage;
use crate::table::WORKERS_MAX;
use crate::{About, Change, Discovery, Key, Member, Sight, Table};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// Changes that wait for the reader; beyond it they wait in the connection.
const CHANGES_MAX: usize = 64;

/// Watches that follow one list, each of at most two minutes. Then pods are listed again: a server whose store was
/// replaced by an earlier one says nothing to a reader that is ahead of it.
const WATCHES_MAX: usize = 30;

/// Follows the pods that are workers.
#[derive(Debug)]
pub struct PodWatcher {
    changes: mpsc::Receiver<Change>,
    task: AbortHandle,
}

impl PodWatcher {
    pub(super) fn start(config: KubernetesConfig) -> Self {
        let (sender, changes) = mpsc::channel(CHANGES_MAX);
        let watching = Watching {
            config,
            table: Table::default(),
            shown: 0,
            nodes: Nodes::default(),
            changes: sender,
            outage: Outage::new("the list of workers"),
        };
        Self { changes, task: tokio::spawn(watching.keep()).abort_handle() }
    }
}

impl Discovery for PodWatcher {
    async fn next(&mut self) -> Change {
        match self.changes.recv().await {
            Some(change) => change,
            // The runtime ends.
            None => std::future::pending().await,
        }
    }
}

impl Drop for PodWatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How a watch ended.
enum Ended {
    /// The server ended it, or the connection broke, after it had delivered something or not.
    Resumable { delivered: bool },
    /// The reader of the changes is gone.
    Unread,
}

/// The task that watches.
struct Watching {
    config: KubernetesConfig,
    table: Table,
    /// Sights so far. Versions of Kubernetes are opaque, and it delivers in order: so what comes later is newer.
    shown: u64,
    nodes: Nodes,
    changes: mpsc::Sender<Change>,
    outage: Outage<KubernetesError>,
}

impl Watching {
    async fn keep(mut self) {
        loop {
            let ended = match Client::new(&self.config) {
                Ok(client) => self.follow(&client).await,
                Err(error) => Err(error),
            };
            match ended {
                Ok(()) => return,
                Err(error) => sleep(self.outage.failed(error)).await,
            }
        }
    }

    /// Lists and watches. Returns when the reader of the changes is gone. Errors: why the pods have to be listed again.
    async fn follow(&mut self, client: &Client) -> Result<(), KubernetesError> {
        loop {
            let Pods { mut version, pods } = client.pods().await?;
            self.nodes.forget();
            let mut members = Vec::new();
            for pod in &pods {
                members.extend(self.member(client, pod, true).await?);
            }
            if !self.show(|revision| Sight::All { revision, members }).await {
                return Ok(());
            }
            if self.table.left_out() > 0 {
                tracing::warn!("{} workers are left out: at most {WORKERS_MAX} are taken", self.table.left_out());
            }
            // A server that ends every watch at once is not asked without a pause.
            let mut idle = Backoff::new();
            for _ in 0..WATCHES_MAX {
                if self.table.has_room_again() {
                    break;
                }
                match self.watch(client, &mut version).await? {
                    Ended::Unread => return Ok(()),
                    Ended::Resumable { delivered: true } => idle.reset(),
                    Ended::Resumable { delivered: false } => sleep(idle.pause()).await,
                }
            }
        }
    }

    /// Watches once from a version on, which moves with what is delivered, until there is room for workers that were
    /// left out. Errors: the watch does not begin, or the server says that it cannot go on.
    async fn watch(&mut self, client: &Client, version: &mut String) -> Result<Ended, KubernetesError> {
        let mut watch = client.watch(version).await?;
        self.outage.over();
        let mut delivered = false;
        while !self.table.has_room_again() {
            let event = match watch.next().await {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error @ KubernetesError::Ended { .. }) => {
                    tracing::debug!("{error}; the watch goes on from there");
                    break;
                }
                Err(error) => return Err(error),
            };
            delivered = true;
            let (key, member) = match event {
                Event::Bookmark(at) => {
                    *version = at;
                    continue;
                }
                Event::Gone(pod) => {
                    *version = pod.metadata.resource_version;
                    (Key(pod.metadata.name), None)
                }
                Event::Put { pod, is_new } => {
                    let member = self.member(client, &pod, is_new).await?;
                    *version = pod.metadata.resource_version;
                    (Key(pod.metadata.name), member)
                }
            };
            let is_read = match member {
                Some(member) => self.show(|revision| Sight::Put { revision, member: Box::new(member) }).await,
                None => self.show(|revision| Sight::Gone { revision, key }).await,
            };
            if !is_read {
                return Ok(Ended::Unread);
            }
        }
        Ok(Ended::Resumable { delivered })
    }

    /// Returns the worker of a pod, if it takes sessions. A pod that is no worker is logged if it is new.
    async fn member(&mut self, client: &Client, pod: &Pod, is_new: bool) -> Result<Option<Member>, KubernetesError> {
        let mut member = match seen(pod) {
            Seen::Worker(member) => *member,
            Seen::Absent => return Ok(None),
            Seen::Strange(reason) => {
                if is_new {
                    tracing::warn!("the pod {} is left out: {reason}", pod.metadata.name);
                }
                return Ok(None);
            }
        };
        if let (Some(rack), About::Pod { topology, .. }) = (&self.config.node_rack_label, &mut member.about)
            && let Some(labels) = self.nodes.labels(client, &topology.host).await?
        {
            place(topology, labels, rack);
        }
        Ok(Some(member))
    }

    /// Passes on what a sight changes. Returns whether there is a reader.
    async fn show(&mut self, sight: impl FnOnce(u64) -> Sight) -> bool {
        self.shown += 1;
        for change in self.table.handle(sight(self.shown)) {
            if self.changes.send(change).await.is_err() {
                return false;
            }
        }
        true
    }
}
