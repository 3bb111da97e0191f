//! Threads that panic, one of each kind: the agent fails as a whole, with everything that it has open, and nobody
//! waits for it for ever.

use crate::ends::*;
use domain::{Incarnation, ProgressWord, Secret, StepId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use transport::{
    Agent, AgentConfig, AgentEvent, Copies, Copy, Failure, Fault, Hub, Lane, ListenConfig, Memory, Place, PostError,
    Prepared, ReadBatch, RegionId, SealedMemory, SendError, TransferError, TransferState,
};

const LEN: usize = 64 << 10;

/// Memory whose address nobody can ask for once it is armed.
struct Mined {
    memory: SealedMemory,
    armed: Arc<AtomicBool>,
}

// SAFETY: it answers what the memory that it holds does, or panics.
unsafe impl Memory for Mined {
    fn place(&self) -> Place<'_> {
        assert!(!self.armed.load(Ordering::Relaxed), "planted");
        self.memory.place()
    }

    fn len(&self) -> usize {
        self.memory.len()
    }
}

/// Registers mined memory with an end, and arms it later.
fn mine(end: &End) -> (RegionId, Arc<AtomicBool>) {
    let armed = Arc::<AtomicBool>::default();
    let memory = SealedMemory::new("mined", LEN).expect("memory");
    (end.agent.register(Arc::new(Mined { memory, armed: armed.clone() })), armed)
}

/// Waits for the fault. Which.
fn fault(failure: &Failure) -> Fault {
    let (reported, fault) = channel();
    failure.on_report(move |fault| drop(reported.send(fault.clone())));
    fault.recv_timeout(PATIENCE).expect("it is reported")
}

fn gate(step: u64) -> u64 {
    ProgressWord::mark(StepId(step), 0)
}

/// Reads of which each waits for a step of its own of the owner.
fn gated(end: &End, source: RegionId, steps: &[u64]) -> Vec<Prepared> {
    let prepare = |(n, &step): (usize, &u64)| {
        let copies = Copies::List(vec![Copy { from: 0, to: (n * 4096) as u64 }]);
        let batch = ReadBatch { source, destination: REGION, len: 4096, gate: gate(step), copies };
        end.agent.prepare(OWNER, vec![batch]).expect("it is sound")
    };
    let prepared: Vec<_> = steps.iter().enumerate().map(prepare).collect();
    for one in &prepared {
        end.agent.post(one).expect("there is room");
    }
    prepared
}

#[track_caller]
fn check_all_failed(end: &End, prepared: &[Prepared]) {
    for one in prepared {
        assert_eq!(one.wait(PATIENCE), TransferState::Ended(Err(TransferError::Failed)));
        assert_eq!(end.agent.post(one), Err(PostError::Failed), "what comes later fails at once");
    }
}

#[test]
fn a_mover_that_panics_fails_its_agent() {
    let failure = Failure::new();
    let hub = Hub::new();
    let owner = end(&hub, OWNER, 1, LEN, |_| {});
    let reader = end(&hub, READER, 1, LEN, |config| config.failure = failure.clone());
    let (region, armed) = mine(&owner);
    reader.connect(OWNER);
    // The first mover gets the first and the third.
    let prepared = gated(&reader, region, &[1, 2, 3]);
    armed.store(true, Ordering::Relaxed);
    owner.word.raise(StepId(1), 0);
    let fault = fault(&failure);
    assert!(fault.thread.starts_with("worker w1-copy-") && fault.cause.contains("planted"), "{fault}");
    check_all_failed(&reader, &prepared);
}

#[test]
fn an_owner_whose_thread_panics_fails_and_its_readers_lose_it() {
    let failure = Failure::new();
    let only = Over::from(Lane::Tcp).only();
    let owner = end(&Hub::new(), OWNER, 1, LEN, |config| {
        only(config);
        config.failure = failure.clone();
    });
    let reader = end(&Hub::new(), READER, 1, LEN, only);
    let (region, armed) = mine(&owner);
    reader.agent.introduce(owner.info.clone());
    owner.agent.introduce(reader.info.clone());
    reader.connect(OWNER);
    let prepared = gated(&reader, region, &[1, 2]);
    armed.store(true, Ordering::Relaxed);
    owner.word.raise(StepId(1), 0);
    let fault = fault(&failure);
    assert!(fault.thread == "worker w0-tcp" && fault.cause.contains("planted"), "{fault}");
    for one in &prepared {
        assert_eq!(one.wait(PATIENCE), TransferState::Ended(Err(TransferError::PeerGone)));
    }
}

/// An end over `tcp` whose sink panics with the first event of a kind, and the others.
fn touchy(hub: &Hub, failure: &Failure, is_mined: fn(&AgentEvent) -> bool) -> (Agent, Receiver<AgentEvent>) {
    let (sender, events) = channel();
    let config = AgentConfig {
        listen: Some(ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() }),
        secrets: Secret::new("of the tests").into(),
        lanes: vec![Lane::Tcp],
        failure: failure.clone(),
        ..AgentConfig::in_process(READER, Incarnation(1), "w1".to_owned(), POSTED_MAX)
    };
    let spent = AtomicBool::new(false);
    let sink = Box::new(move |event: AgentEvent| {
        assert!(!is_mined(&event) || spent.swap(true, Ordering::Relaxed), "planted");
        sender.send(event).is_ok()
    });
    let agent = Agent::start(hub, config, ProgressWord::new(), sink).expect("it starts");
    assert_eq!(agent.register(Arc::new(SealedMemory::new("test", LEN).expect("memory"))), REGION);
    (agent, events)
}

#[test]
fn a_sink_that_panics_fails_the_agent_of_whichever_thread_it_is() {
    type IsMined = fn(&AgentEvent) -> bool;
    let kinds: [(IsMined, &str); 2] = [
        (|event| matches!(event, AgentEvent::Ended(_)), "w1-tcp"),
        (|event| matches!(event, AgentEvent::Message { .. }), "w1-control"),
    ];
    for (is_mined, thread) in kinds {
        let failure = Failure::new();
        let owner = end(&Hub::new(), OWNER, 1, LEN, Over::from(Lane::Tcp).only());
        let (agent, events) = touchy(&Hub::new(), &failure, is_mined);
        let info = domain::session::PeerInfo {
            id: READER,
            incarnation: Incarnation(1),
            name: "w1".to_owned(),
            role: domain::session::Role::Decode,
            address: agent.address(),
        };
        owner.agent.introduce(info);
        agent.introduce(owner.info.clone());
        agent.connect(OWNER);
        let connected = events.recv_timeout(PATIENCE).expect("it is connected");
        assert!(matches!(connected, AgentEvent::Connected { .. }), "{connected:?}");
        let read = |to, gate| {
            let batch = batch(4096, gate, &[(0, to)]);
            let prepared = agent.prepare(OWNER, vec![batch]).expect("it is sound");
            agent.post(&prepared).expect("there is room");
            prepared
        };
        let open = [read(0, gate(1)), read(4096, gate(1))];
        if thread.ends_with("tcp") {
            read(8192, 0);
        } else {
            owner.agent.connect(READER);
            owner.agent.send(READER, b"mined".to_vec()).expect("it is on its way");
        }
        let fault = fault(&failure);
        assert!(fault.thread == thread && fault.cause.contains("planted"), "{fault}");
        for one in &open {
            assert_eq!(one.wait(PATIENCE), TransferState::Ended(Err(TransferError::Failed)), "{thread}");
            assert_eq!(agent.post(one), Err(PostError::Failed));
        }
    }
}

#[test]
fn a_fault_elsewhere_in_the_worker_fails_its_agent_over_every_lane() {
    for over in ways() {
        let failure = Failure::new();
        let (owner, reader) = hubs(over);
        let owner = end_over(over, &owner, OWNER, 1, LEN, |_| ());
        let reader = end_over(over, &reader, READER, 1, LEN, |config| config.failure = failure.clone());
        owner.agent.introduce(reader.info.clone());
        reader.agent.introduce(owner.info.clone());
        reader.connect(OWNER);
        let prepared = gated(&reader, REGION, &[1, 2]);
        failure.report("elsewhere", "planted");
        check_all_failed(&reader, &prepared);
        assert_eq!(failure.get().map(|fault| fault.thread.as_str()), Some("elsewhere"), "over {over}");
        assert_eq!(reader.agent.send(OWNER, b"lost".to_vec()), Err(SendError::NotConnected(OWNER)));
    }
}
