//! An etcd that is away, returns, has forgotten everything, is compacted or full.

use super::*;
use relay::Relay;
use std::net::SocketAddr;

fn address(server: &EtcdServer) -> SocketAddr {
    server.endpoint().trim_start_matches("http://").parse().expect("an address")
}

#[tokio::test]
async fn an_etcd_that_comes_later_or_returns_is_used() {
    let place = own_place();
    let Some(mut server) = EtcdServer::prepare(place, &[]) else { return };
    // The first endpoint is nobody's.
    let endpoints = [format!("http://{}", own_place()), server.endpoint()];
    let etcd = Etcd::open(config(&endpoints)).await.expect("that it is away is no error");
    let mut reader = Reader::new(&etcd);
    let _worker = etcd.register(entry(1, 10)).await.expect("it may, later");
    server.start_again();
    reader.until(&[(1, 10)]).await;
    // Once for longer than the lease: to lose the store is not to die.
    for away in [LEASE + Duration::from_secs(1), Duration::from_millis(100)] {
        server.stop();
        reader.rests_for(away).await;
        server.start_again();
        let next = etcd.register(entry(2, 20)).await.expect("it may");
        reader.until(&[(1, 10), (2, 20)]).await;
        next.withdraw().await;
        reader.until(&[(1, 10)]).await;
    }
    assert_eq!(reader.counts, [3, 0, 2], "nothing was registered twice");
}

#[tokio::test]
async fn an_etcd_that_lost_everything_gets_it_again() {
    let Some(mut server) = start(&[]) else { return };
    let etcd = open(server.endpoint()).await;
    let mut reader = Reader::new(&etcd);
    let first = etcd.register(entry(1, 10)).await.expect("it may");
    let _second = etcd.register(entry(2, 20)).await.expect("it may");
    reader.until(&[(1, 10), (2, 20)]).await;
    server.wipe();
    // It is gone for good meanwhile.
    drop(first);
    server.start_again();
    Reader::new(&etcd).until(&[(2, 20)]).await;
    reader.settles().await;
    assert_eq!(reader.listed(), [(2, 20)]);
}

#[tokio::test]
async fn what_was_missed_is_made_up_for_over_a_compaction() {
    let Some(server) = start(&[]) else { return };
    let etcd = open(server.endpoint()).await;
    let relay = Relay::start(address(&server)).await;
    let mut reader = Reader::new(&open(relay.endpoint()).await);
    let first = etcd.register(entry(1, 10)).await.expect("it may");
    let second = etcd.register(entry(2, 20)).await.expect("it may");
    reader.until(&[(1, 10), (2, 20)]).await;
    relay.cut();
    first.withdraw().await;
    let _restarted = etcd.register(entry(2, 21)).await.expect("it may");
    let _third = etcd.register(entry(3, 30)).await.expect("it may");
    compact(&server);
    reader.rests().await;
    relay.join();
    reader.until(&[(2, 21), (3, 30)]).await;
    assert_eq!(reader.counts, [3, 1, 1]);
    // It watches again.
    let _fourth = etcd.register(entry(4, 40)).await.expect("it may");
    reader.until(&[(2, 21), (3, 30), (4, 40)]).await;
    drop(second);
}

/// Forgets all revisions but the newest.
fn compact(server: &EtcdServer) {
    let all = server.ask("", "/v3/kv/range", r#"{"key":"YQ=="}"#).expect("it answers");
    let revision = all.split_once(r#""revision":""#).and_then(|(_, rest)| rest.split_once('"')).expect("it has one").0;
    let compact = format!(r#"{{"revision":"{revision}","physical":true}}"#);
    server.ask("", "/v3/kv/compaction", &compact).expect("it compacts");
}

#[tokio::test]
async fn a_full_etcd_keeps_who_is_registered_and_takes_others_later() {
    let Some(server) = start(&["--quota-backend-bytes", "4000000"]) else { return };
    let etcd = open(server.endpoint()).await;
    let mut reader = Reader::new(&etcd);
    let _early = etcd.register(entry(1, 10)).await.expect("it may");
    reader.until(&[(1, 10)]).await;
    let ballast = "QUFB".repeat(300_000);
    let put = |n: usize| server.ask("", "/v3/kv/put", &format!(r#"{{"key":"YW{n}h","value":"{ballast}"}}"#));
    let refused = (0..9).find_map(|n| put(n).err()).expect("it has a quota");
    assert!(refused.contains("space exceeded"), "{refused}");
    let late = etcd.register(entry(2, 20)).await.expect("it may, later");
    reader.rests().await;
    // Everything below "b".
    server.ask("", "/v3/kv/deleterange", r#"{"key":"YQ==","range_end":"Yg=="}"#).expect("it may");
    compact(&server);
    server.ask("", "/v3/maintenance/defragment", "{}").expect("it may");
    let alarms = server.ask("", "/v3/maintenance/alarm", r#"{"action":"GET"}"#).expect("it answers");
    let member = alarms.split_once(r#""memberID":""#).and_then(|(_, rest)| rest.split_once('"')).expect("it has one").0;
    let disarm = format!(r#"{{"action":"DEACTIVATE","alarm":"NOSPACE","memberID":"{member}"}}"#);
    server.ask("", "/v3/maintenance/alarm", &disarm).expect("it may");
    reader.until(&[(1, 10), (2, 20)]).await;
    late.withdraw().await;
    reader.until(&[(1, 10)]).await;
}

/// The leases that there are.
fn leases(server: &EtcdServer) -> String {
    let all = server.ask("", "/v3/lease/leases", "{}").expect("it answers");
    all.split_once(r#""leases""#).map_or(String::new(), |(_, leases)| leases.to_owned())
}

#[tokio::test]
async fn a_connection_that_falls_silent_costs_no_lease() {
    let Some(server) = start(&[]) else { return };
    let relay = Relay::start(address(&server)).await;
    let mut reader = Reader::new(&open(server.endpoint()).await);
    let worker = open(relay.endpoint()).await.register(entry(1, 10)).await.expect("it may");
    reader.until(&[(1, 10)]).await;
    let lease = leases(&server);
    relay.fall_silent();
    relay.another().await;
    // Longer than the lease has left.
    reader.rests_for(LEASE * 2 / 3).await;
    assert_eq!(leases(&server), lease);
    worker.withdraw().await;
    reader.until(&[]).await;
}

#[tokio::test]
async fn a_worker_that_ends_withdraws_over_a_new_connection() {
    let Some(server) = start(&[]) else { return };
    let relay = Relay::start(address(&server)).await;
    let etcd = open(relay.endpoint()).await;
    let mut reader = Reader::new(&open(server.endpoint()).await);
    let [first, second] = [1, 2].map(|id| etcd.register(entry(id, 10)));
    let [first, second] = [first.await.expect("it may"), second.await.expect("it may")];
    reader.until(&[(1, 10), (2, 10)]).await;
    relay.cut();
    // Both try again, in vain.
    for _ in 0..4 {
        relay.another().await;
    }
    relay.join();
    second.withdraw().await;
    assert_eq!(leases(&server).matches(r#""ID""#).count(), 1);
    reader.until(&[(1, 10)]).await;
    // Where there is no way, it does not wait for one.
    relay.cut();
    timeout(PATIENCE, first.withdraw()).await.expect("a withdrawal has a bound");
}
