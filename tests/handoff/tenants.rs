//! Tenants and the tiers below the device, where what one computed lies beside what others did: on disk, in slabs
//! of other workers of the host, and in a store.

use super::*;
use crate::store::{BUCKET, Store};
use domain::WorkerId;

/// The decode worker of the second pair.
const OTHER: WorkerId = WorkerId(3);
/// Prompts, one of which comes back at last.
const PROMPTS: u32 = 40;

/// Two pairs of workers that compute so slowly that loading is always the faster way.
fn cluster(options: Options) -> Cluster {
    let cluster = Cluster::new(&Options { pairs: 2, blocks: [24; 2], ..options });
    cluster.decode_knobs.layer_us.store(5_000, Ordering::Relaxed);
    cluster
}

/// Has the worker compute a prompt for the tenant. How much of it was cached.
fn ask(cluster: &mut Cluster, worker: WorkerId, id: u64, tenant: &str, number: u32) -> u32 {
    let request = Asked { tenant: tenant.to_owned(), ..Asked::new(id, prompt(30, number), 2) };
    cluster.submit(worker, &request, Assignment::Whole);
    cluster.wait_end(&request);
    assert!(cluster.failures.is_empty(), "{:?}", cluster.failures);
    assert_eq!(cluster.text(&request, 0), cluster.expected(&request, 0), "{tenant}, prompt {number}");
    cluster.rows[&request.key(0)][0].1.cached_tokens
}

/// What `first` computed for one tenant comes back for that one at `then`, when it has left the device there, and
/// for no other.
fn check(options: Options, first: WorkerId, then: WorkerId) {
    let mut cluster = cluster(options);
    let mut ids = 1..;
    let mut id = || ids.next().expect("there is always another");
    for number in 1..=PROMPTS {
        ask(&mut cluster, first, id(), "one", number);
        // What it has on the device leaves that.
        if first == then {
            cluster.until("it to be parked", |cluster| cluster.park(first, "one", &prompt(30, number)) == 0);
        }
    }
    let came = (1..=PROMPTS).find(|&number| {
        // What others wrote is looked for every so often.
        std::thread::sleep(Duration::from_millis(100));
        ask(&mut cluster, then, id(), "one", number) > 0
    });
    let number = came.expect("the tier brings back what one's own tenant computed");
    for tenant in ["other", ""] {
        assert_eq!(ask(&mut cluster, then, id(), tenant, number), 0, "{tenant:?} got blocks of another tenant");
    }
    cluster.wait_idle();
}

#[test]
fn tenants_share_no_block_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    check(Options { disk: Some(folder.path().to_owned()), ..options(None) }, DECODE, DECODE);
}

#[test]
fn tenants_share_no_block_of_neighbours() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("there is memory");
    let options = Options { host_bytes: 1 << 20, host_folder: Some(folder.path().to_owned()), ..options(None) };
    check(options, DECODE, OTHER);
}

#[test]
fn tenants_share_no_block_of_a_store() {
    let store = Store::start();
    let options = Options { store: Some((format!("http://{}", store.address), BUCKET.to_owned())), ..options(None) };
    check(options, DECODE, OTHER);
}
