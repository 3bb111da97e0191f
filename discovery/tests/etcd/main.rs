//! Workers in a real etcd, over what happens to it. Without `etcd` every test says that it is skipped.

mod access;
#[path = "../../../tests/e2e/address.rs"]
mod address;
mod many;
mod relay;
mod server;
mod troubles;
mod workers;

use address::own_place;
use discovery::etcd::{Etcd, EtcdConfig, EtcdWatcher, TlsFiles};
use discovery::{Change, Discovery, Entry, Key, Member, Topology};
use domain::session::Role;
use domain::{Incarnation, WorkerId};
use server::EtcdServer;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// How long a test waits for what must happen. Nothing that works takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Of a worker. A machine that stands still for seconds loses none.
const LEASE: Duration = Duration::from_secs(6);
/// In which a registration that was lost would be missed, and made again: longer than signs of life are apart.
const WHILE: Duration = Duration::from_secs(3);

fn start(flags: &[&str]) -> Option<EtcdServer> {
    EtcdServer::start(own_place(), flags)
}

fn config(endpoints: &[String]) -> EtcdConfig {
    EtcdConfig {
        endpoints: endpoints.to_vec(),
        prefix: "/baton".to_owned(),
        lease: LEASE,
        credentials: None,
        tls: TlsFiles::default(),
    }
}

async fn open(endpoint: String) -> Etcd {
    Etcd::open(config(&[endpoint])).await.expect("it refuses nobody")
}

fn entry(id: u32, incarnation: u64) -> Entry {
    Entry {
        id: WorkerId(id),
        incarnation: Incarnation(incarnation),
        name: format!("worker-{id}"),
        role: Role::Decode,
        address: format!("127.0.0.1:{}", 1000 + incarnation).parse().expect("an address"),
        ops: None,
        model: "tiny-rust".to_owned(),
        layout: 7,
        topology: Topology { host: "here".to_owned(), ..Topology::default() },
    }
}

/// What a reader of the directory knows.
struct Reader {
    watcher: EtcdWatcher,
    known: BTreeMap<Key, Member>,
    /// How often something joined, changed and left.
    counts: [usize; 3],
}

impl Reader {
    fn new(etcd: &Etcd) -> Self {
        Self { watcher: etcd.watch(), known: BTreeMap::new(), counts: [0; 3] }
    }

    fn take(&mut self, change: Change) {
        let (at, fits) = match change {
            Change::Joined(member) => (0, self.known.insert(member.key.clone(), member).is_none()),
            Change::Changed(member) => (1, self.known.insert(member.key.clone(), member).is_some()),
            Change::Left(key) => (2, self.known.remove(&key).is_some()),
        };
        assert!(fits, "no change: {:?}", self.known);
        self.counts[at] += 1;
    }

    /// The ids and incarnations that are listed.
    fn listed(&self) -> Vec<(u32, u64)> {
        let entries = self.known.values().filter_map(Member::entry);
        entries.map(|entry| (entry.id.0, entry.incarnation.0)).collect()
    }

    /// Reads until these ids and incarnations are listed.
    #[track_caller]
    fn until<'a>(&'a mut self, wanted: &'a [(u32, u64)]) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let end = Instant::now() + PATIENCE;
            while self.listed() != wanted {
                let Ok(change) = timeout_at(end, self.watcher.next()).await else {
                    panic!("{caller}: {:?} are listed, not {wanted:?}", self.listed());
                };
                self.take(change);
            }
        }
    }

    /// Reads for a while, in which nothing may happen.
    async fn rests(&mut self) {
        self.rests_for(WHILE).await;
    }

    /// Reads for so long, in which nothing may happen.
    async fn rests_for(&mut self, time: Duration) {
        if let Ok(change) = timeout(time, self.watcher.next()).await {
            panic!("{change:?}");
        }
    }

    /// Reads until nothing happens for a while.
    async fn settles(&mut self) {
        while let Ok(change) = timeout(WHILE, self.watcher.next()).await {
            self.take(change);
        }
    }
}
