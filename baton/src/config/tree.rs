//! The tree: every setting with its type, its default and what it is. The one place that declares them.

use super::hidden::Hidden;
use super::quantity::{Bytes, Gigabytes};
use domain::{Dtype, Encoding};
use kv_manager::tiers::WritePolicy;
use kv_manager::{EvictionPolicy, Watermarks};
use serde::{Deserialize, Serialize};
use transport::{Lane, RdmaService};

/// Declares sections: a struct with defaults each, and the texts of their fields for help.
macro_rules! tree {
    ($($(#[doc = $about:literal])+ $section:ident: $name:ident {
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:expr,)+
    })+) => {
        /// All settings.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Config {
            $($(#[doc = $about])+ pub(crate) $section: $name,)+
        }

        $($(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[doc = $doc])+ pub(crate) $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        })+

        /// Every key in the order of declaration, and what it is.
        pub(crate) const KEYS: &[(&str, &str)] = &[
            $($((concat!(stringify!($section), ".", stringify!($field)), concat!($($doc),+)),)+)+
        ];
    };
}

tree! {
    /// The model.
    model: Model {
        /// Hugging Face directory, or a GGUF file. Empty: the bundled model.
        path: String = String::new(),
        /// Name that clients give. Empty: the name of the directory or file.
        name: String = String::new(),
        /// Number format of the KV cache: `auto` (that of the weights), `f32`, `f16` or `bf16`. Not of `sim`, which has tags.
        kv_dtype: KvDtype = KvDtype::Auto,
    }
    /// Workers of this process.
    serve: Serve {
        /// Prefill workers. 0: decode workers compute prompts themselves.
        prefill: usize = 1,
        /// Decode workers; at least 1.
        decode: usize = 1,
    }
    /// The HTTP server and what it admits.
    router: Router {
        /// Address of the HTTP server. Port 0 takes a free one.
        listen: String = "127.0.0.1:8000".to_owned(),
        /// Address where `/live`, `/ready` and `/metrics` are served to operators, on a listener that clients of the API cannot
        /// exhaust. `auto`: 127.0.0.1:8001, or a free port where that is taken. Empty: nowhere.
        ops_listen: String = "auto".to_owned(),
        /// Whether `/metrics` and `/lanes` are served beside the API, too: `true` or `false`. `/live` and `/ready` always are.
        metrics_on_api: bool = true,
        /// Most bytes of a request's body; above it 413.
        body_bytes_max: Bytes = Bytes(16 << 20),
        /// Time for a client to send its body; after it 408.
        body_wait_s: u64 = 30,
        /// Fewest bytes of a body that come in a second, on average after the first 5 seconds; below it 408.
        body_min_bytes_per_s: Bytes = Bytes(1 << 10),
        /// Most bytes of all bodies that are read or parsed, together; above it the largest that is not complete gets 429.
        bodies_bytes_max: Bytes = Bytes(256 << 20),
        /// Most tokens of a prompt. 0: what the model's context allows.
        prompt_tokens_max: u32 = 0,
        /// Most prompts of one completion request.
        prompts_max: usize = 64,
        /// Most sequences of a prompt (`n`).
        choices_max: u16 = 16,
        /// Prompts that are open at once; above it 429.
        requests_max: usize = 1024,
        /// Connections that are open at once, more than `router.requests_max`; above it the one that has been without an open
        /// request for the longest time is closed.
        connections_max: usize = 4096,
        /// Time from a request's arrival to the end that its client must have.
        deadline_s: u64 = 600,
        /// Tokens of each sequence that wait for the client of a stream; a client that falls further behind is ended.
        stream_buffer: usize = 1024,
        /// Time after which a stream that has nothing to say gets a comment, so that nobody on the way takes it for dead. 0: it
        /// gets none.
        keepalive_s: u64 = 15,
        /// Time for which a connection may take no byte; after it the connection is closed.
        write_wait_s: u64 = 30,
        /// Time that open requests have to end after Ctrl-C; after it they are ended.
        drain_s: u64 = 30,
    }
    /// A worker that is a process of its own.
    worker: Worker {
        /// Address for sessions with routers. Port 0 takes a free one.
        listen: String = "127.0.0.1:9001".to_owned(),
        /// Name in logs and metrics, unique in the cluster. Empty: its role, the host's name and the port.
        name: String = String::new(),
        /// Number in the cluster, unique. 0: the first four bytes, little endian, of the BLAKE3 hash of its name.
        id: u32 = 0,
        /// Address where `/live`, `/ready` and `/metrics` of this worker are served over HTTP. `auto`: that of the sessions with the
        /// next port, or a free port where that is taken. Empty: nowhere.
        ops_listen: String = "auto".to_owned(),
        /// Time that what runs has to end or to move to another worker after SIGTERM; after it the worker ends.
        drain_s: u64 = 60,
    }
    /// The processes that belong together.
    cluster: Cluster {
        /// Session addresses of the workers, with commas between them; for routers.
        workers: String = String::new(),
        /// Secret that all of them share and by which they know each other, of 16 bytes or more. Not given by a flag, which others of the
        /// machine can read. Empty, and no file either: processes of one user on one host share one that they make themselves.
        secret: Hidden = Hidden::default(),
        /// File with the secret, instead. A line break at its end does not count.
        secret_file: String = String::new(),
        /// A second secret that is accepted from others, while `cluster.secret` is being replaced. Empty: none.
        accept_secret: Hidden = Hidden::default(),
        /// File with the second secret, instead.
        accept_secret_file: String = String::new(),
        /// Whether processes may do without a secret: whoever reaches a worker may use it then, read its KV and pretend to be a worker.
        insecure: bool = false,
        /// Folder of this user alone, where processes of this host share a secret that they make themselves. Said by nobody else: that
        /// of `XDG_RUNTIME_DIR`. Empty: a folder `baton-UID` in that for temporary files.
        runtime_folder: String = String::new(),
    }
    /// What computes.
    engine: Engine {
        /// `cpu`, `sim` or `cuda`.
        device: Device = Device::Cpu,
        /// Threads of each worker's engine. 0: as many as cores.
        threads: usize = 0,
        /// Whether each thread stays on processors of its own: `auto` (where a worker is alone in its process, which was given
        /// some of the host's processors, as by `taskset` or a container), `on` or `off`.
        pinning: Pinning = Pinning::Auto,
        /// Tokens of a KV block. 0: what suits the model's shape.
        block_tokens: u32 = 0,
        /// Most prompt tokens of one sequence in a step; a multiple of the block.
        chunk_tokens: u32 = 512,
        /// Most tokens of a step, over all sequences.
        step_tokens_max: u32 = 1024,
        /// Most sequences that run at once on a worker.
        running_max: u32 = 64,
        /// Most requests that wait on a worker for memory, a place or a step; above it the router tries another.
        waiting_max: u32 = 1024,
    }
    /// What the device `sim` simulates: the times of a model on a card, and texts that mean nothing.
    sim: Sim {
        /// Model and card: `h100-8b`, `h100-70b`, `h200-8b` or `h200-70b`.
        preset: String = "h100-8b".to_owned(),
        /// Its speed, in percent of the card's. 0: without waiting.
        speed_percent: u32 = 100,
    }
    /// The KV cache.
    kv: Kv {
        /// Memory of each worker's KV pools.
        device_bytes: Bytes = Bytes(1 << 30),
        /// Share of the pools that prompts leave to running sequences, in percent.
        reserve_percent: u32 = 5,
        /// Which cached blocks go first: `lru`, `s3-fifo` (what was used once goes early) or `tree` (ends before beginnings).
        eviction: Eviction = Eviction::S3Fifo,
        /// Above this share of a pool, in percent, blocks go to the tiers that are written `back`, those first that would be given
        /// up first.
        high_percent: u32 = Watermarks::default().high_percent,
        /// Until no more than this share, in percent, is neither free nor on its way down.
        low_percent: u32 = Watermarks::default().low_percent,
        /// Share of the pools that pinned prefixes may take, in percent. The longest context is so much shorter. 0: nothing is pinned.
        pinned_percent: u32 = 0,
        /// Share of the pools that is a tenant's quota, in percent: one whose blocks take as much gives up its own before those of
        /// others, and one that has more does so first. What nobody else wants it may use. 100: there are no quotas.
        tenant_percent: u32 = 100,
        /// A block that nobody used for so long leaves the device for the disk tier, or the host tier where there is none. 0: never.
        park_idle_ms: u64 = 0,
        /// How blocks are kept in the tiers below the device: `exact`, or in a byte for each number and a scale for a few tokens of a head,
        /// which loses a little: `int8` or `fp8`; see docs/smaller-kv.md. With `transport.encode_kv` KV travels so, too. The same for all workers of a cluster.
        encoding: Encoding = Encoding::Exact,
    }
    /// The host tier: KV that left the device, in memory.
    host: Host {
        /// Memory of each worker's tier, taken in the first seconds. 0: no host tier.
        bytes: Bytes = Bytes(0),
        /// Folder in a tmpfs, such as `/dev/shm/baton`, where workers of one user on this host read each other's tiers; all of
        /// their memory is taken at start. Empty: each worker's tier is its own.
        folder: String = String::new(),
        /// Memory of dead workers' tiers that each worker keeps for reading, in percent of `host.bytes`. 0: none is kept.
        adopted_percent: u32 = 100,
        /// Share of each worker's tier that is a tenant's quota, in percent, as `kv.tenant_percent` says.
        tenant_percent: u32 = 100,
        /// When a block is written: `second-use` (when it is used again), `through` (when it is full) or `back` (when the device is
        /// fuller than `kv.high_percent`).
        write: Writes = Writes::Through,
    }
    /// The disk tier: KV that left the device, or outlived its worker.
    disk: Disk {
        /// Folders, of as many devices, with commas between them; each worker makes one of its own in them. Empty: no disk tier.
        folders: String = String::new(),
        /// Room of each worker's tier, in all folders together; taken at start.
        bytes: Bytes = Bytes(8 << 30),
        /// When a block is written: `second-use` (when it is used again), `through` (when it is full) or `back` (when the device is
        /// fuller than `kv.high_percent`).
        write: Writes = Writes::SecondUse,
        /// Share of each worker's tier that is a tenant's quota, in percent, as `kv.tenant_percent` says.
        tenant_percent: u32 = 100,
        /// Reads and writes under way at once.
        depth: u32 = 16,
    }
    /// The object tier: KV that workers share, in a store that speaks the S3 API.
    object: Object {
        /// Where the store is: `https://HOST[:PORT]`, or `http://` where the network is trusted. Empty: no object tier.
        endpoint: String = String::new(),
        /// Its bucket, which is there.
        bucket: String = String::new(),
        /// Its region. Said by nobody else: that of `AWS_REGION`.
        region: String = "us-east-1".to_owned(),
        /// What the keys of all objects begin with. Empty: nothing.
        prefix: String = "baton".to_owned(),
        /// Access key. Said by nobody else: that of `AWS_ACCESS_KEY_ID`.
        key_id: String = String::new(),
        /// Its secret. Not given by a flag. Said by nobody else: that of `AWS_SECRET_ACCESS_KEY`.
        secret: Hidden = Hidden::default(),
        /// Token of a session, where the key is of one. Said by nobody else: that of `AWS_SESSION_TOKEN`.
        token: Hidden = Hidden::default(),
        /// When a block is written: `second-use` (when it is used again), `through` (when it is full) or `back` (when the device is
        /// fuller than `kv.high_percent`).
        write: Writes = Writes::SecondUse,
        /// Requests of each worker under way at once.
        requests: usize = 16,
        /// Objects of each KV group that a worker remembers to be there.
        known_max: u32 = 262_144,
        /// Share of those that is a tenant's quota, in percent, as `kv.tenant_percent` says. What the store holds it does not bound.
        tenant_percent: u32 = 100,
        /// How often a worker lists the store, to learn what others wrote.
        list_s: u64 = 300,
    }
    /// How the router chooses workers.
    placement: Placement {
        /// Whether prompts go through prefill workers: `auto` (where that is predicted to be faster), `always` or `never`.
        handoff: Wanted = Wanted::Auto,
        /// Whether a worker that computes a prompt fetches what another one has cached of it: `auto` (where that is predicted to be
        /// faster), `always` (wherever another one has more) or `never`.
        fetch: Wanted = Wanted::Auto,
        /// Attempts at a request, the first included.
        attempts_max: u32 = 3,
        /// Entries of the index of who holds which prefix.
        index_blocks_max: usize = 1_000_000,
    }
    /// How KV moves.
    transport: Transport {
        /// Slowest lane that KV may take: a peer that only slower ones reach is not connected, and a worker that cannot have `rdma` where that is required does not start. Empty: any.
        require: RequiredLane = RequiredLane(None),
        /// Lanes that KV may take, with commas between them. Empty: all.
        lanes: Lanes = Lanes(Vec::new()),
        /// Address where workers of other processes read this one's KV over `tcp`. Port 0 takes a free one. Empty: none.
        /// Several, with commas between them, one for each network, are read over side by side.
        listen: String = "127.0.0.1:0".to_owned(),
        /// Host that others are told instead of the one listened on, as many as there are of those. Empty: those.
        advertise: String = String::new(),
        /// File with this process' certificate, in PEM: other processes are reached over TLS alone then. Needs the next two. Empty: none.
        tls_certificate: String = String::new(),
        /// File with the certificate's private key, in PEM.
        tls_key: String = String::new(),
        /// File with the certificates of the authorities of which one must have issued a peer's, in PEM.
        tls_authorities: String = String::new(),
        /// Over which lane KV that this worker reads comes as `kv.encoding` says, for networks on which bytes are scarce: `off` (none) or
        /// `tcp`; see docs/smaller-kv.md. Other lanes bring it as it is.
        encode_kv: EncodeKv = EncodeKv::Off,
        /// Gigabytes a second that reads from each peer are expected to bring, such as 12.5; under a quarter of it the log warns, and
        /// `baton_lane_short_total` counts. 0: what the ports of `rdma` promise, and nothing of other lanes.
        expect_gbytes_per_s: Gigabytes = Gigabytes(0.0),
        /// RDMA devices to spread reads over, or single ports of them (`mlx5_0:1`), with commas between them. Empty: all active ports, at
        /// most eight, the nearest to the worker's memory first.
        rdma_devices: String = String::new(),
        /// Which entry of the table of GIDs an RDMA port speaks by. Negative: the one that suits best.
        rdma_gid: i16 = -1,
        /// Queue pairs to each peer on each RDMA port, 1 to 8.
        rdma_queues: u8 = transport::RdmaConfig::default().queues,
        /// Traffic class of RoCE packets, by which switches and cards choose a priority: the DSCP times four. `baton doctor` looks at the
        /// priority that it has.
        rdma_traffic_class: u8 = RdmaService::default().traffic_class,
        /// Service level of InfiniBand packets, 0 to 15.
        rdma_service_level: u8 = RdmaService::default().service_level,
        /// Flow label of RoCE packets, from which cards make the source port by which switches choose a way, up to 1,048,575. 0: the card's
        /// own choice.
        rdma_flow_label: u32 = RdmaService::default().flow_label,
        /// Which entry of the table of partition keys an RDMA port speaks by.
        rdma_pkey: u16 = RdmaService::default().pkey_index,
        /// How long an RDMA device waits for an answer before it asks again: 4.096 microseconds, doubled so often, 1 to 20. 17 is half a second.
        rdma_timeout: u8 = RdmaService::default().timeout,
        /// How often an RDMA device asks again before a read fails, 0 to 7.
        rdma_retries: u8 = RdmaService::default().retries,
        /// While reads over RDMA are under way: microseconds to look for their ends before sleeping until one is told.
        rdma_poll_us: u64 = 0,
    }
    /// The rules of a handoff.
    handoff: Handoff {
        /// How long a lease lives without renewal.
        lease_ms: u64 = 2000,
        /// How long a reader waits for a word of the offer, and then for room. How long the queue is of who computes the prompt does not count.
        wait_ms: u64 = 30_000,
        /// How long a reader waits for the answer to its release, or to its asking for a prefix.
        answer_ms: u64 = 2000,
        /// How often a release that is not answered is repeated.
        release_retry_ms: u64 = 100,
        /// The longest an offer lives, renewed or not.
        offer_max_ms: u64 = 120_000,
    }
    /// Sessions between routers and workers.
    session: Session {
        /// A worker that was not spoken to, or did not speak, for so long is asked for a sign of life. Routers ask.
        heartbeat_ms: u64 = 1500,
        /// An end that was not heard of for so long is lost: a router replays elsewhere, a worker gives up the router's work.
        silence_ms: u64 = 5000,
    }
    /// The log, on standard error.
    log: Log {
        /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,router=debug`.
        level: String = "info".to_owned(),
        /// `text` or `json`.
        format: LogForm = LogForm::Text,
        /// File that the timeline is written to; see docs/observing.md. Empty: there is none.
        timeline: String = String::new(),
    }
}

/// Keys whose values are neither shown nor taken from flags.
pub(super) const HIDDEN: [&str; 4] = ["cluster.secret", "cluster.accept_secret", "object.secret", "object.token"];

/// Number format of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KvDtype {
    /// That of the weights.
    Auto,
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl KvDtype {
    /// The format, for a model with weights of this one.
    pub(crate) fn resolve(self, weights: Dtype) -> Dtype {
        match self {
            Self::Auto => weights,
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::Bf16,
        }
    }
}

/// Over which lane KV comes encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EncodeKv {
    /// None.
    Off,
    /// The only one that can.
    Tcp,
}

/// Which cached blocks go first when room is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Eviction {
    /// The least recently used.
    Lru,
    /// Those that were used once, before those that were used again.
    S3Fifo,
    /// The least recently used of those that no other one continues.
    Tree,
}

impl From<Eviction> for EvictionPolicy {
    fn from(eviction: Eviction) -> Self {
        match eviction {
            Eviction::Lru => Self::Lru,
            Eviction::S3Fifo => Self::S3Fifo,
            Eviction::Tree => Self::Tree,
        }
    }
}

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Device {
    /// The cores of this machine.
    Cpu,
    /// A cost model instead of a model.
    Sim,
    /// NVIDIA GPUs.
    Cuda,
}

impl Device {
    /// The name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Sim => "sim",
            Self::Cuda => "cuda",
        }
    }
}

/// Whether threads stay on processors of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pinning {
    /// Where these are a worker's alone.
    Auto,
    /// Yes.
    On,
    /// No.
    Off,
}

/// When a block is written to a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Writes {
    /// When it is used again.
    SecondUse,
    /// When it is full.
    Through,
    /// When the device is too full for it.
    Back,
}

impl From<Writes> for WritePolicy {
    fn from(writes: Writes) -> Self {
        match writes {
            Writes::SecondUse => Self::SecondUse,
            Writes::Through => Self::Through,
            Writes::Back => Self::Back,
        }
    }
}

/// Whether placement shall do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wanted {
    /// Where that is predicted to be faster.
    Auto,
    /// Wherever it can be done.
    Always,
    /// Never.
    Never,
}

/// The slowest lane that KV may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct RequiredLane(pub(crate) Option<Lane>);

impl TryFrom<String> for RequiredLane {
    type Error = transport::LaneParseError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.is_empty() { Ok(Self(None)) } else { text.parse().map(|lane| Self(Some(lane))) }
    }
}

impl From<RequiredLane> for String {
    fn from(required: RequiredLane) -> String {
        required.0.map_or(String::new(), |lane| lane.name().to_owned())
    }
}

/// The lanes that KV may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Lanes(pub(crate) Vec<Lane>);

impl TryFrom<String> for Lanes {
    type Error = transport::LaneParseError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl From<Lanes> for String {
    fn from(lanes: Lanes) -> String {
        lanes.0.iter().map(|lane| lane.name()).collect::<Vec<_>>().join(",")
    }
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogForm {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl From<LogForm> for telemetry::logging::LogFormat {
    fn from(form: LogForm) -> Self {
        match form {
            LogForm::Text => Self::Text,
            LogForm::Json => Self::Json,
        }
    }
}
