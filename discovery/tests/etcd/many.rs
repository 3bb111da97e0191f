//! Many workers: what each costs etcd.

use super::*;

const FEW: u32 = 64;
const MANY: u32 = 512;
/// Signs of life are seldom enough that the machine is not what is measured.
const LEASE_OF_MANY: Duration = Duration::from_secs(6);
/// Signs of life of each worker that are counted.
const BEATS: u32 = 3;

/// Resident memory of a process, in KiB: this one, or etcd.
fn memory_kib(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Calls that etcd has begun, by name.
fn calls(server: &EtcdServer) -> BTreeMap<String, f64> {
    let text = server.ask("", "/metrics", "").expect("it has metrics");
    let started = text.lines().filter_map(|line| line.strip_prefix("grpc_server_started_total{grpc_method=\""));
    let call = |line: &str| Some((line.split('"').next()?.to_owned(), line.rsplit(' ').next()?.parse().ok()?));
    started.filter_map(call).collect()
}

#[tokio::test]
async fn a_worker_costs_one_key_one_lease_and_two_calls_a_beat_among_few_and_among_many() {
    for workers in [FEW, MANY] {
        let Some(server) = start(&[]) else { return };
        check_costs(&server, workers).await;
    }
}

async fn check_costs(server: &EtcdServer, count: u32) {
    let etcd = Etcd::open(EtcdConfig { lease: LEASE_OF_MANY, ..config(&[server.endpoint()]) }).await;
    let etcd = etcd.expect("it refuses nobody");
    let mut reader = Reader::new(&etcd);
    let memory = || ["self".to_owned(), server.process().to_string()].map(|process| memory_kib(&process));
    let memory_before = memory();
    let mut workers = Vec::new();
    for id in 0..count {
        workers.push(etcd.register(entry(id, 10)).await.expect("it may"));
    }
    let mut wanted: Vec<(u32, u64)> = (0..count).map(|id| (id, 10)).collect();
    wanted.sort_by_key(|(id, _)| id.to_string());
    reader.until(&wanted).await;
    let memory_after = memory();
    let [own, etcds] = [0, 1].map(|at| memory_after[at].saturating_sub(memory_before[at]) as f64 / f64::from(count));
    println!("{count} workers: {own:.1} KiB each here, with its connection and a reader; {etcds:.1} KiB each in etcd");
    let before = calls(server);
    tokio::time::sleep(LEASE_OF_MANY / 3 * BEATS).await;
    let after = calls(server);
    let each = |name: &str| (after[name] - before[name]) / f64::from(count);
    let [beats, reads] = ["LeaseKeepAlive", "Range"].map(each);
    let others: f64 = ["LeaseGrant", "Txn", "Watch"].map(each).iter().sum();
    println!("{count} workers: in {BEATS} beats {beats:.2} signs of life and {reads:.2} reads each, {others} others");
    for calls in [beats, reads] {
        assert!(calls > 0.0 && calls <= f64::from(BEATS) + 1.0, "{calls}");
    }
    // A sign of life and its read may lie on either side of the end.
    assert!((beats - reads).abs() <= 1.0, "{beats} signs of life, {reads} reads");
    assert_eq!(others, 0.0);
    let range = r#"{"key":"L2JhdG9uLw==","range_end":"L2JhdG9uMA==","count_only":true}"#;
    let keys = server.ask("", "/v3/kv/range", range).expect("it answers");
    assert!(keys.contains(&format!(r#""count":"{count}""#)), "{keys}");
    let leases = server.ask("", "/v3/lease/leases", "{}").expect("it answers");
    assert_eq!(leases.matches(r#""ID""#).count(), count as usize);
    // A reader that comes later reads pages.
    Reader::new(&etcd).until(&wanted).await;
    // Nothing of them stays when they are gone.
    drop(workers);
    reader.until(&[]).await;
    assert_eq!(reader.counts, [count as usize, 0, count as usize]);
}
