//! Every setting with its type, its default and its meaning. No other place declares settings.
//!
//! `docs/reference/configuration.md` is generated from the comments here.

use super::hidden::Hidden;
use super::quantity::{Bytes, BytesOrAuto, Gigabytes};
use domain::{Dtype, Encoding};
use engine::cuda::KernelSet;
use engine::text::WrittenSpecials;
use kv_manager::tiers::WritePolicy;
use kv_manager::{EvictionPolicy, Watermarks};
use serde::{Deserialize, Serialize};
use transport::{Lane, RdmaService};

/// The path of a section in the file: its name, where it has no other one.
macro_rules! path {
    ($section:ident) => {
        stringify!($section)
    };
    ($section:ident, $path:literal) => {
        $path
    };
}

/// Declares the sections: for each a struct with defaults, and the texts of its fields for help. A section within
/// another one has a path, `section as "outer.inner"`.
macro_rules! tree {
    (@declare $($(#[doc = $about:literal])+ $section:ident $at:tt $([$path:literal])?: $name:ident {
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:expr,)+
    })+) => {
        /// All settings.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Config {
            $($(#[doc = $about])+ $(#[serde(rename = $path)])? pub(crate) $section: $name,)+
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

        /// Every section in the order of declaration, and what it is about.
        pub(crate) const SECTIONS: &[(&str, &str)] = &[$((path! $at, concat!($($about),+)),)+];

        /// Every key in the order of declaration, and what it is.
        pub(crate) const KEYS: &[(&str, &str)] = &[
            $($((concat!(path! $at, ".", stringify!($field)), concat!($($doc),+)),)+)+
        ];
    };
    ($($(#[doc = $about:literal])+ $section:ident $(as $path:literal)?: $name:ident { $($fields:tt)+ })+) => {
        tree! { @declare $($(#[doc = $about])+ $section ($section $(, $path)?) $([$path])?: $name { $($fields)+ })+ }
    };
}

tree! {
    /// The model.
    model: Model {
        /// The model: a Hugging Face folder, a GGUF file, or a model of a hub such as `org/name` or `org/name:Q4_K_M`,
        /// which is fetched once. Empty: the chat model that `scripts/fetch-model` fetches, if it has, else the bundled
        /// model.
        path: String = String::new(),
        /// Model name that clients use in requests. Empty: the name of the folder or file.
        name: String = String::new(),
        /// Number format of the KV cache: `auto` (the format of the weights), `f32`, `f16` or `bf16`. The device `sim`
        /// ignores it, because it stores tags instead of numbers. `bf16` or `f16` halves the memory that `f32` needs.
        kv_dtype: KvDtype = KvDtype::Auto,
    }
    /// Workers that `baton serve` runs in its own process.
    serve: Serve {
        /// Number of prefill workers. 0: decode workers compute prompts themselves.
        prefill: usize = 1,
        /// Number of decode workers, at least 1.
        decode: usize = 1,
    }
    /// The HTTP server and its limits.
    router: Router {
        /// Address of the HTTP API. Port 0 selects a free port. Set an address of the host to serve clients on other
        /// hosts.
        listen: String = "127.0.0.1:8000".to_owned(),
        /// Address of the operations listener, which serves `/live`, `/ready`, `/metrics`, `/lanes` and the admin
        /// service. API clients cannot exhaust it. `auto`: 127.0.0.1:8001, or a free port if 8001 is taken. Empty: no
        /// such listener.
        ops_listen: String = "auto".to_owned(),
        /// Whether the API listener also serves `/metrics` and `/lanes`: `true` or `false`. It always serves `/live`
        /// and `/ready`. Set it to `false` if API clients must not read metrics.
        metrics_on_api: bool = true,
        /// Whether the API listener serves a page to chat with the model at `/`: `true` or `false`.
        chat_page: bool = true,
        /// File of the API's keys, which `baton keys add` makes. Clients then send `Authorization: Bearer KEY`; without
        /// a known key they get status 401, above the key's limits status 429. The file is read again when it changes.
        /// Empty: everybody who reaches the API may use it.
        keys_file: String = String::new(),
        /// Further keys of the API, separated by commas. They have no limits, and are of the tenant of clients without
        /// keys. Set them in the environment or the file: other users of the host can read flags (`--api-key`).
        api_keys: Hidden = Hidden::default(),
        /// Origins of web pages that may use the API from a browser, separated by commas, such as
        /// `https://chat.example.org`. `*`: all. Empty: only the pages of the router itself.
        cors_origins: String = "*".to_owned(),
        /// What special tokens are that are written in the messages of a chat. `text`: the text that they are spelled
        /// with, so that no message can end its turn and begin another. `allow`: special tokens.
        special_tokens: SpecialTokens = SpecialTokens::Text,
        /// The form in which the model writes calls of tools: `hermes` (also Qwen), `qwen3_coder`, `llama3_json`,
        /// `pythonic` (Llama 3.2 and 4), `mistral`, `deepseek`, `harmony` (gpt-oss) or `json`. `auto`: the one that its
        /// chat template shows. `none`: requests with tools are refused.
        tool_parser: String = "auto".to_owned(),
        /// The form in which the model writes what it thinks before it answers: `think` (Qwen, DeepSeek), `mistral`,
        /// `harmony` (gpt-oss), or an opening and a closing marker, such as `<think> </think>`. `auto`: the one that
        /// its chat template shows. `none`: all that it writes is the answer.
        reasoning_parser: String = "auto".to_owned(),
        /// Largest request body, in bytes. A larger body gets status 413. Raise it for very long prompts.
        body_bytes_max: Bytes = Bytes(16 << 20),
        /// Time limit for receiving a request body, in seconds. After it the request gets status 408.
        body_wait_s: u64 = 30,
        /// Lowest average rate of a body upload, in bytes per second, enforced after the first 5 seconds. A slower
        /// upload gets status 408.
        body_min_bytes_per_s: Bytes = Bytes(1 << 10),
        /// Memory limit for all bodies that are being received or parsed, in bytes. Above it, the largest incomplete
        /// body gets status 429. It must be at least `router.body_bytes_max`.
        bodies_bytes_max: Bytes = Bytes(256 << 20),
        /// Longest prompt, in tokens. 0: only the model's context limits it.
        prompt_tokens_max: u32 = 0,
        /// Most prompts in one completion request.
        prompts_max: usize = 64,
        /// Most choices per prompt (`n`). It must not exceed `engine.running_max`.
        choices_max: u16 = 16,
        /// Most prompts that are open at the same time. Above it, a request gets status 429.
        requests_max: usize = 1024,
        /// Most open connections. Above it, the router closes the connection that has been without an open request for
        /// the longest time. It must exceed `router.requests_max`.
        connections_max: usize = 4096,
        /// Time limit of a request, in seconds from its arrival. A request that is still open then ends with an error.
        deadline_s: u64 = 600,
        /// Tokens per sequence that may wait for a client to read its stream. If the client falls further behind, the
        /// router ends its request.
        stream_buffer: usize = 1024,
        /// Seconds without output after which a stream that has begun gets a comment, so that proxies keep it
        /// open. 0: no comments. Set it below the idle timeout of your proxies.
        keepalive_s: u64 = 15,
        /// Seconds for which a connection may accept no bytes. After that the router closes it.
        write_wait_s: u64 = 30,
        /// Seconds that open requests have to finish after Ctrl-C or SIGTERM. After that the router ends them.
        drain_s: u64 = 30,
    }
    /// The responses of `/v1/responses` that the router keeps, so that clients can read them again and go on from them.
    router_responses as "router.responses": RouterResponses {
        /// Where responses are kept: a folder, or `s3://BUCKET/PREFIX` in the store of `object.endpoint`, by its region
        /// and its keys, where several routers share them. `auto`: the folder `.cache/baton/responses` in the home of
        /// the user; without a home, none. Empty: none; then `"store": true` gets status 400.
        store: String = "auto".to_owned(),
        /// Most bytes of all responses that are kept, at least `router.body_bytes_max`. Above it, the oldest are
        /// deleted. A response counts at least 4 KiB.
        bytes_max: Bytes = Bytes(1 << 30),
        /// Seconds for which a response is kept. After that it is deleted.
        age_max_s: u64 = 30 * 24 * 3600,
    }
    /// The admin service at the operations listeners, which `baton admin` asks.
    admin: Admin {
        /// Whether admin calls of other hosts are answered by a key of `admin.keys_file`: `true` or `false`. Without
        /// TLS the key crosses the network as it is. Calls of the same host are answered without a key, and so are
        /// those that show a certificate (`tls.client_ca`).
        beyond_loopback: bool = false,
        /// File of the keys of operators, which `baton keys add --admin` makes: `admin.beyond_loopback` needs it.
        /// Routers and workers read it, and again when it changes. It may be the file of `router.keys_file`.
        keys_file: String = String::new(),
        /// Names under which browsers may open the console (`router.ops_listen`), and which `Host` may name in admin
        /// calls in JSON, without ports, separated by commas. `localhost` and addresses always work. Other names are
        /// refused, because a foreign page could have them.
        hosts: String = String::new(),
        /// Number of finished requests that the router can still explain (`baton admin explain`), at most 65,536. Each
        /// takes a few KiB, or up to 40 KiB of a model with many layers. 0: only open requests.
        explained_max: usize = 256,
    }
    /// A worker that is a process of its own: `baton prefill-worker` or `baton decode-worker`.
    worker: Worker {
        /// Address for sessions with routers. Port 0 selects a free port. Set an address of the host if a router runs
        /// on another host.
        listen: String = "127.0.0.1:9001".to_owned(),
        /// Address that this worker registers for routers, `HOST` or `HOST:PORT`. Empty: that of `worker.listen`. It is
        /// required if `worker.listen` is a wildcard such as `0.0.0.0:9001` and `discovery.kind` is not `static`.
        advertise: String = String::new(),
        /// Name in logs and metrics, unique in the cluster, at most 255 bytes. Empty: the role, the host name and the
        /// port. A worker finds its disk tier again by this name.
        name: String = String::new(),
        /// Number of the worker, unique in the cluster. 0: the first four bytes, little endian, of the BLAKE3 hash of
        /// its name.
        id: u32 = 0,
        /// Address of this worker's operations listener, which serves `/live`, `/ready`, `/metrics`, `/lanes` and the
        /// admin service. `auto`: the host of `worker.listen` with the next port, or a free port if that one is taken.
        /// Empty: no such listener.
        ops_listen: String = "auto".to_owned(),
        /// Seconds that running sequences have to finish or to move to another worker after SIGTERM or Ctrl-C. After
        /// that the worker exits.
        drain_s: u64 = 60,
    }
    /// The processes that belong together, and the secret that they share.
    cluster: Cluster {
        /// Session addresses of the workers, separated by commas. Only routers use this setting, if `discovery.kind` is
        /// `static`.
        workers: String = String::new(),
        /// Secret that all processes of the cluster share, at least 16 bytes. It cannot be set by a flag, because other
        /// users of the host can read flags. If this and `cluster.secret_file` are empty, the processes of one user on
        /// one host create and share a secret.
        secret: Hidden = Hidden::default(),
        /// File that contains the secret, as an alternative to `cluster.secret`. A line break at its end is ignored.
        secret_file: String = String::new(),
        /// Second secret that is accepted from other processes while `cluster.secret` is being replaced. Empty: none.
        accept_secret: Hidden = Hidden::default(),
        /// File that contains the second secret, as an alternative to `cluster.accept_secret`.
        accept_secret_file: String = String::new(),
        /// Whether processes may run without a secret. If `true`, every process that reaches a worker can use it, read
        /// its KV and impersonate a worker. Set it only on a closed network.
        insecure: bool = false,
        /// Private folder of the user where the processes of one host share the secret that they create. If unset,
        /// `XDG_RUNTIME_DIR` applies. Empty: a folder `baton-UID` in the folder for temporary files.
        runtime_folder: String = String::new(),
    }
    /// TLS of the ports of a process (the API, operations, the sessions of a worker), and of the sessions that a router
    /// opens. The files are PEM. They are read again when they change, and open connections go on.
    tls: TlsSettings {
        /// File with the certificate of this process, followed by intermediate certificates. All these ports then speak
        /// TLS only, the API and operations as `https`. It needs `tls.key`. Empty: no TLS.
        cert: String = String::new(),
        /// File with the private key of the certificate.
        key: String = String::new(),
        /// File with the authorities of client certificates. A router must then show a certificate to a worker. Callers
        /// on other hosts must show one for `/metrics` and `/lanes`, and may use the admin service if they do. API
        /// requests and probes need none. It needs `tls.cert`. Empty: no certificates are requested.
        client_ca: String = String::new(),
        /// File with the authorities of the workers' certificates. A router then opens sessions over TLS only, and
        /// shows `tls.cert` if a worker requests it. Empty: sessions without TLS.
        ca: String = String::new(),
        /// Name that the certificates of workers must be for. Empty: the host that the router connects to, a name or an
        /// IP address.
        server_name: String = String::new(),
    }
    /// How routers find workers.
    discovery: Discovery {
        /// `static`: routers use the addresses in `cluster.workers`. `etcd`: workers register themselves in etcd, and
        /// routers follow it; see docs/operate/etcd.md. `kubernetes`: routers follow the pods of the workers; see
        /// docs/operate/kubernetes.md.
        kind: DiscoveryKind = DiscoveryKind::Static,
    }
    /// Where etcd is, if `discovery.kind` is `etcd`. Version 3.4 or later.
    discovery_etcd as "discovery.etcd": DiscoveryEtcd {
        /// URLs of etcd's members, separated by commas: `https://HOST:PORT`, or `http://HOST:PORT` on a trusted
        /// network.
        endpoints: String = String::new(),
        /// Beginning of all keys of this cluster. Clusters with different prefixes can share an etcd.
        prefix: String = "/baton".to_owned(),
        /// Seconds after which a worker that stopped without a word is no longer registered, 2 to 600. Sessions do not
        /// end by it.
        lease_s: u64 = 10,
        /// User of etcd. Empty: etcd must not require users.
        username: String = String::new(),
        /// Password of that user. It cannot be set by a flag, because other users of the host can read flags.
        password: Hidden = Hidden::default(),
        /// File that contains the password, as an alternative to `discovery.etcd.password`. A line break at its end is
        /// ignored.
        password_file: String = String::new(),
    }
    /// Files for `https` endpoints of etcd, in PEM. They are read at each connection.
    discovery_etcd_tls as "discovery.etcd.tls": DiscoveryEtcdTls {
        /// File with the authorities that may have issued etcd's certificate. Empty: those that the system trusts.
        ca: String = String::new(),
        /// File with the certificate of this process, if etcd requires one.
        cert: String = String::new(),
        /// File with the private key of that certificate.
        key: String = String::new(),
    }
    /// Where the API server is and which pods are workers, if `discovery.kind` is `kubernetes`. Only routers use these
    /// settings.
    discovery_kubernetes as "discovery.kubernetes": DiscoveryKubernetes {
        /// URL of the API server: `https://HOST:PORT`, or `http://HOST:PORT` for a proxy on this host, such as `kubectl
        /// proxy`. Empty: the one of the cluster in which this process runs as a pod.
        server: String = String::new(),
        /// Host of the cluster's API server, if `discovery.kubernetes.server` is empty. If unset,
        /// `KUBERNETES_SERVICE_HOST` applies, which every pod has.
        service_host: String = String::new(),
        /// Port of the cluster's API server, if `discovery.kubernetes.server` is empty. If unset,
        /// `KUBERNETES_SERVICE_PORT` applies.
        service_port: u16 = 443,
        /// File with the token of this process. It is read at each request. Empty: that of the pod's service account if
        /// `discovery.kubernetes.server` is empty, and otherwise none.
        token_file: String = String::new(),
        /// File with the authorities that may have issued the API server's certificate, in PEM. It is read at each
        /// connection. Empty: that of the pod's service account if `discovery.kubernetes.server` is empty, and
        /// otherwise those that the system trusts.
        ca: String = String::new(),
        /// Namespace of the workers. Empty: that of this pod; it is required if `discovery.kubernetes.server` is set.
        namespace: String = String::new(),
        /// Label selector of the workers' pods. Their containers name the port for sessions `sessions`.
        selector: String = "app.kubernetes.io/name=baton,llm-d.ai/role in (prefill,decode)".to_owned(),
        /// Whether labels of the nodes say where workers are: zone, rack and NVLink domain. It needs the right to get
        /// nodes. Without it, workers have the name of their node, and the zone if their pods have its label.
        node_labels: bool = false,
        /// Label of nodes with the name of their rack, if `discovery.kubernetes.node_labels` is `true`.
        rack_label: String = "topology.kubernetes.io/rack".to_owned(),
    }
    /// Where a worker is. Workers publish these labels with their registration.
    topology: Topology {
        /// Name of the host. Empty: the host name that the system has.
        host: String = String::new(),
        /// Name of the rack. Empty: unknown.
        rack: String = String::new(),
        /// Name of the zone. Empty: unknown.
        zone: String = String::new(),
        /// Name of the domain in which devices reach each other over NVLink. Empty: unknown.
        nvlink_domain: String = String::new(),
    }
    /// The engine: device, threads and batch sizes.
    engine: Engine {
        /// Compute device: `cpu`, `cuda` (a card of NVIDIA) or `sim` (a cost model; its texts mean nothing).
        device: Device = Device::Cpu,
        /// Number of the card, if `engine.device` is `cuda`: 0 is the first that the driver shows.
        card: u32 = 0,
        /// Kernels of the device `cuda`: `exact`, whose answers do not depend on what else the card computes, or
        /// `fast`, which may: products in bf16 of more than 16 rows are made by cublasLt. The same text on every path
        /// is promised for `exact` alone.
        kernels: Kernels = Kernels::Exact,
        /// Threads of each worker's engine. 0: one per core.
        threads: usize = 0,
        /// Whether each engine thread stays on processors of its own: `auto`, `on` or `off`. `auto` pins if the worker
        /// is alone in its process and the process may use only some of the host's processors. Set `off` if several
        /// workers share the same processors.
        pinning: Pinning = Pinning::Auto,
        /// Tokens in a KV block. 0: a size that suits the model's shape.
        block_tokens: u32 = 0,
        /// Most prompt tokens of one sequence in a step; a multiple of `engine.block_tokens`.
        chunk_tokens: u32 = 512,
        /// Most tokens in a step, over all sequences; at least `engine.running_max` plus `engine.chunk_tokens`.
        step_tokens_max: u32 = 1024,
        /// Most sequences that run at the same time on a worker.
        running_max: u32 = 64,
        /// Most requests that wait on a worker for memory, for a place in the batch or for a step. Above it, the router
        /// tries another worker.
        waiting_max: u32 = 1024,
        /// Steps that the device has at once, 1 or 2. With 2, the next step is planned while one runs, so that the
        /// device does not wait for the host in between. Texts are the same.
        steps_in_flight: u32 = 2,
        /// For tests: the memory of the KV pools is as a device's. Only the engine and its copier may touch it, and any
        /// other access ends the process. Workers of the host that have such memory, too, read it over `nvlink`, all
        /// others over `tcp`. Texts are the same.
        guarded_pools: bool = false,
    }
    /// The device `sim`: it takes as long as a model on a card would, and its texts mean nothing.
    sim: Sim {
        /// Simulated model and card: `h100-8b`, `h100-70b`, `h200-8b` or `h200-70b`.
        preset: String = "h100-8b".to_owned(),
        /// Speed in percent of the card's. 0: no waiting.
        speed_percent: u32 = 100,
    }
    /// The KV cache on the device.
    kv: Kv {
        /// Memory of each worker's KV pools, in bytes. Raise it to run more or longer sequences and to keep more cached
        /// prefixes. `auto`: on the device `cuda` what the card has free when the weights are loaded, less a reserve,
        /// in equal parts for all workers of the process; on `cpu` and `sim` 1GiB. Layers with an attention window get
        /// what `engine.running_max` sequences need, or an eighth of the tokens of the others.
        device_bytes: BytesOrAuto = BytesOrAuto::Auto,
        /// Percentage of the pools that prompts leave free for running sequences, at most 90. Raise it if
        /// `baton_preemptions_total` grows.
        reserve_percent: u32 = 5,
        /// Order in which cached blocks are evicted: `lru` (least recently used first), `s3-fifo` (blocks that were
        /// used only once first) or `tree` (ends of prefixes before their beginnings).
        eviction: Eviction = Eviction::S3Fifo,
        /// Fill level of a pool, in percent, above which blocks are written to the tiers whose `write` is `back`, the
        /// next to be evicted first.
        high_percent: u32 = Watermarks::default().high_percent,
        /// Write-back, once started by `kv.high_percent`, stops when at most this percentage of the pool is neither
        /// free nor being written.
        low_percent: u32 = Watermarks::default().low_percent,
        /// Percentage of the pools that pinned prefixes may use (`baton admin pin`). The longest context is shorter by
        /// the same share. 0: nothing is pinned.
        pinned_percent: u32 = 0,
        /// Quota of each tenant, in percent of the pools. A tenant at its quota evicts its own blocks before those of
        /// others; a tenant above it is evicted first. Spare room is free to all. 100: no quotas. A tenant is that of a
        /// key (`router.keys_file`); clients without keys are one tenant.
        tenant_percent: u32 = 100,
        /// Idle time, in milliseconds, after which a block moves from the device to the disk tier, or to the host tier
        /// if there is no disk tier. 0: never.
        park_idle_ms: u64 = 0,
        /// Format of blocks in the tiers below the device: `exact`, `int8` or `fp8`. `int8` and `fp8` need about half
        /// the room of bf16 and lose a little precision; see docs/operate/tuning.md. All workers of a cluster need the
        /// same value.
        encoding: Encoding = Encoding::Exact,
    }
    /// The host tier: KV that left the device, in host memory.
    host: Host {
        /// Memory of each worker's host tier, in bytes, allocated in the first seconds. 0: no host tier.
        bytes: Bytes = Bytes(0),
        /// Folder in a tmpfs, such as `/dev/shm/baton`, where workers of one user on this host read each other's host
        /// tiers. All of the memory is then allocated at start. Empty: each worker's tier is private.
        folder: String = String::new(),
        /// Memory of dead workers' host tiers that each worker keeps for reading, in percent of `host.bytes`. 0: none.
        adopted_percent: u32 = 100,
        /// Quota of each tenant, in percent of this tier; see `kv.tenant_percent`.
        tenant_percent: u32 = 100,
        /// When a block is written: `second-use` (when it is used again), `through` (when it is full) or `back` (when
        /// the device is fuller than `kv.high_percent`).
        write: Writes = Writes::Through,
    }
    /// The disk tier: KV that left the device, in files. It survives restarts.
    disk: Disk {
        /// Folders of the disk tier, one per device, separated by commas. They must exist. Each worker creates its own
        /// folder in each of them. Empty: no disk tier.
        folders: String = String::new(),
        /// Size of each worker's disk tier over all folders, in bytes, allocated at start.
        bytes: Bytes = Bytes(8 << 30),
        /// When a block is written: `second-use` (when it is used again), `through` (when it is full) or `back` (when
        /// the device is fuller than `kv.high_percent`). `second-use` writes least and so wears a disk least.
        write: Writes = Writes::SecondUse,
        /// Quota of each tenant, in percent of this tier; see `kv.tenant_percent`.
        tenant_percent: u32 = 100,
        /// Reads and writes in flight at the same time.
        depth: u32 = 16,
    }
    /// The object tier: KV that workers share through a store with the S3 API.
    object: Object {
        /// URL of the store: `https://HOST[:PORT]`, or `http://HOST[:PORT]` on a trusted network. Empty: no object
        /// tier.
        endpoint: String = String::new(),
        /// Bucket of the store. It must exist.
        bucket: String = String::new(),
        /// Region of the store. If unset, `AWS_REGION` applies.
        region: String = "us-east-1".to_owned(),
        /// Prefix of the keys of all objects. Empty: no prefix.
        prefix: String = "baton".to_owned(),
        /// Access key. If unset, `AWS_ACCESS_KEY_ID` applies.
        key_id: String = String::new(),
        /// Secret of the access key. It cannot be set by a flag. If unset, `AWS_SECRET_ACCESS_KEY` applies.
        secret: Hidden = Hidden::default(),
        /// Session token, if the access key is temporary. It cannot be set by a flag. If unset, `AWS_SESSION_TOKEN`
        /// applies.
        token: Hidden = Hidden::default(),
        /// When a block is written: `second-use` (when it is used again), `through` (when it is full) or `back` (when
        /// the device is fuller than `kv.high_percent`).
        write: Writes = Writes::SecondUse,
        /// Requests of each worker in flight at the same time, 1 to 1024.
        requests: usize = 16,
        /// Objects of each KV group that a worker remembers, 1 to 16777216. Raise it if the store holds more than that.
        known_max: u32 = 262_144,
        /// Quota of each tenant, in percent of `object.known_max`; see `kv.tenant_percent`. It does not limit what the
        /// store holds.
        tenant_percent: u32 = 100,
        /// Interval, in seconds, at which a worker lists the store to learn what others wrote.
        list_s: u64 = 300,
    }
    /// How the router chooses workers.
    placement: Placement {
        /// Whether prompts go through prefill workers: `auto` (if the prediction says that it is faster), `always` or
        /// `never`.
        handoff: Wanted = Wanted::Auto,
        /// Whether the worker that computes a prompt fetches a cached prefix from another worker: `auto` (if the
        /// prediction says that it is faster), `always` (if the other worker has more of the prompt) or `never`.
        fetch: Wanted = Wanted::Auto,
        /// Most attempts at a request, the first included.
        attempts_max: u32 = 3,
        /// Most entries of the router's prefix index. Each entry takes at most 240 bytes.
        index_blocks_max: usize = 1_000_000,
    }
    /// How KV moves between workers.
    transport: Transport {
        /// Slowest lane that KV may use. A peer that only slower lanes reach is not connected. A worker that cannot use
        /// `rdma` or `nvlink` does not start if that lane is required. Empty: any lane.
        require: RequiredLane = RequiredLane(None),
        /// Lanes that KV may use, separated by commas: `local`, `nvlink`, `shm`, `rdma`, `tcp`. Empty: all.
        lanes: Lanes = Lanes(Vec::new()),
        /// Address where workers of other processes connect to read this worker's KV. Port 0 selects a free port.
        /// Several addresses, separated by commas, one per network, share the reads over `tcp`. Empty: none. Set an
        /// address of the host if workers run on several hosts.
        listen: String = "127.0.0.1:0".to_owned(),
        /// Host names or addresses that peers use instead of those in `transport.listen`, in the same number and order,
        /// separated by commas. Empty: those of `transport.listen`.
        advertise: String = String::new(),
        /// File with the certificate of this process, in PEM. Connections to other processes then use TLS only. It
        /// needs the next two settings. Empty: no TLS.
        tls_certificate: String = String::new(),
        /// File with the private key of the certificate, in PEM.
        tls_key: String = String::new(),
        /// File with the certificates of the accepted authorities, in PEM. One of them must have issued a peer's
        /// certificate.
        tls_authorities: String = String::new(),
        /// Lane over which this worker reads KV in the format of `kv.encoding`: `off` (none) or `tcp`. Other lanes
        /// transfer KV unchanged. Use it if the network is slow; see docs/operate/tuning.md.
        encode_kv: EncodeKv = EncodeKv::Off,
        /// Expected rate of reads from each peer, in gigabytes per second, such as 12.5. Below a quarter of it, the
        /// worker logs a warning and counts `baton_lane_short_total`. 0: the rate that RDMA ports promise, and no
        /// expectation for other lanes.
        expect_gbytes_per_s: Gigabytes = Gigabytes(0.0),
        /// RDMA devices (`mlx5_0`) or ports (`mlx5_0:1`) to spread reads over, separated by commas. Empty: all active
        /// ports, at most eight, those nearest to the worker's memory first.
        rdma_devices: String = String::new(),
        /// Index of an RDMA port's GID. Negative: the entry that suits best.
        rdma_gid: i16 = -1,
        /// Queue pairs to each peer on each RDMA port, 1 to 8.
        rdma_queues: u8 = transport::RdmaConfig::default().queues,
        /// Traffic class of RoCE packets: the DSCP times four. Switches and cards derive the priority from it. `baton
        /// doctor` checks that priority.
        rdma_traffic_class: u8 = RdmaService::default().traffic_class,
        /// Service level of InfiniBand packets, 0 to 15.
        rdma_service_level: u8 = RdmaService::default().service_level,
        /// Flow label of RoCE packets, up to 1,048,575. Cards derive the source port from it, and switches choose the
        /// path by that port. 0: the card chooses.
        rdma_flow_label: u32 = RdmaService::default().flow_label,
        /// Index of an RDMA port's partition key.
        rdma_pkey: u16 = RdmaService::default().pkey_index,
        /// Time that an RDMA device waits for an answer before it retries: 4.096 microseconds times two to the power of
        /// this value, 1 to 20. 17 is half a second.
        rdma_timeout: u8 = RdmaService::default().timeout,
        /// Retries of an RDMA device before a read fails, 0 to 7.
        rdma_retries: u8 = RdmaService::default().retries,
        /// Microseconds for which a worker polls for completions of RDMA reads before it sleeps. A higher value saves
        /// some microseconds per read and uses up to one more core.
        rdma_poll_us: u64 = 0,
    }
    /// Time limits of a handoff from a prefill worker to a decode worker.
    handoff: Handoff {
        /// Lifetime of a lease without renewal, in milliseconds.
        lease_ms: u64 = 2000,
        /// Milliseconds that a reader waits for the offer, and then for memory. Time in the queue of the worker that
        /// computes the prompt does not count.
        wait_ms: u64 = 30_000,
        /// Milliseconds that a reader waits for the answer to a release or to a request for a prefix.
        answer_ms: u64 = 2000,
        /// Interval, in milliseconds, at which an unanswered release is repeated.
        release_retry_ms: u64 = 100,
        /// Longest lifetime of an offer, in milliseconds, renewed or not.
        offer_max_ms: u64 = 120_000,
    }
    /// Sessions between routers and workers.
    session: Session {
        /// Milliseconds without a message in either direction after which a router asks a worker for a heartbeat.
        heartbeat_ms: u64 = 1500,
        /// Milliseconds of silence after which the other end counts as lost. A router then retries on another worker; a
        /// worker drops the router's requests. It must be at least three times `session.heartbeat_ms`.
        silence_ms: u64 = 5000,
    }
    /// Metrics, at the operations listeners.
    metrics: Metrics {
        /// Whether routers also show metrics under the names of the InferencePool's model-server protocol, such as
        /// `vllm:num_requests_waiting`: `true` or `false`.
        vllm_aliases: bool = true,
    }
    /// Traces of requests, sent to an OpenTelemetry collector.
    traces: Traces {
        /// Address of the collector, which takes OTLP over HTTP: `http://127.0.0.1:4318`, say. Set it for routers and
        /// workers. Empty: nothing is traced.
        endpoint: String = String::new(),
        /// Share of the requests that a router traces, from 0 to 1. Of requests with the header `traceparent`, their
        /// client decides.
        sample: f64 = 1.0,
    }
    /// The log, on standard error.
    log: Log {
        /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,router=debug`.
        level: String = "info".to_owned(),
        /// `text` or `json`.
        format: LogForm = LogForm::Text,
        /// File for the timeline of requests; see docs/reference/timeline.md. Empty: no timeline.
        timeline: String = String::new(),
    }
}

/// Keys whose values are never shown and cannot be set by flags.
pub(super) const HIDDEN: [&str; 6] = [
    "router.api_keys",
    "cluster.secret",
    "cluster.accept_secret",
    "discovery.etcd.password",
    "object.secret",
    "object.token",
];

/// What special tokens are that are written in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SpecialTokens {
    /// The text that they are spelled with.
    Text,
    /// Special tokens.
    Allow,
}

/// How routers find workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DiscoveryKind {
    /// By a list of addresses.
    Static,
    /// In etcd, where workers register themselves.
    Etcd,
    /// By the pods of Kubernetes.
    Kubernetes,
}

impl From<SpecialTokens> for WrittenSpecials {
    fn from(written: SpecialTokens) -> Self {
        match written {
            SpecialTokens::Text => Self::Text,
            SpecialTokens::Allow => Self::Allow,
        }
    }
}

/// Number format of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KvDtype {
    /// The format of the weights.
    Auto,
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl KvDtype {
    /// Returns the format for a model whose weights have the format `weights`.
    pub(crate) fn resolve(self, weights: Dtype) -> Dtype {
        match self {
            Self::Auto => weights,
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::Bf16,
        }
    }
}

/// The lane over which KV is read encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EncodeKv {
    /// None.
    Off,
    /// The lane `tcp`.
    Tcp,
}

/// The order in which cached blocks are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Eviction {
    /// The least recently used first.
    Lru,
    /// Blocks that were used once before blocks that were used again.
    S3Fifo,
    /// The least recently used block that no other block continues.
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

/// The device that computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Device {
    /// The cores of this machine.
    Cpu,
    /// A cost model in place of a model.
    Sim,
    /// NVIDIA GPUs.
    Cuda,
}

/// The kernels of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kernels {
    /// Those whose bits do not depend on other rows.
    Exact,
    /// The fastest ones.
    Fast,
}

impl From<Kernels> for KernelSet {
    fn from(kernels: Kernels) -> Self {
        match kernels {
            Kernels::Exact => Self::Exact,
            Kernels::Fast => Self::Fast,
        }
    }
}

/// Whether engine threads stay on processors of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pinning {
    /// If the processors belong to this worker alone.
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
    /// At its second use.
    SecondUse,
    /// As soon as it is full.
    Through,
    /// When the device is fuller than its high watermark.
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

/// Whether placement uses an optional step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wanted {
    /// If the prediction says that it is faster.
    Auto,
    /// Whenever it is possible.
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

/// The format of a log line.
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
