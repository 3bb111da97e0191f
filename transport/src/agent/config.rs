//! Settings of an agent.

use crate::failure::Failure;
use crate::lanes::Lane;
use crate::net::tls::Tls;
use domain::{Incarnation, Secrets, WorkerId};
use std::time::Duration;

/// How often faster lanes are looked for: seldom enough to cost nothing, and soon beside how long a device or a
/// cable is down.
const SURVEY_EVERY: Duration = Duration::from_secs(60);

/// Settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The worker that the agent belongs to.
    pub id: WorkerId,
    /// The life of that worker.
    pub incarnation: Incarnation,
    /// The worker's name in logs and metrics.
    pub name: String,
    /// Transfers that are posted and have not ended. One more is refused.
    pub posted_max: usize,
    /// The slowest lane that is good enough. A peer that neither it nor a faster one reaches is not connected.
    pub require: Option<Lane>,
    /// Lanes that may be taken.
    pub lanes: Vec<Lane>,
    /// Secrets of the cluster: peers prove that they belong to it.
    pub secrets: Secrets,
    /// Whether the agent may listen on TCP with neither a secret nor TLS. Then any process that reaches it may read
    /// its regions.
    pub insecure: bool,
    /// Where peers of other processes reach the agent. `None`: only agents of the same process do.
    pub listen: Option<ListenConfig>,
    /// Encrypts every connection between hosts. Peers without TLS are refused, and `rdma` is not taken. `None`:
    /// connections are not encrypted, and peers that demand TLS refuse the agent.
    pub tls: Option<Tls>,
    /// Settings of the lane `tcp`.
    pub tcp: TcpConfig,
    /// Settings of the lane `rdma`.
    pub rdma: RdmaConfig,
    /// Bytes a second that every link to a peer is expected to deliver. A link that delivers far less is logged and
    /// counted. `None`: what the ports of `rdma` promise; other lanes promise nothing.
    pub expect_bytes_per_s: Option<f64>,
    /// How often the agent looks for a faster lane to a peer than the one that is taken, where one may appear.
    pub survey_every: Duration,
    /// Fingerprint of the layout of the regions: equal where the same offsets mean the same. Peers with another one
    /// are refused.
    pub fingerprint: u64,
    /// Where the agent's threads report what they cannot handle. After the first report, of any thread of the worker,
    /// the agent ends what is open and refuses what comes.
    pub failure: Failure,
}

impl AgentConfig {
    /// Returns the settings of an agent that only agents of the same process reach. Shown at
    /// [`Agent`](crate::Agent).
    pub fn in_process(id: WorkerId, incarnation: Incarnation, name: String, posted_max: usize) -> Self {
        Self {
            id,
            incarnation,
            name,
            posted_max,
            require: None,
            lanes: Lane::all().collect(),
            secrets: Secrets::default(),
            insecure: false,
            listen: None,
            tls: None,
            tcp: TcpConfig::default(),
            rdma: RdmaConfig::default(),
            expect_bytes_per_s: None,
            survey_every: SURVEY_EVERY,
            fingerprint: 0,
            failure: Failure::new(),
        }
    }
}

/// Where peers of other processes reach an agent. Those of the same host use a Unix socket, which needs no setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenConfig {
    /// `host:port` to listen on; port 0: any. Several, with commas between them, are the rails by which peers
    /// read, one for each network. Empty: no TCP.
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
    /// Whether KV is read encoded, as its parts say ([`crate::Memory::part`]), where whole parts are read. The
    /// reader decides.
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
    /// Names of the devices that are used, or of one port of a device (`mlx5_0:1`), the reads of each transfer
    /// spread over them. Empty: all that have an active port.
    pub devices: Vec<String>,
    /// Which entry of a port's table of GIDs it speaks by; `None`: the one that suits best.
    pub gid_index: Option<u8>,
    /// Queue pairs to each peer on each port: 1 to 8.
    pub queues: u8,
    /// While reads are under way: how long completions are looked for before the thread sleeps until one is told.
    pub poll: Duration,
    /// How packets are marked and waited for.
    pub service: RdmaService,
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self { devices: Vec::new(), gid_index: None, queues: 2, poll: Duration::ZERO, service: RdmaService::default() }
    }
}

/// How the network treats packets of the lane `rdma`, and how long a device waits for those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaService {
    /// Of RoCE: the byte of the IP header by which switches tell classes of traffic apart, the DSCP above two bits
    /// for ECN.
    pub traffic_class: u8,
    /// Of InfiniBand: the service level, 0 to 15.
    pub service_level: u8,
    /// Of RoCE: from what the source port is made by which switches choose among ways; 0: the device's own choice.
    /// 20 bits.
    pub flow_label: u32,
    /// Which entry of a port's table of partition keys it speaks by.
    pub pkey_index: u16,
    /// How long a device waits for an answer before it asks again: 4.096 microseconds, doubled so often; 1 to
    /// [`Self::TIMEOUT_MAX`].
    pub timeout: u8,
    /// How often it asks again, until the read ends with an error; 0 to 7.
    pub retries: u8,
}

impl RdmaService {
    /// The longest timeout, 4.3 seconds: beyond it a rail is put aside before its device has asked again.
    pub const TIMEOUT_MAX: u8 = 20;
    /// As many retries as a device counts.
    pub const RETRIES_MAX: u8 = 7;
    /// The greatest service level.
    pub const SERVICE_LEVEL_MAX: u8 = 15;
    /// The greatest flow label.
    pub const FLOW_LABEL_MAX: u32 = (1 << 20) - 1;
}

impl Default for RdmaService {
    /// Half a second, seven times: together about as long as a silent connection lives.
    fn default() -> Self {
        Self { traffic_class: 0, service_level: 0, flow_label: 0, pkey_index: 0, timeout: 17, retries: 7 }
    }
}
