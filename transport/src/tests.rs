use super::*;
use domain::{ProgressWord, StepId, WorkerId};
use proptest::prelude::*;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

struct Bytes(UnsafeCell<Vec<u8>>);

// SAFETY: tests look at the bytes only while no transfer is open.
unsafe impl Sync for Bytes {}

impl Memory for Bytes {
    fn as_ptr(&self) -> *mut u8 {
        // SAFETY: the vector is never resized.
        unsafe { (*self.0.get()).as_mut_ptr() }
    }
    fn len(&self) -> usize {
        // SAFETY: as above.
        unsafe { (*self.0.get()).len() }
    }
}

impl Bytes {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self(UnsafeCell::new(bytes)))
    }

    fn copy(&self) -> Vec<u8> {
        // SAFETY: no transfer is open when a test calls this.
        unsafe { (*self.0.get()).clone() }
    }
}

struct Pair {
    owner: Agent,
    reader: Agent,
    source: Arc<Bytes>,
    destination: Arc<Bytes>,
    progress: ProgressWord,
    owner_events: Receiver<AgentEvent>,
    events: Receiver<AgentEvent>,
}

const OWNER: WorkerId = WorkerId(0);
const READER: WorkerId = WorkerId(1);
const REGION: RegionId = RegionId(0);

fn agent(hub: &Hub, id: WorkerId, progress: ProgressWord, require: Option<Lane>) -> (Agent, Receiver<AgentEvent>) {
    let (sender, events) = sync_channel(64);
    let config = AgentConfig { id, name: id.to_string(), posted_max: 4, require };
    let agent = Agent::start(hub, config, progress, Box::new(move |event| sender.try_send(event).is_ok()));
    (agent.expect("a thread can be started"), events)
}

fn pair(len: usize) -> Pair {
    let hub = Hub::new();
    let progress = ProgressWord::new();
    let (mut owner, owner_events) = agent(&hub, OWNER, progress.clone(), None);
    let (mut reader, events) = agent(&hub, READER, ProgressWord::new(), None);
    let source = Bytes::new((0..len).map(|i| (i * 7 + 1) as u8).collect());
    let destination = Bytes::new(vec![0; len]);
    owner.register(source.clone());
    reader.register(destination.clone());
    reader.connect(OWNER);
    owner.connect(READER);
    connected(&events);
    connected(&owner_events);
    Pair { owner, reader, source, destination, progress, owner_events, events }
}

fn batch(len: usize, gate: u64, copies: Vec<Copy>) -> ReadBatch {
    ReadBatch { source: REGION, destination: REGION, len, gate, copies }
}

/// Takes the event that says that the peer is connected.
fn connected(events: &Receiver<AgentEvent>) {
    let event = events.recv_timeout(PATIENCE).expect("the peer is connected");
    assert!(matches!(event, AgentEvent::Connected { .. }), "{event:?}");
}

fn completion(events: &Receiver<AgentEvent>) -> Completion {
    match events.recv_timeout(PATIENCE).expect("every transfer ends") {
        AgentEvent::Ended(completion) => completion,
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn ready_bytes_arrive_and_are_reported() {
    let pair = pair(1000);
    let batches = vec![batch(10, 0, vec![Copy { from: 0, to: 990 }, Copy { from: 500, to: 0 }])];
    let id = pair.reader.post(pair.reader.prepare(OWNER, batches).unwrap()).unwrap();
    let end = completion(&pair.events);
    assert_eq!(end.id, id);
    let report = end.result.unwrap();
    assert_eq!((report.lane, report.bytes), (Lane::Local, 20));
    let (source, destination) = (pair.source.copy(), pair.destination.copy());
    assert_eq!(destination[990..], source[..10]);
    assert_eq!(destination[..10], source[500..510]);
    assert!(destination[10..990].iter().all(|&byte| byte == 0));
}

#[test]
fn a_layer_is_read_only_once_it_is_written() {
    let pair = pair(64);
    let mut batches = Vec::new();
    for layer in 0..4_u16 {
        let at = u64::from(layer) * 16;
        let gate = ProgressWord::mark(StepId(3), layer);
        batches.push(batch(16, gate, vec![Copy { from: at, to: at }]));
    }
    pair.reader.post(pair.reader.prepare(OWNER, batches).unwrap()).unwrap();
    pair.progress.raise(StepId(2), 9);
    assert!(pair.events.recv_timeout(Duration::from_millis(20)).is_err(), "an earlier step opens no gate");
    for layer in 0..4 {
        assert!(pair.events.try_recv().is_err());
        pair.progress.raise(StepId(3), layer);
    }
    assert!(completion(&pair.events).result.is_ok());
    assert_eq!(pair.destination.copy(), pair.source.copy());
}

#[test]
fn cancel_ends_once_and_quiesces() {
    let pair = pair(64);
    let batches = vec![batch(64, ProgressWord::mark(StepId(1), 0), vec![Copy { from: 0, to: 0 }])];
    let id = pair.reader.post(pair.reader.prepare(OWNER, batches).unwrap()).unwrap();
    pair.reader.cancel(id);
    pair.reader.cancel(id);
    assert_eq!(completion(&pair.events), Completion { id, result: Err(TransferError::Cancelled) });
    pair.progress.raise(StepId(1), 0);
    assert!(pair.events.recv_timeout(Duration::from_millis(20)).is_err(), "one end only");
    assert_eq!(pair.destination.copy(), vec![0; 64], "nothing is written after the end");
}

#[test]
fn the_owners_death_ends_the_transfer() {
    let Pair { owner, mut reader, events, .. } = pair(64);
    let batches = vec![batch(64, u64::MAX, vec![Copy { from: 0, to: 0 }])];
    let id = reader.post(reader.prepare(OWNER, batches).unwrap()).unwrap();
    drop(owner);
    assert_eq!(completion(&events), Completion { id, result: Err(TransferError::PeerGone) });
    assert!(!reader.is_connected(OWNER));
    assert_eq!(reader.send(OWNER, vec![1]), Err(SendError::NotConnected(OWNER)));
}

#[test]
fn a_returned_peer_is_connected_again() {
    let hub = Hub::new();
    let (mut reader, events) = agent(&hub, READER, ProgressWord::new(), None);
    reader.connect(OWNER);
    assert!(matches!(events.try_recv().unwrap(), AgentEvent::Lost { peer: OWNER, .. }));
    let (first, _first_events) = agent(&hub, OWNER, ProgressWord::new(), None);
    reader.connect(OWNER);
    connected(&events);
    let (_second, second_events) = agent(&hub, OWNER, ProgressWord::new(), None);
    drop(first);
    reader.send(OWNER, vec![7]).unwrap();
    let expected = AgentEvent::Message { from: READER, bytes: vec![7] };
    assert_eq!(second_events.recv_timeout(PATIENCE).unwrap(), expected);
}

#[test]
fn bounds_are_kept() {
    let pair = pair(64);
    let refused = |batch| pair.reader.prepare(OWNER, vec![batch]).err();
    let copy = Copy { from: 60, to: 0 };
    assert_eq!(refused(batch(5, 0, vec![copy])), Some(PrepareError::OutOfBounds { copy, len: 5 }));
    let copy = Copy { from: 0, to: u64::MAX };
    assert_eq!(refused(batch(5, 0, vec![copy])), Some(PrepareError::OutOfBounds { copy, len: 5 }));
    let none = refused(ReadBatch { source: RegionId(1), ..batch(5, 0, vec![]) });
    assert_eq!(none, Some(PrepareError::NoRegion { peer: Some(OWNER), region: RegionId(1) }));
    let waiting = || {
        let batches = vec![batch(1, u64::MAX, vec![Copy { from: 0, to: 0 }])];
        pair.reader.prepare(OWNER, batches).unwrap()
    };
    (0..4).for_each(|_| assert!(pair.reader.post(waiting()).is_ok()));
    assert_eq!(pair.reader.post(waiting()), Err(PostError::Full(4)));
    let Pair { reader, events, .. } = pair;
    drop(reader);
    let ends = (0..4).map(|_| completion(&events).result).filter(|end| *end == Err(TransferError::Cancelled)).count();
    assert_eq!(ends, 4, "shutdown ends what is open");
}

#[test]
fn messages_arrive_in_order_until_the_inbox_is_full() {
    let mut pair = pair(1);
    for i in 0..64 {
        pair.reader.send(OWNER, vec![i]).unwrap();
    }
    assert_eq!(pair.reader.send(OWNER, vec![64]), Err(SendError::Full(OWNER)));
    for i in 0..64 {
        let expected = AgentEvent::Message { from: READER, bytes: vec![i] };
        assert_eq!(pair.owner_events.try_recv().unwrap(), expected);
    }
    pair.owner.send(READER, vec![1]).unwrap();
    assert!(matches!(pair.events.try_recv().unwrap(), AgentEvent::Message { from: OWNER, .. }));
}

#[test]
fn lanes_say_why() {
    assert_eq!("rdma".parse(), Ok(Lane::Rdma));
    assert!("RDMA".parse::<Lane>().unwrap_err().to_string().contains("cuda_ipc"));
    assert_eq!(
        Lane::all().filter(|(_, reason)| reason.is_none()).map(|(lane, _)| lane).collect::<Vec<_>>(),
        [Lane::Local]
    );
    let hub = Hub::new();
    let (_owner, _events) = agent(&hub, OWNER, ProgressWord::new(), None);
    let (mut reader, events) = agent(&hub, READER, ProgressWord::new(), Some(Lane::Tcp));
    reader.connect(OWNER);
    let AgentEvent::Connected { status, .. } = events.try_recv().unwrap() else {
        panic!("local is faster than what is required")
    };
    assert_eq!((status.lane, status.passed_over.len()), (Lane::Local, 0));
    assert!(status.probe.bytes_per_s > 0.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the order of raises and cancels: every transfer ends once; a regular end has all bytes, and after an
    /// end nothing more is written.
    #[test]
    fn any_interleaving_ends_every_transfer_once(
        actions in proptest::collection::vec((0_u8..3, 0_u16..4), 1..40),
    ) {
        let pair = pair(4 * 64);
        let mut posted = Vec::new();
        let mut ended = std::collections::BTreeMap::new();
        for (kind, which) in actions {
            match kind {
                0 => {
                    let mut batches = Vec::new();
                    let slot = (posted.len() % 4) as u64 * 64;
                    for layer in 0..=which {
                        let at = slot + u64::from(layer) * 16;
                        let gate = ProgressWord::mark(StepId(1), layer);
                        batches.push(batch(16, gate, vec![Copy { from: at, to: at }]));
                    }
                    // A slot is used again only once its last transfer has ended.
                    if posted.len() < 4 {
                        posted.push((pair.reader.post(pair.reader.prepare(OWNER, batches).unwrap()).unwrap(), slot, which));
                    }
                }
                1 => pair.progress.raise(StepId(1), which),
                _ => if let Some(&(id, ..)) = posted.get(usize::from(which)) { pair.reader.cancel(id) },
            }
        }
        pair.progress.raise(StepId(1), 3);
        for _ in 0..posted.len() {
            let end = completion(&pair.events);
            prop_assert!(ended.insert(end.id, end.result).is_none(), "one end each");
        }
        prop_assert!(pair.events.try_recv().is_err());
        let (source, destination) = (pair.source.copy(), pair.destination.copy());
        for (id, slot, layers) in posted {
            if ended[&id].is_ok() {
                let range = slot as usize..slot as usize + (usize::from(layers) + 1) * 16;
                prop_assert_eq!(&destination[range.clone()], &source[range]);
            }
        }
    }
}
