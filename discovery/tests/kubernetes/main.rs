//! Workers that are pods, in front of an API server of the tests' own and of recorded traffic.

mod access;
#[path = "../../../tests/e2e/address.rs"]
mod address;
mod many;
mod pods;
mod recorded;
mod server;
mod troubles;

use address::own_place;
use discovery::kubernetes::{Kubernetes, KubernetesConfig, PodWatcher};
use discovery::{About, Change, Discovery, Key, Member};
use serde_json::{Value, json};
use server::{ApiServer, NAMESPACE, pod, starting, status, terminating};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// How long a test waits for what must happen. Nothing that works takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it looks.
const GLANCE: Duration = Duration::from_millis(10);

fn config(server: SocketAddr) -> KubernetesConfig {
    KubernetesConfig {
        server: format!("http://{server}"),
        token: None,
        authorities: None,
        namespace: NAMESPACE.to_owned(),
        selector: "app.kubernetes.io/name=baton,llm-d.ai/role in (prefill,decode)".to_owned(),
        node_rack_label: None,
    }
}

/// A pod of a decode worker at a host of 10.0.0.0/24.
fn worker(name: &str, host: u8) -> Value {
    pod(name, SocketAddr::from(([10, 0, 0, host], 9001)), "decode")
}

/// Waits until `holds`.
#[track_caller]
fn until(what: &'static str, mut holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let end = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < end, "{caller}: {what} did not happen");
            sleep(GLANCE).await;
        }
    }
}

/// What a reader of the directory knows.
struct Reader {
    watcher: PodWatcher,
    known: BTreeMap<Key, Member>,
    /// How often something joined, changed and left.
    counts: [usize; 3],
}

impl Reader {
    async fn open(config: KubernetesConfig) -> Self {
        let kubernetes = Kubernetes::open(config).await.expect("it is not refused");
        Self { watcher: kubernetes.watch(), known: BTreeMap::new(), counts: [0; 3] }
    }

    fn take(&mut self, change: Change) {
        let (at, fits) = match change {
            Change::Joined(member) => (0, self.known.insert(member.key.clone(), member).is_none()),
            Change::Changed(member) => {
                let before = self.known.insert(member.key.clone(), member.clone());
                (1, before.is_some_and(|before| before != member))
            }
            Change::Left(key) => (2, self.known.remove(&key).is_some()),
        };
        assert!(fits, "no change: {:?}", self.known);
        self.counts[at] += 1;
    }

    /// The names and addresses that are listed.
    fn listed(&self) -> Vec<String> {
        self.known.values().map(|member| format!("{} {}", member.key, member.address)).collect()
    }

    /// Where a worker is, in words.
    fn topology(&self, name: &str) -> String {
        match &self.known[&Key(name.to_owned())].about {
            About::Pod { topology, .. } => topology.to_string(),
            about => panic!("{about:?}"),
        }
    }

    /// Reads until `holds`.
    #[track_caller]
    fn read_until<'a>(&'a mut self, holds: impl Fn(&Self) -> bool + 'a) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let end = Instant::now() + PATIENCE;
            while !holds(self) {
                let Ok(change) = timeout_at(end, self.watcher.next()).await else {
                    panic!("{caller}: {:?} are listed after {:?}", self.listed(), self.counts);
                };
                self.take(change);
            }
        }
    }

    /// Reads until these workers of [`worker`] are listed.
    #[track_caller]
    fn until(&mut self, wanted: &[(&str, u8)]) -> impl Future<Output = ()> {
        let wanted: Vec<_> = wanted.iter().map(|(name, host)| format!("{name} 10.0.0.{host}:9001")).collect();
        self.read_until(move |reader| reader.listed() == wanted)
    }
}
