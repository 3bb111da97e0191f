//! Ends to test with: an agent, its memory and its word, and what it was told.

use crate::certificates;
use crate::nvlink::Odd;
use domain::session::{PeerInfo, Role};
use domain::{
    Dtype, Encoding, Incarnation, KvGroup, KvKind, KvLayout, KvPart, ModelLayout, ProgressWord, Secret, WorkerId,
};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;
use transport::{
    Agent, AgentConfig, AgentEvent, Completion, Copies, Copy, GuardedMemory, Hub, Lane, ListenConfig, Memory, Place,
    ReadBatch, RegionId, SealedMemory, TransferId,
};

/// How long a test waits for what must happen. An emulated machine with Soft-RoCE may stand still for half a
/// minute as a whole, every thread of it, when a device goes down amid reads.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);
/// Long enough to see what should not happen.
pub(crate) const MOMENT: Duration = Duration::from_millis(30);
/// How often a connection is tried that fails for want of an answer in time.
const CONNECTED_TRIES: u32 = 5;
pub(crate) const OWNER: WorkerId = WorkerId(0);
pub(crate) const READER: WorkerId = WorkerId(1);
pub(crate) const REGION: RegionId = RegionId(0);
/// Transfers that an end may have open.
pub(crate) const POSTED_MAX: usize = 4;
/// Events that an end's inbox holds.
pub(crate) const INBOX: usize = 64;

/// The names of RDMA devices.
pub(crate) fn devices() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// The lanes that work here with host memory: `rdma` where there is a device.
pub(crate) fn lanes() -> Vec<Lane> {
    let rdma = (!devices().is_empty()).then_some(Lane::Rdma);
    [Lane::Local, Lane::Shm, Lane::Tcp].into_iter().chain(rdma).collect()
}

/// A lane, plain or encrypted, over which KV comes as it is or encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) lane: Lane,
    pub(crate) tls: bool,
    pub(crate) encoded: bool,
    /// Whether both ends' memory is as a device's.
    pub(crate) guarded: bool,
}

/// Memory of an end.
pub(crate) enum EndMemory {
    Sealed(SealedMemory),
    Guarded(GuardedMemory),
    Odd(Arc<Odd>),
}

impl EndMemory {
    /// Returns the first byte, as its owner knows it.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        match self {
            EndMemory::Sealed(memory) => memory.as_ptr(),
            EndMemory::Guarded(memory) => memory.as_ptr(),
            EndMemory::Odd(memory) => memory.as_ptr(),
        }
    }

    fn memory(&self) -> &dyn Memory {
        match self {
            EndMemory::Sealed(memory) => memory,
            EndMemory::Guarded(memory) => memory,
            EndMemory::Odd(memory) => &**memory,
        }
    }
}

// SAFETY: it answers what the memory that it is does.
unsafe impl Memory for EndMemory {
    fn place(&self) -> Place<'_> {
        self.memory().place()
    }

    fn len(&self) -> usize {
        self.memory().len()
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.memory().file()
    }

    fn part(&self) -> Option<KvPart> {
        self.memory().part()
    }
}

impl From<Lane> for Over {
    fn from(lane: Lane) -> Self {
        Self { lane, tls: false, encoded: false, guarded: false }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |is: bool, name| if is { name } else { "" };
        let [tls, encoded] = [name(self.tls, "+tls"), name(self.encoded, "+encoded")];
        write!(f, "{}{tls}{encoded}{}", self.lane, name(self.guarded, "+guarded"))
    }
}

impl Over {
    /// Returns a lane between memory of devices.
    pub(crate) fn guarded(lane: Lane) -> Self {
        Self { guarded: true, ..lane.into() }
    }

    /// Has an end take this alone.
    pub(crate) fn only(self) -> impl Fn(&mut AgentConfig) + std::marker::Copy {
        move |config| {
            (config.lanes, config.tls) = (vec![self.lane], self.tls.then(certificates::good));
            config.tcp.encoded = self.encoded;
        }
    }
}

/// The lanes that work here with host memory, and those that can be encrypted, or bring encoded KV, also so. Then those
/// that reach memory of a device, out of such memory and into it.
pub(crate) fn ways() -> Vec<Over> {
    let tcp = |(tls, encoded, guarded)| Over { lane: Lane::Tcp, tls, encoded, guarded };
    let tcp =
        [(true, false, false), (false, true, false), (true, true, false), (false, false, true), (true, true, true)]
            .map(tcp);
    let devices = [Lane::Local, Lane::Nvlink].map(Over::guarded);
    lanes().into_iter().map(Over::from).chain(tcp).chain(devices).collect()
}

pub(crate) struct End {
    pub(crate) agent: Agent,
    pub(crate) events: Receiver<AgentEvent>,
    pub(crate) memory: Arc<EndMemory>,
    pub(crate) word: ProgressWord,
    pub(crate) info: PeerInfo,
    /// The thread that told of the last event.
    pub(crate) told_by: Arc<Mutex<Option<ThreadId>>>,
}

/// What the memory of ends is made of: 32 bytes, or 20 encoded.
pub(crate) fn part() -> KvPart {
    part_of(4, Dtype::Bf16, Encoding::Int8, 4)
}

pub(crate) fn part_of(block_tokens: u32, dtype: Dtype, encoding: Encoding, head_dim: u32) -> KvPart {
    let groups = vec![KvGroup { layers: vec![0], kind: KvKind::of_heads(1, head_dim), window: None }];
    KvLayout::whole(ModelLayout { block_tokens, dtype, encoding, groups }).part(0)
}

/// Makes bytes some that are as they were after they have travelled encoded, if whole parts of them do.
pub(crate) fn settle(bytes: &mut [u8]) {
    // Numbers of about one size.
    bytes.iter_mut().skip(1).step_by(2).for_each(|high| *high = 0x3F | *high & 0x80);
    let whole = bytes.len() / part().bytes() * part().bytes();
    through(part(), &mut bytes[..whole]);
}

/// What whole parts are after they have travelled encoded.
pub(crate) fn through(part: KvPart, bytes: &mut [u8]) {
    let mut stored = vec![0; part.stored_bytes_of(bytes.len())];
    part.encode(bytes, &mut stored);
    part.decode(&stored, bytes);
}

/// An end with zeroed memory. `change` has the last word on its settings: it listens on loopback and may take any lane.
pub(crate) fn end(hub: &Hub, id: WorkerId, life: u64, len: usize, change: impl FnOnce(&mut AgentConfig)) -> End {
    end_of_parts(part(), hub, id, life, len, change)
}

/// An end that takes `over` alone, and is otherwise as `change` says.
pub(crate) fn end_over(
    over: Over,
    hub: &Hub,
    id: WorkerId,
    life: u64,
    len: usize,
    change: impl FnOnce(&mut AgentConfig),
) -> End {
    let memory = if over.guarded {
        EndMemory::Guarded(GuardedMemory::new(len, Some(part())).expect("memory can be had"))
    } else {
        EndMemory::Sealed(SealedMemory::new("test", len).expect("memory can be had").of_parts(part()))
    };
    end_of_memory(memory, hub, id, life, |config| {
        over.only()(config);
        change(config);
    })
}

/// The same, of memory that is made of other parts.
pub(crate) fn end_of_parts(
    part: KvPart,
    hub: &Hub,
    id: WorkerId,
    life: u64,
    len: usize,
    change: impl FnOnce(&mut AgentConfig),
) -> End {
    let memory = SealedMemory::new("test", len).expect("memory can be had").of_parts(part);
    end_of_memory(EndMemory::Sealed(memory), hub, id, life, change)
}

/// The same, of this memory.
pub(crate) fn end_of_memory(
    memory: EndMemory,
    hub: &Hub,
    id: WorkerId,
    life: u64,
    change: impl FnOnce(&mut AgentConfig),
) -> End {
    let (sender, events) = sync_channel(INBOX);
    let mut config = AgentConfig::in_process(id, Incarnation(life), format!("worker {id}"), POSTED_MAX);
    config.listen = Some(ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() });
    config.secrets = Secret::new("of the tests").into();
    change(&mut config);
    let (name, incarnation) = (config.name.clone(), config.incarnation);
    let word = ProgressWord::new();
    let told_by = Arc::<Mutex<Option<ThreadId>>>::default();
    let teller = told_by.clone();
    let sink = Box::new(move |event| {
        *teller.lock().expect("nobody panicked") = Some(std::thread::current().id());
        sender.try_send(event).is_ok()
    });
    let agent = Agent::start(hub, config, word.clone(), sink).expect("an agent starts");
    let memory = Arc::new(memory);
    assert_eq!(agent.register(memory.clone()), REGION);
    let info = PeerInfo { id, incarnation, name, role: Role::Prefill, address: agent.address() };
    End { agent, events, memory, word, info, told_by }
}

/// The hubs of two ends that reach each other by `over`.
pub(crate) fn hubs(over: impl Into<Over>) -> (Hub, Hub) {
    let hub = Hub::new();
    (hub.clone(), if over.into().lane == Lane::Local { hub } else { Hub::new() })
}

pub(crate) struct Pair {
    pub(crate) owner: End,
    pub(crate) reader: End,
}

/// An owner whose memory is full of different bytes, and a reader that is connected to it by `over` alone.
pub(crate) fn pair(over: impl Into<Over>, len: usize) -> Pair {
    let over = over.into();
    let (owner, reader) = hubs(over);
    let end = |hub, id| end_over(over, hub, id, 1, len, |_| ());
    let pair = Pair { owner: end(&owner, OWNER), reader: end(&reader, READER) };
    pair.owner.fill();
    pair.introduce();
    pair.reader.connect(OWNER);
    pair
}

impl Pair {
    pub(crate) fn introduce(&self) {
        self.reader.agent.introduce(self.owner.info.clone());
        self.owner.agent.introduce(self.reader.info.clone());
    }

    /// Reads and waits for the end.
    pub(crate) fn read(&self, len: usize, gate: u64, copies: &[(u64, u64)]) -> Completion {
        let id = self.post(len, gate, copies);
        let end = self.reader.ended();
        assert_eq!(end.id, id);
        end
    }

    pub(crate) fn post(&self, len: usize, gate: u64, copies: &[(u64, u64)]) -> TransferId {
        self.reader.post(OWNER, vec![batch(len, gate, copies)])
    }
}

pub(crate) fn batch(len: usize, gate: u64, copies: &[(u64, u64)]) -> ReadBatch {
    let copies = Copies::List(copies.iter().map(|&(from, to)| Copy { from, to }).collect());
    ReadBatch { source: REGION, destination: REGION, len, gate, copies }
}

impl End {
    pub(crate) fn post(&self, owner: WorkerId, batches: Vec<ReadBatch>) -> TransferId {
        self.agent.post(&self.agent.prepare(owner, batches).expect("the reads are sound")).expect("there is room")
    }

    /// Connects and waits until it is. The lane.
    pub(crate) fn connect(&self, peer: WorkerId) -> Lane {
        for _ in 0..CONNECTED_TRIES {
            self.agent.connect(peer);
            match self.event() {
                AgentEvent::Connected { peer: connected, status } if connected == peer => return status.lane,
                // The machine may have stood still for longer than an answer may take.
                AgentEvent::Lost { peer: lost, reason } if lost == peer && reason.contains("timed out") => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        panic!("{peer} never answers in time")
    }

    pub(crate) fn event(&self) -> AgentEvent {
        self.events.recv_timeout(PATIENCE).expect("something happens")
    }

    pub(crate) fn ended(&self) -> Completion {
        match self.event() {
            AgentEvent::Ended(completion) => completion,
            other => panic!("unexpected {other:?}"),
        }
    }

    /// The end of a transfer, if there is one.
    pub(crate) fn ended_by_now(&self) -> Option<Completion> {
        match self.events.try_recv() {
            Ok(AgentEvent::Ended(completion)) => Some(completion),
            Ok(other) => panic!("unexpected {other:?}"),
            Err(_) => None,
        }
    }

    pub(crate) fn lost(&self, peer: WorkerId) -> String {
        match self.event() {
            AgentEvent::Lost { peer: lost, reason } if lost == peer => reason,
            other => panic!("unexpected {other:?}"),
        }
    }

    pub(crate) fn message(&self) -> (WorkerId, Vec<u8>) {
        match self.event() {
            AgentEvent::Message { from, bytes } => (from, bytes),
            other => panic!("unexpected {other:?}"),
        }
    }

    pub(crate) fn hears_nothing(&self) {
        self.hears_nothing_for(MOMENT);
    }

    pub(crate) fn hears_nothing_for(&self, time: Duration) {
        if let Ok(event) = self.events.recv_timeout(time) {
            panic!("unexpected {event:?}");
        }
    }

    /// Bytes of which no two neighbours of a distance below 64 Ki are alike for long; they come as they are,
    /// encoded or not.
    pub(crate) fn fill(&self) {
        let mut bytes: Vec<u8> =
            (0..self.memory.len() as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        settle(&mut bytes);
        self.write(&bytes);
    }

    /// Writes its memory.
    pub(crate) fn write(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.memory.len());
        // SAFETY: the memory is as long, and no transfer is open.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.as_ptr(), bytes.len()) };
    }

    /// Its memory is as at first.
    pub(crate) fn wipe(&self) {
        // SAFETY: the memory is as long, and no transfer is open.
        unsafe { self.memory.as_ptr().write_bytes(0, self.memory.len()) };
    }

    /// Its memory now; no transfer writes it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        // SAFETY: the memory is as long, and no transfer writes it.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.memory.len()) }.to_vec()
    }
}

/// Waits until `what`, which does not take long.
pub(crate) fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}
