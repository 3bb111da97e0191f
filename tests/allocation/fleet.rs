//! Workers of a large cluster: to a router, and to each other, each costs what it costs in a small one. They join
//! through discovery's table, as etcd or Kubernetes shows them, in virtual time.

use crate::counting::held;
use discovery::{About, Change, Entry, Key, Member, Sight, Table, Topology};
use domain::session::{FromWorker, PeerAddress, PeerInfo, Role, ToWorker};
use domain::{Incarnation, Request, RequestId, SamplingParams, Time, WorkerId};
use placement::{Command, Event, FetchPolicy, HandoffPolicy, Placement, PlacementConfig, Rates};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const FEW: u32 = 100;
const MANY: u32 = 1000;
const HEARTBEAT: Duration = Duration::from_millis(1500);
/// So long nothing is asked of them.
const IDLE: Duration = Duration::from_secs(60);
/// Lists and trees are filled to another share.
const SHARE: f64 = 0.1;
/// For an entry of the directory, and what a router keeps of a worker without a request.
const BYTES_MAX: f64 = 4096.0;

/// What a worker costs: messages to it, their bytes, and bytes that are held for it.
#[derive(Debug, Default)]
struct Costs {
    /// Held by the follower of a directory.
    listed_bytes: f64,
    /// Held by a router.
    router_bytes: f64,
    /// Sent when it joins.
    joins: f64,
    /// Sent in [`IDLE`], and the bytes of that.
    idle: (f64, f64),
    /// Sent for a request that it takes part in.
    request: (f64, f64),
    /// Sent to all when it returns as another life.
    returns: f64,
}

/// A router, and workers that answer its signs of life.
struct Fleet {
    placement: Placement,
    now: Time,
    /// Messages to each worker since this was emptied, and their bytes.
    sent: BTreeMap<WorkerId, (usize, usize)>,
}

fn config(workers: u32) -> PlacementConfig {
    PlacementConfig {
        block_tokens: 16,
        token_bytes: 1_000,
        attempts_max: 3,
        lease: Duration::from_secs(1),
        requests_max: workers as usize,
        index_blocks_max: 1_000,
        handoff: HandoffPolicy::Always,
        fetch: FetchPolicy::Auto,
        heartbeat: HEARTBEAT,
        silence_max: HEARTBEAT * 4,
        defaults: Rates {
            prefill_tokens_per_s: 1_000.0,
            decode_step_s: 0.01,
            fetch_bytes_per_s: 1e8,
            host_tokens_per_s: 20_000.0,
            disk_tokens_per_s: 5_000.0,
            handoff_s: 0.02,
        },
    }
}

/// Every second one computes prompts.
fn role(id: u32) -> Role {
    if id.is_multiple_of(2) { Role::Prefill } else { Role::Decode }
}

fn member(id: u32, incarnation: u64) -> Member {
    let address: discovery::Address = format!("10.0.{}.{}:9001", id / 250, id % 250).parse().expect("an address");
    let topology = Topology { host: format!("host-{id:04}"), ..Topology::default() };
    let entry = Entry {
        id: WorkerId(id),
        incarnation: Incarnation(incarnation),
        name: format!("worker-{id:04}"),
        role: role(id),
        address: address.clone(),
        ops: None,
        model: "tiny-rust".to_owned(),
        layout: 7,
        topology,
    };
    Member { key: Key(format!("{id:04}")), address, about: About::Worker(entry) }
}

impl Fleet {
    fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        self.placement.handle(self.now, event, &mut out);
        for command in out {
            let Command::Send { worker, message } = command else { continue };
            let sent = self.sent.entry(worker).or_default();
            *sent = (sent.0 + 1, sent.1 + proto::session::encode_to_worker(&message).len());
            if message == ToWorker::Heartbeat {
                self.event(Event::Worker { id: worker, message: FromWorker::Heartbeat });
            }
        }
    }

    /// A session begins with a worker that is listed.
    fn begin(&mut self, change: Change) {
        let (Change::Joined(member) | Change::Changed(member)) = change else { panic!("{change:?}: none leaves") };
        let entry = member.entry().expect("it says what it is");
        let Entry { id, incarnation, name, role, .. } = entry.clone();
        let peer = PeerInfo { id, incarnation, name, role, address: PeerAddress::default() };
        self.event(Event::WorkerUp { peer, context_tokens: 4096 });
    }

    /// Time passes, and nothing is asked.
    fn rest(&mut self) {
        let end = self.now + IDLE;
        while let Some(at) = self.placement.next_deadline().filter(|&at| at < end) {
            self.now = at;
            self.event(Event::Tick);
        }
        self.now = end;
    }

    /// Messages to a worker, and their bytes, on average; then the count begins anew.
    fn sent(&mut self, workers: u32) -> (f64, f64) {
        let sent = std::mem::take(&mut self.sent);
        let sum = |of: fn(&(usize, usize)) -> usize| sent.values().map(of).sum::<usize>() as f64 / f64::from(workers);
        (sum(|sent| sent.0), sum(|sent| sent.1))
    }
}

fn costs(workers: u32) -> Costs {
    let per_worker = |bytes: usize| bytes as f64 / f64::from(workers);
    let all = |life: u64| Sight::All { revision: life, members: (0..workers).map(|id| member(id, life)).collect() };
    let mut table = Table::default();
    let first = all(1);
    let (joined, _) = held(|| table.handle(first));
    assert_eq!(joined.len(), workers as usize);
    let (_, listed) = held(|| table.clone());
    let placement = Placement::new(config(workers));
    let (mut fleet, router) = held(|| {
        let mut fleet = Fleet { placement, now: Time::ZERO, sent: BTreeMap::new() };
        joined.iter().cloned().for_each(|change| fleet.begin(change));
        fleet
    });
    let mut costs = Costs { listed_bytes: per_worker(listed), router_bytes: per_worker(router), ..Costs::default() };
    costs.joins = fleet.sent(workers).0;
    // The first look, from which on all are looked at in time.
    fleet.event(Event::Tick);
    fleet.rest();
    let beats: Vec<(usize, usize)> = fleet.sent.values().copied().collect();
    assert!(beats.len() == workers as usize && beats.iter().all(|beat| *beat == beats[0]), "{beats:?}");
    costs.idle = fleet.sent(workers);
    // Two workers take part in each.
    for id in 0..u64::from(workers / 2) {
        let params = SamplingParams { max_tokens: 8, ..SamplingParams::default() };
        let request = Request {
            id: RequestId(id),
            prompt: (0..100).collect(),
            choices: 1,
            params: Arc::new(params),
            seed: id,
            deadline: Duration::from_secs(3600),
            tenant: String::new(),
            adapter: None,
        };
        fleet.event(Event::Arrive { request: Arc::new(request), chain: Vec::new() });
    }
    assert_eq!(fleet.placement.waiting(), 0);
    costs.request = fleet.sent(workers);
    for id in 0..u64::from(workers / 2) {
        fleet.event(Event::Gone { request: RequestId(id) });
    }
    fleet.sent(workers);
    // As when all are replaced one after the other.
    for change in table.handle(all(2)) {
        fleet.begin(change);
    }
    costs.returns = fleet.sent(workers).0;
    costs
}

#[test]
fn a_worker_among_many_costs_what_it_costs_among_few() {
    let [few, many] = [FEW, MANY].map(costs);
    println!("{FEW} workers: {few:?}\n{MANY} workers: {many:?}");
    assert_eq!((few.joins, many.joins), (0.0, 0.0), "those that have nothing to do with each other do not meet");
    let pairs = [
        ("bytes in the directory's table", few.listed_bytes, many.listed_bytes),
        ("bytes in a router", few.router_bytes, many.router_bytes),
        ("messages of an idle worker", few.idle.0, many.idle.0),
        ("bytes to an idle worker", few.idle.1, many.idle.1),
        ("messages for a request", few.request.0, many.request.0),
        ("bytes for a request", few.request.1, many.request.1),
        ("messages when it returns", few.returns, many.returns),
    ];
    for (what, few, many) in pairs {
        assert!(few > 0.0 && (many / few - 1.0).abs() <= SHARE, "{what}: {few} among {FEW}, {many} among {MANY}");
    }
    assert!(many.listed_bytes + many.router_bytes < BYTES_MAX, "{many:?}");
}
