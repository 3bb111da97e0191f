//! Workers that come, go and return, in an etcd to which nothing happens.

use super::*;

#[tokio::test]
async fn a_worker_is_listed_until_it_withdraws_or_its_lease_lapses() {
    let Some(server) = start(&[]) else { return };
    let etcd = open(server.endpoint()).await;
    let mut reader = Reader::new(&etcd);
    let first = etcd.register(entry(1, 10)).await.expect("it may");
    reader.until(&[(1, 10)]).await;
    assert_eq!(reader.known.values().next().and_then(Member::entry), Some(&entry(1, 10)));
    // A reader that comes later sees it too.
    let second = etcd.register(entry(2, 20)).await.expect("it may");
    Reader::new(&etcd).until(&[(1, 10), (2, 20)]).await;
    reader.until(&[(1, 10), (2, 20)]).await;
    reader.rests().await;
    first.withdraw().await;
    reader.until(&[(2, 20)]).await;
    // As a process that is killed.
    drop(second);
    reader.until(&[]).await;
    assert_eq!(reader.counts, [2, 0, 2]);
}

#[tokio::test]
async fn a_later_life_takes_the_place_of_an_earlier_one_at_once() {
    let Some(server) = start(&[]) else { return };
    let etcd = open(server.endpoint()).await;
    let mut reader = Reader::new(&etcd);
    let earlier = etcd.register(entry(1, 10)).await.expect("it may");
    reader.until(&[(1, 10)]).await;
    let later = etcd.register(entry(1, 20)).await.expect("it may");
    reader.until(&[(1, 20)]).await;
    assert_eq!(reader.known[&Key("1".to_owned())].address.as_str(), "127.0.0.1:1020");
    // The two do not fight for it, and the earlier one's end is not the later one's.
    reader.rests().await;
    earlier.withdraw().await;
    reader.rests().await;
    assert_eq!(reader.counts, [1, 1, 0]);
    // An earlier life, such as one on a host whose clock is behind, waits until the place is free.
    let behind = etcd.register(entry(1, 15)).await.expect("it may, later");
    reader.rests().await;
    later.withdraw().await;
    reader.until(&[(1, 15)]).await;
    behind.withdraw().await;
    reader.until(&[]).await;
}

#[tokio::test]
async fn an_entry_that_readers_would_leave_out_is_not_registered() {
    let Some(server) = start(&[]) else { return };
    let etcd = open(server.endpoint()).await;
    let long = Entry { model: "m".repeat(5000), ..entry(1, 10) };
    let error = etcd.register(long).await.expect_err("it is too long").to_string();
    assert!(error.starts_with("the entry of this worker has 5") && error.contains("shorten worker.name"), "{error}");
    Reader::new(&etcd).rests().await;
}

#[tokio::test]
async fn clusters_with_different_prefixes_do_not_see_each_other() {
    let Some(server) = start(&[]) else { return };
    let one = open(server.endpoint()).await;
    // One prefix is the beginning of the other.
    let other = EtcdConfig { prefix: "/baton/workers".to_owned(), ..config(&[server.endpoint()]) };
    let other = Etcd::open(other).await.expect("it refuses nobody");
    let (mut reader, mut another) = (Reader::new(&one), Reader::new(&other));
    let mine = one.register(entry(1, 10)).await.expect("it may");
    let theirs = other.register(entry(1, 20)).await.expect("it may");
    reader.until(&[(1, 10)]).await;
    another.until(&[(1, 20)]).await;
    mine.withdraw().await;
    reader.until(&[]).await;
    another.rests().await;
    theirs.withdraw().await;
    another.until(&[]).await;
    assert_eq!((reader.counts, another.counts), ([1, 0, 1], [1, 0, 1]));
}

#[tokio::test]
async fn a_key_that_somebody_deleted_or_overwrote_is_written_again() {
    let Some(server) = start(&[]) else { return };
    let etcd = open(server.endpoint()).await;
    let mut reader = Reader::new(&etcd);
    let _worker = etcd.register(entry(1, 10)).await.expect("it may");
    reader.until(&[(1, 10)]).await;
    // /baton/workers/1, and no value or "garbage".
    server.ask("", "/v3/kv/deleterange", r#"{"key":"L2JhdG9uL3dvcmtlcnMvMQ=="}"#).expect("it may");
    reader.until(&[]).await;
    reader.until(&[(1, 10)]).await;
    server.ask("", "/v3/kv/put", r#"{"key":"L2JhdG9uL3dvcmtlcnMvMQ==","value":"Z2FyYmFnZQ=="}"#).expect("it may");
    reader.until(&[]).await;
    reader.until(&[(1, 10)]).await;
    assert_eq!(reader.counts, [3, 0, 2]);
}

#[tokio::test]
async fn a_role_that_changes_is_listed() {
    let Some(server) = start(&[]) else { return };
    let etcd = open(server.endpoint()).await;
    let mut reader = Reader::new(&etcd);
    let worker = etcd.register(entry(1, 10)).await.expect("it may");
    reader.until(&[(1, 10)]).await;
    let listed = entry(1, 10);
    for role in [Role::Prefill, Role::Decode] {
        worker.take_role(role);
        // Its beat is not waited for.
        let Ok(change) = timeout(LEASE / 6, reader.watcher.next()).await else {
            panic!("it is not listed as {role:?}")
        };
        reader.take(change);
        let known = reader.known.values().next().and_then(|member| member.entry().cloned());
        assert_eq!(known, Some(Entry { role, ..listed.clone() }));
    }
    assert_eq!(reader.counts, [1, 2, 0]);
    worker.withdraw().await;
    reader.until(&[]).await;
}
