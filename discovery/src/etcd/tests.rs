//! Calls of a real etcd whose answers only a race shows from outside.

#[path = "../../../tests/e2e/address.rs"]
mod address;
#[path = "../../tests/etcd/server.rs"]
mod server;

use super::client::Watched;
use super::connection::Connector;
use super::{EtcdConfig, TlsFiles};
use address::own_place;
use server::EtcdServer;
use std::time::Duration;

#[tokio::test]
async fn a_watch_on_what_is_compacted_says_so() {
    let Some(server) = EtcdServer::start(own_place(), &[]) else { return };
    let config = EtcdConfig {
        endpoints: vec![server.endpoint()],
        prefix: "/baton".to_owned(),
        lease: Duration::from_secs(10),
        credentials: None,
        tls: TlsFiles::default(),
    };
    let client = Connector::new(config).connect().await.expect("it answers");
    let key = "/baton/workers/1";
    let lease = client.grant(Duration::from_secs(10)).await.expect("it may");
    assert!(client.put_if(key, 0, b"one", lease.id).await.expect("it may"), "there is none");
    let first = client.get(key).await.expect("it answers").expect("it is there").mod_revision;
    assert!(!client.put_if(key, 0, b"two", lease.id).await.expect("it may"), "there is one");
    assert!(client.put_if(key, first, b"two", lease.id).await.expect("it may"), "it is as it was seen");
    let compact = format!(r#"{{"revision":"{}","physical":true}}"#, first + 1);
    server.ask("", "/v3/kv/compaction", &compact).expect("it compacts");
    let mut watch = client.watch(first).await.expect("it begins");
    assert!(matches!(watch.next().await, Ok(Watched::Compacted)));
    let (revision, all) = client.workers().await.expect("it answers");
    assert_eq!((revision, all.len()), (first + 1, 1));
    let mut watch = client.watch(revision + 1).await.expect("it begins");
    client.revoke(lease).await.expect("it may");
    let Ok(Watched::Events(events)) = watch.next().await else { panic!("it is not compacted") };
    assert_eq!(events.len(), 1);
    assert!(!client.keep_alive(lease).await.expect("it answers"), "it is over");
}
