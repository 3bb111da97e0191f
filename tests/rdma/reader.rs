//! The end that reads, in this process.

use crate::owner::Owner;
use domain::session::{PeerAddress, PeerInfo, Role};
use domain::{Incarnation, ProgressWord, Secret, WorkerId};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use transport::{
    Agent, AgentConfig, AgentEvent, Completion, Copies, Copy, Hub, Lane, ListenConfig, RailCounts, ReadBatch, RegionId,
    SealedMemory, TransferId,
};

pub(crate) const OWNER: WorkerId = WorkerId(0);
const READER: WorkerId = WorkerId(1);
const REGION: RegionId = RegionId(0);
/// Bytes of each end's memory.
pub(crate) const LEN: usize = 8 << 20;
/// Fingerprint of what lies there.
pub(crate) const LAYOUT: u64 = 0xBA70;
/// How long a test waits for what must happen: the machine is emulated, and with Soft-RoCE it may stand still for
/// half a minute as a whole when a device goes down amid reads.
const PATIENCE: Duration = Duration::from_secs(150);
/// Long enough to see what should not happen.
const MOMENT: Duration = Duration::from_millis(300);
/// What the reader's memory holds where nothing was read to.
pub(crate) const UNTOUCHED: u8 = 0xAA;
const POSTED_MAX: usize = 16;

/// What the owner has at a place: no two neighbours of a distance below 64 Ki are alike for long.
pub(crate) fn byte(at: usize) -> u8 {
    ((at as u32).wrapping_mul(2_654_435_761) >> 13) as u8
}

/// An agent that may take no lane but this one.
pub(crate) fn config(id: WorkerId, life: Incarnation) -> AgentConfig {
    let mut config = AgentConfig::in_process(id, life, format!("worker {id}"), POSTED_MAX);
    config.listen = Some(ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() });
    config.secrets = Secret::new("of the tests").into();
    config.lanes = vec![Lane::Rdma];
    config.require = Some(Lane::Rdma);
    config.fingerprint = LAYOUT;
    config
}

pub(crate) struct Reader {
    pub(crate) agent: Agent,
    events: Receiver<AgentEvent>,
    memory: Arc<SealedMemory>,
}

impl Reader {
    /// One that is connected to `owner`.
    pub(crate) fn connected(owner: &Owner) -> Self {
        Self::connected_with(owner, &[])
    }

    /// One that uses these devices, and is connected to `owner`.
    pub(crate) fn connected_with(owner: &Owner, devices: &[&str]) -> Self {
        let reader = Self::new(devices);
        reader.meet(owner, 1);
        match reader.event() {
            AgentEvent::Connected { status, .. } => assert_eq!(status.lane, Lane::Rdma),
            other => panic!("unexpected {other:?}"),
        }
        reader
    }

    pub(crate) fn new(devices: &[&str]) -> Self {
        let (sender, events) = sync_channel(64);
        let sink = Box::new(move |event| sender.try_send(event).is_ok());
        let mut config = config(READER, Incarnation(1));
        config.rdma.devices = devices.iter().map(ToString::to_string).collect();
        let agent = Agent::start(&Hub::new(), config, ProgressWord::new(), sink).expect("an agent starts");
        let memory = Arc::new(SealedMemory::new("reader", LEN).expect("memory"));
        agent.register(memory.clone());
        let reader = Self { agent, events, memory };
        reader.wipe();
        reader
    }

    /// Learns of a life of the owner, and connects it.
    pub(crate) fn meet(&self, owner: &Owner, life: u64) {
        let address = PeerAddress { process: owner.process, tcp: owner.address.clone(), ..PeerAddress::default() };
        let (incarnation, name) = (Incarnation(life), "the owner".to_owned());
        self.agent.introduce(PeerInfo { id: OWNER, incarnation, name, role: Role::Prefill, address });
        self.agent.connect(OWNER);
    }

    pub(crate) fn post(&self, len: usize, gate: u64, copies: &[(usize, usize)]) -> TransferId {
        let copies = copies.iter().map(|&(from, to)| Copy { from: from as u64, to: to as u64 });
        let copies = Copies::List(copies.collect());
        self.post_all(vec![ReadBatch { source: REGION, destination: REGION, len, gate, copies }])
    }

    pub(crate) fn post_all(&self, batches: Vec<ReadBatch>) -> TransferId {
        self.agent.post(&self.agent.prepare(OWNER, batches).expect("it is connected")).expect("there is room")
    }

    pub(crate) fn event(&self) -> AgentEvent {
        let event = self.events.recv_timeout(PATIENCE);
        event.unwrap_or_else(|_| panic!("nothing happens for {PATIENCE:?}: {:?}", self.agent.counts()))
    }

    /// The rails of its links.
    pub(crate) fn rails(&self) -> RailCounts {
        let rails = self.agent.counts().rails;
        rails.iter().find(|(lane, _)| *lane == Lane::Rdma).map_or(RailCounts::default(), |(_, rails)| *rails)
    }

    /// The next end of a transfer.
    pub(crate) fn ended(&self) -> Completion {
        match self.event() {
            AgentEvent::Ended(end) => end,
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Nothing happens for a moment.
    pub(crate) fn hears_nothing(&self) {
        if let Ok(event) = self.events.recv_timeout(MOMENT) {
            panic!("unexpected {event:?}");
        }
    }

    /// Its memory; no transfer is open.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is as long, and nobody writes it.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), LEN) }
    }

    /// Whatever was read is gone.
    pub(crate) fn wipe(&self) {
        self.wipe_range(0, LEN);
    }

    pub(crate) fn wipe_range(&self, at: usize, len: usize) {
        assert!(at + len <= LEN);
        // SAFETY: inside the memory, of which no open transfer has that part.
        unsafe { self.memory.as_ptr().add(at).write_bytes(UNTOUCHED, len) };
    }

    /// Reads, and checks that what was asked for arrived and nothing else changed.
    pub(crate) fn check(&self, len: usize, copies: &[(usize, usize)]) {
        self.wipe();
        let id = self.post(len, 0, copies);
        let end = self.ended();
        assert_eq!(end.id, id);
        let report = end.result.unwrap_or_else(|error| panic!("{len} bytes, {} times: {error}", copies.len()));
        assert_eq!((report.lane, report.bytes), (Lane::Rdma, (len * copies.len()) as u64));
        let mut expected = vec![UNTOUCHED; LEN];
        for &(from, to) in copies {
            expected[to..to + len].iter_mut().zip(from..).for_each(|(place, at)| *place = byte(at));
        }
        let wrong = self.bytes().iter().zip(&expected).position(|(is, should)| is != should);
        assert_eq!(wrong, None, "the first wrong byte, of {len} bytes, {} times", copies.len());
    }
}
