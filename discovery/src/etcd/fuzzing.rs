//! Answers of etcd to a read of all keys and to a watch, as they come over the connection.

use super::client::Watched;
use super::error::Asked;
use super::watcher::{member, sight};
use crate::fuzzing::reader::Reader;
use crate::generated::event::EventType;
use crate::generated::{Event, KeyValue, RangeResponse, ResponseHeader, WatchResponse};
use crate::{Address, Entry, Sight, Topology};
use domain::session::Role;
use domain::{Incarnation, WorkerId};
use prost::Message;

/// What the keys of workers begin with.
const KEYS: &str = "/baton/workers/";

fn asked() -> Asked {
    Asked { endpoint: "http://etcd".to_owned(), user: "worker".to_owned(), keys: KEYS.to_owned() }
}

/// Takes bytes as an answer to a read of all keys, and as one of a watch. What they list is a worker, or is left out;
/// the changes fit each other.
pub fn etcd(bytes: &[u8]) {
    let mut reader = Reader::default();
    if let Ok(RangeResponse { kvs, .. }) = RangeResponse::decode(bytes) {
        let members = kvs.iter().filter_map(|kv| member(KEYS, kv)).collect();
        reader.show(Sight::All { revision: 1, members });
    }
    if let Ok(answer) = WatchResponse::decode(bytes) {
        match Watched::read(&asked(), answer) {
            Ok(Some(Watched::Events(events))) => {
                events.iter().filter_map(|event| sight(KEYS, event)).for_each(|sight| reader.show(sight));
            }
            Ok(Some(Watched::Compacted) | None) => {}
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Returns what etcd answers where two workers are registered and one of them leaves, where keys are no entries, and
/// where a watch ends.
pub fn etcd_seeds() -> Vec<Vec<u8>> {
    let header = Some(ResponseHeader { revision: 9 });
    let kvs = vec![listed(1, 5), listed(2, 6), KeyValue { value: b"no entry".to_vec(), ..listed(3, 7) }];
    let range = RangeResponse { header, kvs, more: false };
    let put = |kv| Event { r#type: EventType::Put.into(), kv: Some(kv) };
    let gone = Event { r#type: EventType::Delete.into(), kv: Some(KeyValue { value: Vec::new(), ..listed(1, 12) }) };
    let events = vec![put(listed(1, 10)), put(listed(2, 11)), gone, Event::default()];
    let watched = WatchResponse { header, events, ..WatchResponse::default() };
    let created = WatchResponse { header, created: true, ..WatchResponse::default() };
    let compacted = WatchResponse { header, canceled: true, compact_revision: 8, ..WatchResponse::default() };
    let reasons = ["etcdserver: permission denied", "etcdserver: invalid auth token", "etcdserver: no leader"];
    let ended = reasons.map(|reason| {
        let cancel_reason = reason.to_owned();
        WatchResponse { header, canceled: true, cancel_reason, ..WatchResponse::default() }
    });
    let watches = [watched, created, compacted].into_iter().chain(ended);
    watches.map(|answer| answer.encode_to_vec()).chain([range.encode_to_vec()]).collect()
}

/// Returns a worker's key, as it was written at a revision.
fn listed(id: u32, revision: i64) -> KeyValue {
    let address: Address = "10.0.0.1:9001".parse().expect("an address");
    let entry = Entry {
        id: WorkerId(id),
        incarnation: Incarnation(u64::from(id)),
        name: format!("worker-{id}"),
        role: Role::Decode,
        address: address.clone(),
        ops: Some(address),
        model: "tiny-rust".to_owned(),
        layout: 7,
        topology: Topology { host: "here".to_owned(), ..Topology::default() },
    };
    KeyValue { key: format!("{KEYS}{id}").into(), value: entry.encode(), mod_revision: revision, lease: 3 }
}
