//! The two ends: the owner, which says where it is and waits, and the reader, which measures.

use crate::error::BenchError;
use crate::pool::{Pool, pool};
use crate::settings::{Cell, IN_FLIGHT_MAX, OwnerAddress, Settings, Trust, Wire};
use crate::turns::{Turns, now};
use domain::session::{PeerAddress, PeerInfo, Role};
use domain::{Incarnation, ProgressWord, WorkerId};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use transport::{
    Agent, AgentConfig, AgentEvent, Copies, Copy, Hub, ListenConfig, Memory, PrepareError, Prepared, ReadBatch,
    RegionId, TcpConfig, TransferState,
};

pub(crate) const OWNER: WorkerId = WorkerId(0);
pub(crate) const READER: WorkerId = WorkerId(1);
pub(crate) const LIFE: Incarnation = Incarnation(1);
const REGION: RegionId = RegionId(0);
/// Nothing takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn config(id: WorkerId, listen: ListenConfig, trust: &Trust) -> AgentConfig {
    let config = AgentConfig::in_process(id, LIFE, id.to_string(), IN_FLIGHT_MAX);
    let (secrets, tls) = (trust.secrets.clone(), trust.tls.clone());
    // What is read is made up, so it may be open to whoever reaches it.
    AgentConfig { listen: Some(listen), secrets, insecure: true, tls, ..config }
}

/// An owner that is there until it is dropped.
pub struct Owner {
    agent: Agent,
}

/// Becomes the owner of a pool of so many bytes.
pub fn own(pool_bytes: usize, listen: ListenConfig, trust: &Trust) -> Result<Owner, BenchError> {
    own_beside(&Hub::new(), pool_bytes, listen, trust)
}

/// Makes an owner that agents of the same hub reach within this process.
pub(crate) fn own_beside(
    hub: &Hub,
    pool_bytes: usize,
    listen: ListenConfig,
    trust: &Trust,
) -> Result<Owner, BenchError> {
    let agent = Agent::start(hub, config(OWNER, listen, trust), ProgressWord::new(), Box::new(|_| true))?;
    agent.register(pool(pool_bytes)?);
    Ok(Owner { agent })
}

/// Returns the settings of an agent that listens nowhere, because all its peers are of this process.
pub(crate) fn nowhere() -> ListenConfig {
    ListenConfig { bind: String::new(), advertise: String::new() }
}

impl Owner {
    /// Returns where readers find it.
    pub fn place(&self) -> OwnerAddress {
        let PeerAddress { process, unix, tcp } = self.agent.address();
        OwnerAddress { process, unix, tcp }
    }
}

/// The end that reads.
pub(crate) struct Reader {
    agent: Agent,
    over: Wire,
    bytes: usize,
}

/// Reads that the reader posts in turn.
pub(crate) struct Reads<'a> {
    pub(crate) reader: &'a Reader,
    pub(crate) transfers: &'a [Prepared],
}

impl Reader {
    /// Connects the owner over this and nothing else, from `hub`. Errors: it cannot be reached so.
    pub(crate) fn connect(
        hub: &Hub,
        over: Wire,
        settings: &Settings,
        owner: &OwnerAddress,
        pool: Pool,
    ) -> Result<Self, BenchError> {
        let (sender, events) = sync_channel(1);
        let listen = ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() };
        let mut config = AgentConfig { lanes: vec![over.lane], ..config(READER, listen, &settings.trust) };
        let connections = settings.connections;
        config.tcp = TcpConfig { connections, checksums: over.checksums, encoded: over.int8 };
        let sink = move |event| {
            // Of the transfers each is waited for, and of the peer nobody hears any more once it is connected.
            if !matches!(event, AgentEvent::Ended(_)) {
                let _ = sender.try_send(event);
            }
            true
        };
        let agent = Agent::start(hub, config, ProgressWord::new(), Box::new(sink))?;
        let bytes = pool.len();
        agent.register(pool);
        let OwnerAddress { process, unix, tcp } = owner.clone();
        let address = PeerAddress { process, unix, tcp };
        let (name, role) = ("owner".to_owned(), Role::Prefill);
        agent.introduce(PeerInfo { id: OWNER, incarnation: LIFE, name, role, address });
        agent.connect(OWNER);
        let wrong = |why: String| BenchError::Owner(format!("is not reached over {over}: {why}"));
        match events.recv_timeout(PATIENCE) {
            Ok(AgentEvent::Connected { .. }) => Ok(Self { agent, over, bytes }),
            Ok(AgentEvent::Lost { reason, .. }) => Err(wrong(reason)),
            Ok(other) => Err(wrong(format!("{other:?}"))),
            Err(_) => Err(wrong(format!("no answer within {} seconds", PATIENCE.as_secs()))),
        }
    }

    /// Prepares the transfers of a pass over the pool, and returns how long that took. The blocks of a transfer are
    /// apart, as those of a KV cache are, so that none can be merged.
    pub(crate) fn prepare(&self, cell: Cell) -> Result<(Vec<Prepared>, Duration), BenchError> {
        let blocks = self.bytes / cell.bytes;
        let transfers = blocks.div_ceil(cell.batch);
        let begin = now();
        let transfer = |first: usize| {
            let copy = |block: usize| Copy { from: (block * cell.bytes) as u64, to: (block * cell.bytes) as u64 };
            let copies = Copies::List((first..blocks).step_by(transfers).map(copy).collect());
            let batch = ReadBatch { source: REGION, destination: REGION, len: cell.bytes, gate: 0, copies };
            self.agent.prepare(OWNER, vec![batch]).map_err(|error| match error {
                PrepareError::OutOfBounds { .. } => {
                    BenchError::Owner("has a smaller pool than this end's (--pool)".to_owned())
                }
                other => other.into(),
            })
        };
        let prepared = (0..transfers).map(transfer).collect::<Result<_, _>>()?;
        Ok((prepared, now().duration_since(begin)))
    }
}

impl Turns for Reads<'_> {
    fn post(&self, turn: usize) -> Result<(), BenchError> {
        self.reader.agent.post(&self.transfers[turn])?;
        Ok(())
    }

    fn wait(&self, turn: usize) -> Result<Duration, BenchError> {
        match self.transfers[turn].wait(PATIENCE) {
            TransferState::Ended(result) => Ok(result?.wire),
            TransferState::UnderWay | TransferState::Unposted => Err(BenchError::hangs(self.reader.over, PATIENCE)),
        }
    }
}
