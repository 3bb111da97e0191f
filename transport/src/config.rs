//! Settings of an agent.

use crate::failure::Failure;
use crate::lane::Lane;
use crate::tls::Tls;
use domain::{Incarnation, Secrets, WorkerId};
use std::time::Duration;

/// How often faster lanes are looked for: seldom enough to cost nothing, and soon beside how long a device or a cable is down.
const SURVEY_EVERY: Duration = Duration::from_secs(60);

/// Settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Whose agent it is.
    pub id: WorkerId,
    /// Which life of that worker.
    pub incarnation: Incarnation,
    /// Name for people.
    pub name: String,
    /// Transfers posted and not ended; one more is refused.
    pub posted_max: usize,
    /// A peer that this lane (or a faster one) does not reach is not connected.
    pub require: Option<Lane>,
    /// Lanes that may be taken.
    pub lanes: Vec<Lane>,
    /// What proves that a peer belongs to the cluster.
    pub secrets: Secrets,
    /// Whether it may listen to other hosts, or to other users of this one, with neither a secret nor TLS: then whoever reaches it
    /// may read its regions.
    pub insecure: bool,
    /// Where peers of other processes reach it; `None`: only the process' own agents do.
    pub listen: Option<ListenConfig>,
    /// What encrypts the connections between hosts, of every kind; peers that have none are refused. Then only lanes that stay
    /// on the host, and `tcp`, are taken. `None`: they are not encrypted, and peers that want it are refused.
    pub tls: Option<Tls>,
    /// Settings of the lane `tcp`.
    pub tcp: TcpConfig,
    /// Settings of the lane `rdma`.
    pub rdma: RdmaConfig,
    /// How often faster lanes to a peer are looked for, than the one that is taken, where one may come or come back.
    pub survey_every: Duration,
    /// Of the layout that its regions have: the same number where the same offsets mean the same. Peers of another are
    /// refused.
    pub fingerprint: u64,
    /// Where its threads report what they cannot handle. Once anything is reported there, by whomever, the agent ends all that is open and
    /// refuses what comes.
    pub failure: Failure,
}

impl AgentConfig {
    /// An agent that only those of the same process reach, by any lane, with up to `posted_max` open transfers. Shown at
    /// [`Agent::start`](crate::Agent::start).
    pub fn in_process(id: WorkerId, incarnation: Incarnation, name: String, posted_max: usize) -> Self {
        Self {
            id,
            incarnation,
            name,
            posted_max,
            require: None,
            lanes: Lane::all().map(|(lane, _)| lane).collect(),
            secrets: Secrets::default(),
            insecure: false,
            listen: None,
            tls: None,
            tcp: TcpConfig::default(),
            rdma: RdmaConfig::default(),
            survey_every: SURVEY_EVERY,
            fingerprint: 0,
            failure: Failure::new(),
        }
    }
}

/// Where peers of other processes reach an agent. Those of the same host use a Unix socket, which needs no setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenConfig {
    /// `host:port` to listen on; port 0: any. Several, with commas between them, are the rails by which peers read, one for each
    /// network. Empty: no TCP.
    pub bind: String,
    /// Host that peers are told, as many as are listened on. Empty: those listened on.
    pub advertise: String,
}

/// Settings of the lane `tcp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Connections to each address of a peer that bytes are read over: the rails of a link.
    pub connections: u16,
    /// Whether bytes that are read carry a checksum. The reader decides.
    pub checksums: bool,
    /// Whether KV is read encoded, as its parts say ([`crate::Memory::part`]), where whole parts are read. The reader decides.
    pub encoded: bool,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self { connections: 1, checksums: true, encoded: false }
    }
}

/// Settings of the lane `rdma`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaConfig {
    /// Names of the devices that are used, the reads of each transfer spread over them. Empty: the first one that works.
    pub devices: Vec<String>,
    /// Which entry of a port's table of GIDs it speaks by; `None`: the one that suits best.
    pub gid_index: Option<u8>,
    /// Queue pairs to each peer on each device: 1 to 8.
    pub queues: u8,
    /// While reads are under way: how long completions are looked for before the thread sleeps until one is told.
    pub poll: Duration,
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self { devices: Vec::new(), gid_index: None, queues: 2, poll: Duration::ZERO }
    }
}
