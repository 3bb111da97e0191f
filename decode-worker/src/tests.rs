//! A decode worker without thread, device or network: what it begins, and what not.

use crate::Decode;
use domain::handoff::{Offer, OfferedGroup, PeerBody, PeerMessage};
use domain::plan::{StepOutput, StepPlan};
use domain::session::{Assignment, Failure, FromWorker, PeerAddress, PeerInfo, Role, Submit, ToWorker};
use domain::{
    BlockId, Choice, Dtype, Encoding, Epoch, Generation, Incarnation, KvGroup, KvKind, KvLayout, LeaseId, ModelLayout,
    ProgressWord, RequestId, SamplingParams, Time, WorkerId,
};
use engine::device::{Device, DeviceLimits, SubmitError};
use kv_manager::FetchState;
use scheduler::SchedulerConfig;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use transport::{AgentEvent, Lane, LaneStatus, Memory, Probe, ReadBatch, SendError, Staging, TransferId};
use worker::{Inbound, Machine, ReadError, SessionId, Transport, WorkerConfig};

/// A router that says nothing for so long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// A network that carries nothing, and what it was asked to do with peers.
#[derive(Default)]
struct Nowhere(Arc<Mutex<Vec<String>>>);

impl Nowhere {
    fn note(&self, what: &str, peer: WorkerId) {
        self.0.lock().unwrap().push(format!("{what} {peer}"));
    }
}

impl Transport for Nowhere {
    fn introduce(&mut self, peer: PeerInfo) {
        self.note("introduce", peer.id);
    }

    fn connect(&mut self, peer: WorkerId) {
        self.note("connect", peer);
    }

    fn disconnect(&mut self, peer: WorkerId) {
        self.note("disconnect", peer);
    }

    fn forget(&mut self, peer: WorkerId) {
        self.note("forget", peer);
    }

    fn send(&mut self, to: WorkerId, _bytes: Vec<u8>) -> Result<(), SendError> {
        Err(SendError::NotConnected(to))
    }

    fn read(&mut self, _from: WorkerId, _batches: Vec<ReadBatch>) -> Result<(TransferId, Lane), ReadError> {
        Err(ReadError::NotConnected)
    }

    fn cancel(&mut self, _id: TransferId) {}
}

/// A device that no step comes to.
struct Idle {
    layout: KvLayout,
    limits: DeviceLimits,
}

impl Device for Idle {
    fn layout(&self) -> &KvLayout {
        &self.layout
    }

    fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    fn vocab(&self) -> usize {
        512
    }

    fn submit(&mut self, _plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        unreachable!("nothing is to be computed")
    }

    fn poll(&mut self) -> Option<StepOutput> {
        None
    }

    fn lost(&self) -> Option<&str> {
        None
    }

    fn set_waker(&mut self, _waker: Box<dyn Fn() + Send + Sync>) {}

    fn progress(&self) -> ProgressWord {
        ProgressWord::default()
    }

    fn pool(&self, _group: usize) -> Arc<dyn Memory> {
        unreachable!("nothing is read")
    }

    fn batch_invariant(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "idle".into()
    }
}

fn machine() -> Machine {
    machine_in(Nowhere::default(), worker::OUTBOX_BYTES)
}

/// A worker in this network, for a router of which so many bytes may wait.
fn machine_in(network: Nowhere, outbox_bytes: usize) -> Machine {
    let group = KvGroup { layers: vec![0], kind: KvKind::of_heads(1, 2), window: None };
    let layout = KvLayout::whole(ModelLayout {
        block_tokens: 4,
        dtype: Dtype::F32,
        encoding: Encoding::Exact,
        groups: vec![group],
    });
    let limits = DeviceLimits { rows_max: 64, outputs_max: 8, context_max: 64, blocks: vec![16], slots_max: 8 };
    let config = WorkerConfig {
        id: WorkerId(11),
        incarnation: Incarnation(1),
        name: "decode-0".into(),
        layout: layout.clone(),
        blocks: limits.blocks.clone(),
        weights: [0; 32],
        reserve_blocks: vec![0; layout.groups.len()],
        eviction: kv_manager::EvictionPolicy::Lru,
        watermarks: kv_manager::Watermarks::default(),
        pinned_percent: 0,
        quotas: kv_manager::Quotas::default(),
        park_after: None,
        scheduler: SchedulerConfig {
            step_tokens_max: 64,
            chunk_tokens: 16,
            running_max: 8,
            waiting_max: 8,
            block_tokens: 4,
            samples_max: 8,
        },
        handoff_wait: Duration::from_secs(60),
        answer_wait: Duration::from_secs(1),
        release_retry: Duration::from_millis(100),
        offer_max: Duration::from_secs(60),
        silence_max: SILENCE_MAX,
        outbox_bytes,
        steps_in_flight: 2,
    };
    Machine::new(config, Box::new(Decode), Box::new(Idle { layout, limits }), Box::new(network)).unwrap()
}

/// Something happens.
fn handle(machine: &mut Machine, now: Time, event: Inbound) {
    assert!(machine.handle_event(now, event).is_continue(), "no test shuts it down");
}

fn submit(request: u64) -> Vec<u8> {
    proto::session::encode_to_worker(&ToWorker::Submit(Submit {
        request: RequestId(request),
        epoch: Epoch(1),
        assignment: Assignment::Decode { prefill: WorkerId(1) },
        choices: vec![(Choice(0), [].into())],
        prompt: [1, 2, 3, 4, 5].into(),
        params: Arc::new(SamplingParams::default()),
        seed: 0,
        deadline: Duration::from_secs(600),
        lease: Duration::from_secs(1),
        tenant: String::new(),
        adapter: None,
        holder: None,
        trace: None,
        timed: false,
    }))
}

#[test]
fn what_arrives_after_its_session_was_closed_is_not_begun() {
    let mut machine = machine();
    let session = SessionId(1);
    let attempts = |machine: &Machine| machine.core().attempts().count();
    let opened = Inbound::Opened { session, send: Box::new(|_| Ok(())), ended: Arc::default() };
    handle(&mut machine, Time::ZERO, opened);
    handle(&mut machine, Time::ZERO, Inbound::Session { session, bytes: submit(1) });
    machine.turn(Time::ZERO);
    assert_eq!((attempts(&machine), machine.core().sessions()), (1, 1));

    // It turns all the time, so the silence is the router's.
    let mut now = Time::ZERO;
    while now.since(Time::ZERO) < SILENCE_MAX {
        now = now + SILENCE_MAX / 8;
        machine.turn(now);
    }
    assert_eq!((attempts(&machine), machine.core().sessions()), (0, 0), "the silent router's attempt was ended");

    // Its router was cut off and not gone: what it had said comes late, all at once, into a session that is over.
    handle(&mut machine, now, Inbound::Session { session, bytes: submit(2) });
    machine.turn(now);
    let left: Vec<_> = machine.core().sizes().into_iter().filter(|&(_, size)| size > 0).collect();
    assert_eq!(left, [], "nobody would ever hear of it");
}

/// Says that the prompt of such a request is computed, up to the last token.
fn offer(machine: &Machine, request: u64) -> Inbound {
    let (from, from_incarnation) = (WorkerId(1), Incarnation(1));
    let blocks = vec![(BlockId(0), Generation(1)), (BlockId(1), Generation(1))];
    let offer = Offer {
        request: RequestId(request),
        epoch: Epoch(1),
        lease: LeaseId(request),
        duration: Duration::from_secs(60),
        layout: machine.core().config.layout.fingerprint(),
        tokens: 5,
        ready: 5,
        groups: vec![OfferedGroup { first: 0, blocks }],
    };
    let message = PeerMessage { from, from_incarnation, to_incarnation: None, body: PeerBody::Offer(offer) };
    Inbound::Agent(AgentEvent::Message { from, bytes: proto::handoff::encode(&message) })
}

#[test]
fn handoffs_that_wait_for_room_are_bounded_as_all_that_wait() {
    let mut machine = machine();
    let session = SessionId(1);
    let failed = Arc::<Mutex<Vec<(RequestId, Failure)>>>::default();
    let hears = failed.clone();
    let send = Box::new(move |bytes: Vec<u8>| {
        if let FromWorker::Failed { request, why, .. } = proto::session::decode_from_worker(&bytes).unwrap() {
            hears.lock().unwrap().push((request, why));
        }
        Ok(())
    });
    handle(&mut machine, Time::ZERO, Inbound::Opened { session, send, ended: Arc::default() });
    // Eight run at most, and eight wait. They are offered in another order than they came in.
    for request in 1..=17 {
        handle(
            &mut machine,
            Time::ZERO + Duration::from_millis(request),
            Inbound::Session { session, bytes: submit(request) },
        );
    }
    let now = Time::ZERO + Duration::from_millis(20);
    for request in [16, 8, 7, 6, 5, 4, 3, 2] {
        let offered = offer(&machine, request);
        handle(&mut machine, now, offered);
    }
    machine.turn(now);
    for request in (9..=15).chain([1, 17]) {
        let offered = offer(&machine, request);
        handle(&mut machine, now, offered);
    }
    machine.turn(now);
    assert_eq!(*failed.lock().unwrap(), [(RequestId(17), Failure::QueueFull)]);
    let state = |machine: &Machine, of: FetchState| {
        let of_it = machine.fetches().progress().filter(move |fetch| fetch.state == of);
        of_it.map(|fetch| fetch.request.0).collect::<Vec<_>>()
    };
    assert_eq!(state(&machine, FetchState::Reading), [2, 3, 4, 5, 6, 7, 8, 16]);
    // Whoever came first is next.
    let (request, epoch) = (RequestId(16), Epoch(1));
    let bytes = proto::session::encode_to_worker(&ToWorker::Cancel { request, epoch, choice: None });
    handle(&mut machine, now, Inbound::Session { session, bytes });
    machine.turn(now);
    assert_eq!(state(&machine, FetchState::Reading), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(state(&machine, FetchState::WaitingRoom), (9..=15).collect::<Vec<_>>());
}

#[test]
fn an_attempt_fails_at_once_whose_offer_was_given_back() {
    let mut machine = machine();
    let offered = offer(&machine, 1);
    handle(&mut machine, Time::ZERO, offered);
    // Nobody submitted what it is for, while the loop went on: a pause of its own would not count.
    let turns = (0..=610).map(|turn| Time::ZERO + Duration::from_millis(100) * turn);
    let now = turns.inspect(|&now| machine.turn(now)).last().unwrap();
    let session = SessionId(1);
    let failed = Arc::<Mutex<Vec<_>>>::default();
    let hears = failed.clone();
    let send = Box::new(move |bytes: Vec<u8>| {
        if let FromWorker::Failed { request, why, fault, .. } = proto::session::decode_from_worker(&bytes).unwrap() {
            hears.lock().unwrap().push((request, why, fault));
        }
        Ok(())
    });
    handle(&mut machine, now, Inbound::Opened { session, send, ended: Arc::default() });
    handle(&mut machine, now, Inbound::Session { session, bytes: submit(1) });
    machine.turn(now);
    // The owner did its part.
    assert_eq!(*failed.lock().unwrap(), [(RequestId(1), Failure::HandoffLapsed, None)]);
    // Nor is a copy of the offer kept, which names a lease that is over.
    let offered = offer(&machine, 1);
    handle(&mut machine, now, offered);
    machine.turn(now);
    assert_eq!(machine.core().attempts().count(), 0);
    let left: Vec<_> = machine.fetches().sizes().into_iter().filter(|&(_, size)| size > 0).collect();
    assert_eq!(left, []);
}

#[test]
fn a_sign_of_life_is_answered_by_the_loop() {
    let mut machine = machine();
    let session = SessionId(1);
    let said = Arc::<Mutex<Vec<FromWorker>>>::default();
    let hears = said.clone();
    let send = Box::new(move |bytes: Vec<u8>| {
        hears.lock().unwrap().push(proto::session::decode_from_worker(&bytes).unwrap());
        Ok(())
    });
    handle(&mut machine, Time::ZERO, Inbound::Opened { session, send, ended: Arc::default() });
    machine.turn(Time::ZERO);
    said.lock().unwrap().clear();
    let mut now = Time::ZERO;
    for _ in 0..3 {
        now = now + SILENCE_MAX / 2;
        machine.turn(now);
        assert_eq!(*said.lock().unwrap(), [], "nothing is said unasked");
        let bytes = proto::session::encode_to_worker(&ToWorker::Heartbeat);
        handle(&mut machine, now, Inbound::Session { session, bytes });
        assert_eq!(said.lock().unwrap().drain(..).collect::<Vec<_>>(), [FromWorker::Heartbeat]);
    }
    assert_eq!(machine.core().sessions(), 1, "a router that goes on asking is not silent");
}

#[test]
fn a_report_says_how_many_submits_of_its_session_it_knows_of() {
    let mut machine = machine();
    let submits = [SessionId(1), SessionId(2)].map(|session| {
        let submits = Arc::<Mutex<Vec<u64>>>::default();
        let hears = submits.clone();
        let send = Box::new(move |bytes: Vec<u8>| {
            if let Ok(FromWorker::Report(report)) = proto::session::decode_from_worker(&bytes) {
                hears.lock().unwrap().push(report.submits);
            }
            Ok(())
        });
        handle(&mut machine, Time::ZERO, Inbound::Opened { session, send, ended: Arc::default() });
        submits
    });
    machine.turn(Time::ZERO);
    let now = Time::ZERO + SILENCE_MAX / 8;
    for request in [1, 2] {
        handle(&mut machine, now, Inbound::Session { session: SessionId(2), bytes: submit(request) });
    }
    machine.turn(now);
    assert_eq!(submits.map(|submits| submits.lock().unwrap().clone()), [vec![0, 0], vec![0, 2]]);
}

#[test]
fn peers_are_connected_when_they_are_needed_and_let_go_when_they_are_not() {
    const OWNER: WorkerId = WorkerId(1);
    let network = Nowhere::default();
    let asked = network.0.clone();
    let asked = || asked.lock().unwrap().drain(..).collect::<Vec<_>>().join(", ");
    let mut machine = machine_in(network, worker::OUTBOX_BYTES);
    let session = SessionId(1);
    handle(&mut machine, Time::ZERO, Inbound::Opened { session, send: Box::new(|_| Ok(())), ended: Arc::default() });
    let tell = |machine: &mut Machine, now: Time, message: &ToWorker| {
        let bytes = proto::session::encode_to_worker(message);
        handle(machine, now, Inbound::Session { session, bytes });
        machine.turn(now);
    };
    let (address, name, role) = (PeerAddress::default(), "prefill-0".to_owned(), Role::Prefill);
    let peer = ToWorker::Peer(PeerInfo { id: OWNER, incarnation: Incarnation(7), name, role, address });
    tell(&mut machine, Time::ZERO, &peer);
    assert_eq!(asked(), "introduce w1");
    handle(&mut machine, Time::ZERO, Inbound::Session { session, bytes: submit(1) });
    assert_eq!(asked(), "connect w1", "while its owner computes");
    let status = LaneStatus {
        peer: "prefill-0".into(),
        lane: Lane::Tcp,
        tls: false,
        encoding: Encoding::Exact,
        staging: Staging::default(),
        probe: Probe::default(),
        expected_bytes_per_s: None,
        passed_over: Vec::new(),
    };
    handle(&mut machine, Time::ZERO, Inbound::Agent(AgentEvent::Connected { peer: OWNER, status }));

    // Its router lost the owner, another one may have it: what waits for it goes on waiting, and is connected.
    let left = ToWorker::PeerLeft { id: OWNER, incarnation: Incarnation(7) };
    let mut now = Time::ZERO;
    let pass = |machine: &mut Machine, now: &mut Time, time: Duration| {
        let until = *now + time;
        while *now < until {
            // Its loop would wake no later than that.
            *now = *now + SILENCE_MAX / 10;
            tell(machine, *now, &ToWorker::Heartbeat);
        }
    };
    tell(&mut machine, now, &left);
    pass(&mut machine, &mut now, Duration::from_secs(30));
    assert_eq!((asked().as_str(), machine.core().attempts().count()), ("", 1));

    // It came to nothing, and nothing needs the owner any more.
    pass(&mut machine, &mut now, Duration::from_secs(60));
    assert_eq!((asked().as_str(), machine.core().attempts().count()), ("", 0));
    pass(&mut machine, &mut now, Duration::from_secs(600));
    assert_eq!(asked(), "disconnect w1, forget w1");
    // It is back, as a router says.
    tell(&mut machine, now, &peer);
    assert_eq!(asked(), "introduce w1");
    // What is said of an earlier life is no news.
    tell(&mut machine, now, &ToWorker::PeerLeft { id: OWNER, incarnation: Incarnation(6) });
    pass(&mut machine, &mut now, Duration::from_secs(10));
    assert_eq!(asked(), "");
}

#[test]
fn signs_of_life_and_reports_do_not_pile_up_for_a_router_that_takes_nothing() {
    const OUTBOX_BYTES: usize = 1000;
    let mut machine = machine_in(Nowhere::default(), OUTBOX_BYTES);
    let session = SessionId(1);
    let (takes, said) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<FromWorker>>>::default());
    let (is_open, hears) = (takes.clone(), said.clone());
    let send = Box::new(move |bytes: Vec<u8>| {
        if !is_open.load(Ordering::Relaxed) {
            return Err(bytes);
        }
        hears.lock().unwrap().push(proto::session::decode_from_worker(&bytes).unwrap());
        Ok(())
    });
    handle(&mut machine, Time::ZERO, Inbound::Opened { session, send, ended: Arc::default() });
    let mut now = Time::ZERO;
    let mut waited = Vec::new();
    for _ in 0..40 {
        now = now + SILENCE_MAX / 50;
        for message in [ToWorker::Heartbeat, ToWorker::Snapshot] {
            let bytes = proto::session::encode_to_worker(&message);
            handle(&mut machine, now, Inbound::Session { session, bytes });
        }
        machine.turn(now);
        waited.push(machine.core().backlog());
    }
    assert_eq!(machine.core().sessions(), 1, "it may still take something");
    assert!(waited[20] > OUTBOX_BYTES && waited[20] == waited[39], "no more is said: {waited:?}");
    assert!(waited[39] < OUTBOX_BYTES + 1000, "{waited:?}");

    takes.store(true, Ordering::Relaxed);
    machine.turn(now + SILENCE_MAX / 50);
    assert_eq!(machine.core().backlog(), 0);
    let said = said.lock().unwrap();
    assert!(matches!(said.last(), Some(FromWorker::Report(report)) if report.snapshot), "{said:?}");
}
