//! Another lane is taken to a peer while it is read; peers that lie.

use super::channel::Channel;
use super::hello::{Identity, Proof, Region, RegionPlace, Transcript, kind, opening};
use crate::agent::counts::Refusal;
use crate::agent::event::TransferError;
use crate::lanes::shm::progress_page::ProgressPage;
use crate::net::HELLO_BYTES_MAX;
use crate::net::socket::Socket;
use crate::speed::link_speed::Slow;
use crate::{
    Agent, AgentConfig, AgentEvent, Copies, Copy, Hub, Lane, ListenConfig, Memory, Prepared, ReadBatch, RegionId,
    SealedMemory,
};
use domain::session::{PeerAddress, PeerInfo, Role};
use domain::{Incarnation, ProgressWord, Secret, StepId, WorkerId};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

const OWNER: WorkerId = WorkerId(0);
const BYTES: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(20);
const SLOW: Slow = Slow { bytes_per_s: 1.0, expected: 2.0 };

fn secret() -> Secret {
    Secret::new("of the tests")
}

struct End {
    agent: Agent,
    events: Receiver<AgentEvent>,
    word: ProgressWord,
    memory: Arc<SealedMemory>,
}

fn end(id: u32) -> End {
    let config = AgentConfig::in_process(WorkerId(id), Incarnation(1), format!("w{id}"), 8);
    let listen = ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() };
    let (sender, events) = sync_channel(64);
    let (word, memory) = (ProgressWord::new(), Arc::new(SealedMemory::new("test", BYTES).expect("memory")));
    let sink = Box::new(move |event| sender.try_send(event).is_ok());
    let config = AgentConfig { listen: Some(listen), secrets: secret().into(), ..config };
    let agent = Agent::start(&Hub::new(), config, word.clone(), sink).expect("it starts");
    agent.register(memory.clone());
    End { agent, events, word, memory }
}

impl End {
    fn event(&self) -> AgentEvent {
        self.events.recv_timeout(PATIENCE).expect("something happens")
    }

    fn connected(&self) -> Lane {
        match self.event() {
            AgentEvent::Connected { status, .. } => status.lane,
            other => panic!("{other:?}"),
        }
    }

    fn prepare(&self, gate: u64) -> Prepared {
        let (region, copies) = (RegionId(0), Copies::List(vec![Copy { from: 0, to: 0 }]));
        let batch = ReadBatch { source: region, destination: region, len: BYTES, gate, copies };
        self.agent.prepare(OWNER, vec![batch]).expect("it is connected")
    }

    fn ended(&self) -> Result<Lane, TransferError> {
        match self.event() {
            AgentEvent::Ended(completion) => completion.result.map(|report| report.lane),
            other => panic!("{other:?}"),
        }
    }

    /// Says that the lane to the owner is slow.
    fn complain(&self) {
        let link = self.agent.shared.peers.link(OWNER).expect("it is connected");
        self.agent.shared.control.slow(link, SLOW);
    }
}

/// Plays an owner at the Unix socket `name`, to whoever connects: with one region, of which it then tells once
/// more, and smaller.
fn liar(listener: &UnixListener) {
    let (socket, _) = listener.accept().expect("somebody connects");
    let mut channel = Channel::new(Socket::plain(socket.into()), true);
    let next = |channel: &mut Channel, kind: u8| loop {
        channel.flush().expect("it listens");
        if let Some(frame) = channel.next(HELLO_BYTES_MAX).expect("it keeps to the protocol") {
            assert_eq!(frame.kind, kind);
            return frame.body;
        }
        channel.fill().expect("it speaks");
    };
    let (mut transcript, secrets) = (Transcript::over(Vec::new()), secret().into());
    transcript.check(&secrets, Proof::Knock, &next(&mut channel, kind::HELLO)).expect("it knows the secret");
    transcript.add(&opening([1; 32]));
    channel.push(kind::CHALLENGE, &opening([1; 32]), None);
    transcript.check(&secrets, Proof::Dialer, &next(&mut channel, kind::PROOF)).expect("it knows the secret");
    let identity = Identity { who: (OWNER, Incarnation(1)), fingerprint: 0 };
    channel.push(kind::IDENTITY, &transcript.prove(&secret(), Proof::Listener, &identity.encode()), None);
    let show = |channel: &mut Channel, len: usize| {
        let memory = SealedMemory::new("test", len).expect("memory");
        let file = memory.file().expect("it has one").0.try_clone_to_owned().expect("descriptors are left");
        let region = Region { id: RegionId(0), len: len as u64, place: RegionPlace::File(0) };
        channel.push(kind::REGION, &region.encode(), Some(file));
    };
    show(&mut channel, BYTES);
    let page = ProgressPage::new(0).expect("memory");
    let page = page.file().expect("it has one").try_clone_to_owned().expect("descriptors are left");
    channel.push(kind::PROGRESS, &[], Some(page));
    channel.push(kind::READY, &[], None);
    show(&mut channel, 4096);
    channel.flush().expect("it listens");
    // Until the other end has had enough.
    while channel.fill().is_ok() {}
}

#[test]
fn a_region_is_told_of_once() {
    let name = format!("baton-test-of-a-liar-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("it is a name");
    let listener = UnixListener::bind_addr(&address).expect("the name is free");
    let liar = std::thread::spawn(move || liar(&listener));
    let reader = end(1);
    let address = PeerAddress { unix: name, ..PeerAddress::default() };
    let (id, incarnation, name, role) = (OWNER, Incarnation(1), "liar".to_owned(), Role::Prefill);
    reader.agent.introduce(PeerInfo { id, incarnation, name, role, address });
    reader.agent.connect(OWNER);
    assert_eq!(reader.connected(), Lane::Shm);
    match reader.event() {
        AgentEvent::Lost { peer: OWNER, reason } => assert!(reason.contains("region 0 a second time"), "{reason}"),
        other => panic!("{other:?}"),
    }
    let refused = reader.agent.counts().refused;
    assert!(refused.contains(&(Refusal::Protocol, 1)), "{refused:?}");
    liar.join().expect("it does not panic");
}

#[test]
fn a_better_lane_is_taken_and_what_is_under_way_goes_on() {
    let (owner, reader) = (end(0), end(1));
    // SAFETY: nobody reads it yet.
    unsafe { owner.memory.as_ptr().write_bytes(7, BYTES) };
    let info = |unix: &str| {
        let mut address = owner.agent.address();
        if unix.is_empty() {
            address.unix.clear();
        }
        PeerInfo { id: OWNER, incarnation: Incarnation(1), name: "w0".to_owned(), role: Role::Prefill, address }
    };
    reader.agent.introduce(info(""));
    reader.agent.connect(OWNER);
    assert_eq!(reader.connected(), Lane::Tcp);
    let (begun, prepared) = (reader.prepare(ProgressWord::mark(StepId(1), 0)), reader.prepare(0));
    reader.agent.post(&begun).expect("there is room");

    reader.agent.introduce(info("known"));
    reader.complain();
    assert_eq!(reader.connected(), Lane::Shm);
    assert_eq!(reader.agent.lanes()[0].1.lane, Lane::Shm);
    // What was posted or prepared over the other lane is read over it.
    owner.word.raise(StepId(1), 0);
    assert_eq!(reader.ended(), Ok(Lane::Tcp));
    reader.agent.post(&prepared).expect("there is room");
    assert_eq!(reader.ended(), Ok(Lane::Tcp));
    reader.agent.post(&reader.prepare(0)).expect("there is room");
    assert_eq!(reader.ended(), Ok(Lane::Shm));
    // SAFETY: every transfer has ended.
    let read = unsafe { std::slice::from_raw_parts(reader.memory.as_ptr(), BYTES) };
    assert!(read.iter().all(|&byte| byte == 7));

    // Nothing is better than the best: it stays, and whoever reads does not notice.
    reader.complain();
    while reader.agent.counts().slow < 2 {
        std::thread::yield_now();
    }
    reader.agent.post(&reader.prepare(0)).expect("there is room");
    assert_eq!(reader.ended(), Ok(Lane::Shm));
    let counts = reader.agent.counts();
    let transfers = |wanted| counts.reads.iter().find(|(lane, _)| *lane == wanted).map(|(_, reads)| reads.transfers);
    assert_eq!((transfers(Lane::Tcp), transfers(Lane::Shm)), (Some(2), Some(2)));

    // Both connections end with the peer, and it is lost once.
    let late = reader.prepare(u64::MAX);
    reader.agent.post(&late).expect("there is room");
    drop(owner);
    let mut ends = [reader.event(), reader.event()];
    ends.sort_by_key(|event| matches!(event, AgentEvent::Ended(_)));
    assert!(matches!(&ends[0], AgentEvent::Lost { peer: OWNER, .. }), "{ends:?}");
    assert!(matches!(&ends[1], AgentEvent::Ended(end) if end.result == Err(TransferError::PeerGone)), "{ends:?}");
    assert!(reader.events.recv_timeout(Duration::from_millis(50)).is_err());
}
