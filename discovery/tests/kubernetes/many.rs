//! Many pods: what each costs.

use super::*;

const PODS: usize = 1000;
/// Pods that the reader asks for at a time.
const PAGE: usize = 100;

/// Resident memory of this process, in KiB.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn name(at: usize) -> String {
    format!("baton-decode-{at:04}")
}

fn of(at: usize) -> Value {
    let at_port = SocketAddr::from(([10, 0, (at / 256) as u8, (at % 256) as u8], 9001));
    pod(&name(at), at_port, "decode")
}

#[tokio::test]
async fn a_pod_costs_one_change_and_no_request() {
    let server = ApiServer::start(own_place());
    (0..PODS).for_each(|at| server.put(of(at)));
    let before = memory_kib();
    let mut reader = Reader::open(config(server.address())).await;
    let opened = server.count("/pods");
    reader.read_until(|reader| reader.counts == [PODS, 0, 0]).await;
    let memory = memory_kib().saturating_sub(before) as f64 / PODS as f64;
    until("the watch", || server.count("watch=true") == 1).await;
    let lists = server.count("/pods") - opened - 1;
    println!("{PODS} pods: {lists} pages, 1 watch, {memory:.1} KiB each in a debug build, answers included");
    assert_eq!(lists, PODS / PAGE);
    // Their states change all the time, and their addresses do not.
    for at in 0..PODS {
        let mut pod = of(at);
        pod["status"]["containerStatuses"][0]["restartCount"] = json!(at);
        server.put(pod);
    }
    // Each is replaced: it ends, is gone, and comes back elsewhere.
    for at in 0..PODS {
        server.put(terminating(of(at)));
        server.delete(&name(at));
        server.put(starting(of(at + PODS)));
        let mut next = of(at + PODS);
        next["metadata"]["name"] = json!(name(at));
        server.delete(&name(at + PODS));
        server.put(next);
    }
    reader.read_until(|reader| reader.counts == [2 * PODS, 0, PODS]).await;
    assert_eq!(reader.known.len(), PODS);
    assert_eq!((server.count("/pods") - opened - lists, server.count("watch=true")), (1, 1));
}
