//! Which workers are registered, as a stream of changes.

use super::client::{Client, Watched};
use super::connection::Connector;
use super::error::EtcdError;
use crate::generated::{Event, KeyValue, event::EventType};
use crate::outage::Outage;
use crate::table::WORKERS_MAX;
use crate::{About, Change, Discovery, Entry, Key, Member, Sight, Table};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// Changes that wait for the reader; beyond it they wait in the connection.
const CHANGES_MAX: usize = 64;

/// Follows the workers that are registered in etcd.
#[derive(Debug)]
pub struct EtcdWatcher {
    changes: mpsc::Receiver<Change>,
    task: AbortHandle,
}

impl EtcdWatcher {
    pub(super) fn start(connector: Connector) -> Self {
        let (sender, changes) = mpsc::channel(CHANGES_MAX);
        let watch = Watching { table: Table::default(), changes: sender, outage: Outage::new("the list of workers") };
        Self { changes, task: tokio::spawn(watch.keep(connector)).abort_handle() }
    }
}

impl Discovery for EtcdWatcher {
    async fn next(&mut self) -> Change {
        match self.changes.recv().await {
            Some(change) => change,
            // The runtime ends.
            None => std::future::pending().await,
        }
    }
}

impl Drop for EtcdWatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task that watches.
struct Watching {
    table: Table,
    changes: mpsc::Sender<Change>,
    outage: Outage<EtcdError>,
}

impl Watching {
    async fn keep(mut self, mut connector: Connector) {
        loop {
            let ended = match connector.connect().await {
                Ok(client) => self.watch(&client).await,
                Err(error) => Err(error),
            };
            match ended {
                Ok(()) => return,
                Err(error) => sleep(self.outage.failed(error)).await,
            }
        }
    }

    /// Watches over one connection. Returns when the reader of the changes is gone. Errors: the watch is over.
    async fn watch(&mut self, client: &Client) -> Result<(), EtcdError> {
        loop {
            let (revision, all) = client.workers().await?;
            self.outage.over();
            let members = all.into_iter().filter_map(|kv| member(client.keys(), &kv)).collect();
            if !self.show(Sight::All { revision: number(revision), members }).await {
                return Ok(());
            }
            if self.table.left_out() > 0 {
                let left_out = self.table.left_out();
                tracing::warn!("{left_out} workers are left out: at most {WORKERS_MAX} can be registered");
            }
            let mut watch = client.watch(revision + 1).await?;
            while !self.table.has_room_again() {
                let Watched::Events(events) = watch.next().await? else { break };
                for event in events {
                    let Some(sight) = sight(client.keys(), &event) else { continue };
                    if !self.show(sight).await {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Passes on what a sight changes. Returns whether there is a reader.
    async fn show(&mut self, sight: Sight) -> bool {
        for change in self.table.handle(sight) {
            if self.changes.send(change).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Returns what an event shows. A key whose value is no entry is as if it were not there.
pub(super) fn sight(keys: &str, event: &Event) -> Option<Sight> {
    let kv = event.kv.as_ref()?;
    let revision = number(kv.mod_revision);
    let put = if event.r#type() == EventType::Put { member(keys, kv) } else { None };
    match put {
        Some(member) => Some(Sight::Put { revision, member: Box::new(member) }),
        None => Some(Sight::Gone { revision, key: key(keys, kv)? }),
    }
}

/// Returns the worker of a key. One that cannot be read is logged and left out.
pub(super) fn member(keys: &str, kv: &KeyValue) -> Option<Member> {
    let key = key(keys, kv)?;
    match Entry::decode(&kv.value) {
        Ok(entry) if entry.id.0.to_string() == key.0 => {
            Some(Member { key, address: entry.address.clone(), about: About::Worker(entry) })
        }
        Ok(entry) => {
            tracing::warn!("etcd: {keys}{key} is left out: it is the entry of the worker {}", entry.id.0);
            None
        }
        Err(error) => {
            tracing::warn!("etcd: {keys}{key} is left out: {error}");
            None
        }
    }
}

/// Returns what a worker is called in etcd.
fn key(keys: &str, kv: &KeyValue) -> Option<Key> {
    let name = kv.key.strip_prefix(keys.as_bytes())?;
    Some(Key(String::from_utf8_lossy(name).into_owned()))
}

/// Returns a revision; those of etcd are positive.
fn number(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_entry_is_not_listed() {
        let text = |id: u32| {
            format!(r#"{{"form":1,"id":{id},"incarnation":"3","name":"a","role":"prefill","address":"h:1"}}"#)
        };
        let kv = |key: &str, value: &str| KeyValue { key: key.into(), value: value.into(), mod_revision: 5, lease: 0 };
        let keys = "/baton/workers/";
        let listed = member(keys, &kv("/baton/workers/7", &text(7))).expect("it is one");
        assert_eq!((listed.key.0.as_str(), listed.address.as_str()), ("7", "h:1"));
        assert_eq!(member(keys, &kv("/baton/workers/8", &text(7))), None, "another worker's");
        assert_eq!(member(keys, &kv("/baton/workers/7", "x")), None);
        assert_eq!(member(keys, &kv("/other/workers/7", &text(7))), None);
        let put = |value: &str| Event { r#type: EventType::Put.into(), kv: Some(kv("/baton/workers/7", value)) };
        assert!(matches!(sight(keys, &put(&text(7))), Some(Sight::Put { revision: 5, .. })));
        assert_eq!(sight(keys, &put("x")), Some(Sight::Gone { revision: 5, key: Key("7".to_owned()) }));
        assert_eq!(sight(keys, &Event::default()), None);
    }
}
