//! What must hold among the values, and what this build can do.

mod discovery;

use super::hidden::Hidden;
use super::origin::Origin;
use super::quantity::BytesOrAuto;
use super::tree::{Admin, Config, Device, EncodeKv, Kernels};
use ::discovery::StaticList;
use domain::Encoding;
use engine::sim::Preset;
use router::OutputForms;
use std::fmt;
use std::ops::RangeInclusive;
use transport::{Lane, RdmaService};

/// Most workers of `baton serve`.
const WORKERS_MAX: usize = 1024;
/// Bounds of the object tier: requests at once, objects that are remembered, and seconds between listings, which
/// are a week.
const OBJECT_REQUESTS_MAX: u64 = 1024;
const OBJECT_KNOWN_MAX: u64 = 1 << 24;
const OBJECT_LIST_S_MAX: u64 = 7 * 24 * 3600;
/// The longest lease of a worker in etcd, in seconds.
const ETCD_LEASE_S_MAX: u64 = 600;
/// Most memory of dead workers' tiers that a worker keeps, beside its own.
const ADOPTED_PERCENT_MAX: u64 = 10_000;

/// Bytes of a worker's name, at most: a folder may have the same one, and what a worker says of itself must fit
/// into what routers read before they know it.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Fewest bytes of a secret, so that nobody finds it by trying.
pub(crate) const SECRET_BYTES_MIN: usize = 16;

/// A setting that cannot stay as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The setting.
    key: &'static str,
    /// Where its value came from.
    origin: Origin,
    /// What is wrong, and how to fix it.
    what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.key, self.what, self.origin)
    }
}

/// Returns all problems of `config`; `origin` says where a setting's value came from.
pub(super) fn problems(config: &Config, origin: impl Fn(&str) -> Origin) -> Vec<Problem> {
    let mut check = Check { config, origin: &origin, found: Vec::new() };
    check.processes();
    check.secrets();
    check.addresses();
    discovery::check(&mut check);
    check.router();
    check.admin();
    check.log();
    check.traces();
    check.engine();
    check.kv();
    check.encodings();
    check.object();
    check.sessions_and_handoffs();
    check.tls();
    check.transport_tls();
    check.bounds();
    check.found
}

/// Returns the origins of a list that commas separate.
pub(crate) fn origins(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|origin| !origin.is_empty())
}

/// Returns whether browsers could name a page's origin so.
fn is_origin(text: &str) -> bool {
    let is_host =
        |host: &str| !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@*,".contains(&byte));
    text == "*" || text.split_once("://").is_some_and(|(scheme, host)| !scheme.is_empty() && is_host(host))
}

/// Most requests that a router explains after they ended.
const EXPLAINED_MAX: usize = 65_536;

/// The check of one configuration.
struct Check<'a> {
    config: &'a Config,
    origin: &'a dyn Fn(&str) -> Origin,
    found: Vec<Problem>,
}

impl Check<'_> {
    /// Adds a problem of the setting `key` unless `holds`.
    fn expect(&mut self, holds: bool, key: &'static str, what: impl FnOnce() -> String) {
        if !holds {
            self.found.push(Problem { key, origin: (self.origin)(key), what: what() });
        }
    }

    fn processes(&mut self) {
        let Config { serve, worker, cluster, .. } = self.config;
        self.expect(serve.decode > 0, "serve.decode", || {
            "at least one decode worker is needed, prefill workers are optional".to_owned()
        });
        let workers = serve.prefill.saturating_add(serve.decode);
        self.expect(workers <= WORKERS_MAX, "serve.prefill", || {
            format!("{workers} workers with serve.decode are too many for a process: at most {WORKERS_MAX}")
        });
        self.expect(worker.name.len() <= NAME_BYTES_MAX, "worker.name", || {
            format!("it has {} bytes: at most {NAME_BYTES_MAX}", worker.name.len())
        });
        if let Err(error) = StaticList::parse(&cluster.workers) {
            self.expect(false, "cluster.workers", || error.to_string());
        }
    }

    fn secrets(&mut self) {
        let cluster = &self.config.cluster;
        let secrets = [
            ("cluster.secret", &cluster.secret, "cluster.secret_file", &cluster.secret_file),
            (
                "cluster.accept_secret",
                &cluster.accept_secret,
                "cluster.accept_secret_file",
                &cluster.accept_secret_file,
            ),
        ];
        for (key, secret, file_key, file) in secrets {
            let bytes = secret.0.len();
            self.expect(bytes == 0 || bytes >= SECRET_BYTES_MIN, key, || {
                format!(
                    "it has {bytes} bytes, which others can find by trying: at least {SECRET_BYTES_MIN}, such as `openssl rand -hex 32` makes"
                )
            });
            self.expect(bytes == 0 || file.is_empty(), file_key, || {
                format!("{key} is set as well: set one of the two")
            });
        }
        let has = |secret: &Hidden, file: &str| !secret.0.is_empty() || !file.is_empty();
        let replaces = has(&cluster.secret, &cluster.secret_file);
        let accepts = has(&cluster.accept_secret, &cluster.accept_secret_file);
        self.expect(replaces || !accepts, "cluster.accept_secret", || {
            "there is no cluster.secret beside it, by which this process proves itself".to_owned()
        });
    }

    fn addresses(&mut self) {
        let Config { router, worker, transport, .. } = self.config;
        for (key, address) in [("router.listen", &router.listen), ("worker.listen", &worker.listen)] {
            self.expect(is_address(address), key, || format!("{address:?} is not HOST:PORT, such as 127.0.0.1:8000"));
        }
        for (key, address) in [("router.ops_listen", &router.ops_listen), ("worker.ops_listen", &worker.ops_listen)] {
            self.expect(is_address(address) || matches!(address.as_str(), "" | "auto"), key, || {
                format!("{address:?} is not HOST:PORT, such as 127.0.0.1:8001, nor auto, nor empty")
            });
        }
        for address in transport.listen.split(',').map(str::trim) {
            self.expect(is_address(address) || transport.listen.is_empty(), "transport.listen", || {
                format!("{address:?} is not HOST:PORT, such as 127.0.0.1:8000")
            });
        }
        let hosts = |text: &str| text.split(',').count();
        let told = transport.advertise.is_empty() || hosts(&transport.advertise) == hosts(&transport.listen);
        self.expect(told, "transport.advertise", || {
            format!("{:?} are not as many hosts as transport.listen has", transport.advertise)
        });
    }

    fn router(&mut self) {
        let Config { router, engine, .. } = self.config;
        self.expect(router.connections_max > router.requests_max, "router.connections_max", || {
            format!(
                "{} is not above router.requests_max = {}: who asks whether the service is ready needs a connection, too",
                router.connections_max, router.requests_max
            )
        });
        self.expect(router.bodies_bytes_max >= router.body_bytes_max, "router.bodies_bytes_max", || {
            format!(
                "{} is less than router.body_bytes_max = {}: no body of that size would be taken",
                router.bodies_bytes_max, router.body_bytes_max
            )
        });
        self.expect(u32::from(router.choices_max) <= engine.running_max, "router.choices_max", || {
            format!(
                "{} is above engine.running_max = {}: the sequences of a prompt run together",
                router.choices_max, engine.running_max
            )
        });
        self.expect(router.api_keys.0.bytes().all(|byte| byte.is_ascii_graphic()), "router.api_keys", || {
            "keys are visible ASCII characters, separated by commas without spaces".to_owned()
        });
        let Config { router_responses: responses, object, .. } = self.config;
        self.expect(responses.bytes_max >= router.body_bytes_max, "router.responses.bytes_max", || {
            format!(
                "{} is less than router.body_bytes_max = {}: a response to a body of that size would not be kept",
                responses.bytes_max, router.body_bytes_max
            )
        });
        if let Some(place) = responses.store.strip_prefix("s3://") {
            self.expect(!object.endpoint.is_empty(), "router.responses.store", || {
                "s3://BUCKET/PREFIX is in the store of object.endpoint, which is not set".to_owned()
            });
            let has_names = place.contains('/') && place.split('/').all(|name| !matches!(name, "" | "." | ".."));
            self.expect(has_names, "router.responses.store", || {
                format!("{:?} is not s3://BUCKET/PREFIX, such as s3://baton/responses", responses.store)
            });
        }
        if let Some(wrong) = origins(&router.cors_origins).find(|origin| !is_origin(origin)) {
            self.expect(false, "router.cors_origins", || {
                format!("{wrong:?} is no origin: write `*`, or such as https://chat.example.org, without a path")
            });
        }
        for (key, tools, reasoning) in [
            ("router.tool_parser", router.tool_parser.as_str(), "none"),
            ("router.reasoning_parser", "none", router.reasoning_parser.as_str()),
        ] {
            let known = OutputForms::of(tools, reasoning, None);
            self.expect(known.is_ok(), key, || known.expect_err("it is not known").to_string());
        }
    }

    fn admin(&mut self) {
        let Admin { beyond_loopback, keys_file, hosts, explained_max: explained } = &self.config.admin;
        self.expect(!beyond_loopback || !keys_file.is_empty(), "admin.beyond_loopback", || {
            "nothing would tell operators of other hosts from everybody else: make a key (`baton keys add --tenant NAME \
             --admin --file FILE`), and set admin.keys_file to the file"
                .to_owned()
        });
        self.expect(!hosts.contains([':', '/', '*']), "admin.hosts", || {
            format!("{hosts:?} has more than names, such as console.example.com, separated by commas")
        });
        self.expect(*explained <= EXPLAINED_MAX, "admin.explained_max", || {
            format!("{explained} is above {EXPLAINED_MAX}: each takes memory of the router")
        });
    }

    fn log(&mut self) {
        if let Err(error) = telemetry::logging::check(&self.config.log.level) {
            self.expect(false, "log.level", || error.to_string());
        }
    }

    fn traces(&mut self) {
        let Config { traces, .. } = self.config;
        let is_web = ["http://", "https://"].iter().any(|scheme| traces.endpoint.starts_with(scheme));
        self.expect(traces.endpoint.is_empty() || is_web, "traces.endpoint", || {
            let endpoint = &traces.endpoint;
            format!(
                "{endpoint:?} is no address of a collector that takes OTLP over HTTP, such as http://127.0.0.1:4318"
            )
        });
        self.expect((0.0..=1.0).contains(&traces.sample), "traces.sample", || {
            format!("{} is no share of requests: from 0 (none) to 1 (all)", traces.sample)
        });
    }

    fn engine(&mut self) {
        let Config { engine, sim, .. } = self.config;
        self.expect((1..=2).contains(&engine.steps_in_flight), "engine.steps_in_flight", || {
            format!("{} is not 1 or 2: a device runs one step, and one more may wait for it", engine.steps_in_flight)
        });
        let has_sets = engine.device == Device::Cuda || engine.kernels == Kernels::Exact;
        self.expect(has_sets, "engine.kernels", || "fast is for engine.device=cuda: no other has it".to_owned());
        let room = engine.running_max.saturating_add(engine.chunk_tokens);
        self.expect(engine.step_tokens_max >= room, "engine.step_tokens_max", || {
            format!(
                "{} is too small: a step must hold running_max + chunk_tokens = {room} tokens, or decoding could \
                 starve prompts",
                engine.step_tokens_max
            )
        });
        let whole_blocks = engine.block_tokens == 0 || engine.chunk_tokens.is_multiple_of(engine.block_tokens);
        self.expect(whole_blocks, "engine.chunk_tokens", || {
            format!("{} is not a multiple of engine.block_tokens = {}", engine.chunk_tokens, engine.block_tokens)
        });
        self.expect(Preset::named(&sim.preset).is_some(), "sim.preset", || {
            format!("{:?} is not one of {}", sim.preset, Preset::names().collect::<Vec<_>>().join(", "))
        });
    }

    fn kv(&mut self) {
        let Config { kv, host, disk, .. } = self.config;
        self.expect(kv.reserve_percent <= 90, "kv.reserve_percent", || {
            format!("{} leaves too little to prompts: at most 90", kv.reserve_percent)
        });
        let left = kv.reserve_percent.saturating_add(kv.pinned_percent) <= 90;
        self.expect(left || kv.reserve_percent > 90, "kv.pinned_percent", || {
            format!("{} leaves too little to prompts: at most 90 with kv.reserve_percent", kv.pinned_percent)
        });
        let parks = host.bytes.0 > 0 || !disk.folders.is_empty();
        self.expect(kv.park_idle_ms == 0 || parks, "kv.park_idle_ms", || {
            "there is nowhere to park: it wants host.bytes or disk.folders".to_owned()
        });
        self.expect(kv.low_percent <= kv.high_percent, "kv.low_percent", || {
            format!("{} is above kv.high_percent = {}", kv.low_percent, kv.high_percent)
        });
    }

    fn encodings(&mut self) {
        let Config { engine, kv, transport, .. } = self.config;
        let is_exact = kv.encoding == Encoding::Exact;
        self.expect(is_exact || engine.device != Device::Sim, "kv.encoding", || {
            format!("the KV of the device sim is tags, which {} would not give back: only exact does", kv.encoding)
        });
        let encodes = transport.encode_kv != EncodeKv::Off;
        self.expect(!encodes || !is_exact, "transport.encode_kv", || {
            "there is no encoding to read KV in: it wants kv.encoding = \"int8\" or \"fp8\"".to_owned()
        });
        let reads_over_tcp = transport.lanes.0.is_empty() || transport.lanes.0.contains(&Lane::Tcp);
        self.expect(!encodes || reads_over_tcp, "transport.encode_kv", || {
            "it is about the lane tcp, which transport.lanes does not allow".to_owned()
        });
    }

    fn object(&mut self) {
        let object = &self.config.object;
        if object.endpoint.is_empty() {
            return;
        }
        let known = ["https://", "http://"].iter().any(|scheme| object.endpoint.starts_with(scheme));
        // It may hold a secret, and this is read by many.
        let names_user = object.endpoint.contains('@');
        self.expect(!names_user, "object.endpoint", || {
            "it names a user; object.key_id and object.secret say who asks".to_owned()
        });
        self.expect(known || names_user, "object.endpoint", || {
            format!("{:?} does not begin with https:// or http://", object.endpoint)
        });
        for (key, value) in [("object.bucket", &object.bucket), ("object.key_id", &object.key_id)] {
            self.expect(!value.is_empty(), key, || "object.endpoint wants it too".to_owned());
        }
        self.expect(!object.secret.0.is_empty(), "object.secret", || "object.key_id wants it too".to_owned());
        let names = object.prefix.split('/').all(|name| !matches!(name, "" | "." | ".."));
        let plain = names && !object.prefix.contains(char::is_control);
        self.expect(plain || object.prefix.is_empty(), "object.prefix", || {
            format!("{:?} is not names with slashes between them, such as baton or team/kv", object.prefix)
        });
    }

    fn sessions_and_handoffs(&mut self) {
        let Config { session, handoff, .. } = self.config;
        self.expect(session.silence_ms / 3 >= session.heartbeat_ms, "session.silence_ms", || {
            format!(
                "{} is less than three times session.heartbeat_ms = {}: one late sign of life would end a session",
                session.silence_ms, session.heartbeat_ms
            )
        });
        self.expect(handoff.release_retry_ms <= handoff.answer_ms, "handoff.release_retry_ms", || {
            format!(
                "{} is longer than handoff.answer_ms = {}: no release would be repeated",
                handoff.release_retry_ms, handoff.answer_ms
            )
        });
        self.expect(handoff.lease_ms <= handoff.offer_max_ms, "handoff.lease_ms", || {
            format!(
                "{} is longer than handoff.offer_max_ms = {}: no lease would last",
                handoff.lease_ms, handoff.offer_max_ms
            )
        });
    }

    fn tls(&mut self) {
        let tls = &self.config.tls;
        for (key, file, other) in [("tls.cert", &tls.cert, &tls.key), ("tls.key", &tls.key, &tls.cert)] {
            self.expect(!file.is_empty() || other.is_empty(), key, || {
                "a certificate needs its key, and a key its certificate".to_owned()
            });
        }
        self.expect(tls.client_ca.is_empty() || !tls.cert.is_empty(), "tls.client_ca", || {
            "certificates of clients are requested by TLS only: it needs tls.cert and tls.key".to_owned()
        });
        self.expect(tls.server_name.is_empty() || !tls.ca.is_empty(), "tls.server_name", || {
            "no certificates of workers are checked: it needs tls.ca".to_owned()
        });
    }

    fn transport_tls(&mut self) {
        let transport = &self.config.transport;
        let files = [
            ("transport.tls_certificate", &transport.tls_certificate),
            ("transport.tls_key", &transport.tls_key),
            ("transport.tls_authorities", &transport.tls_authorities),
        ];
        let wanted = files.iter().any(|(_, file)| !file.is_empty());
        for (key, file) in files {
            self.expect(!wanted || !file.is_empty(), key, || "TLS needs certificate, key and authorities".to_owned());
        }
    }

    /// Checks what is wrong by itself: each number within its bounds.
    fn bounds(&mut self) {
        for (key, value, range) in ranges(self.config) {
            self.expect(range.contains(&value), key, || format!("{value} is not {} to {}", range.start(), range.end()));
        }
        for (key, value, most) in maxima(self.config) {
            self.expect(value <= most, key, || format!("{value} is above {most}"));
        }
        // To a device, 0 is to wait for ever.
        self.expect(self.config.transport.rdma_timeout > 0, "transport.rdma_timeout", || {
            "it must be at least 1".to_owned()
        });
        for (key, value) in positive(self.config) {
            self.expect(value > 0, key, || "0 is too small: at least 1".to_owned());
        }
    }
}

/// Settings with a smallest and a largest value.
fn ranges(config: &Config) -> [(&'static str, u64, RangeInclusive<u64>); 10] {
    let Config { discovery_etcd: etcd, kv, host, disk, object, transport, .. } = config;
    [
        ("discovery.etcd.lease_s", etcd.lease_s, 2..=ETCD_LEASE_S_MAX),
        ("kv.tenant_percent", kv.tenant_percent.into(), 1..=100),
        ("host.tenant_percent", host.tenant_percent.into(), 1..=100),
        ("disk.tenant_percent", disk.tenant_percent.into(), 1..=100),
        ("object.tenant_percent", object.tenant_percent.into(), 1..=100),
        ("object.requests", object.requests as u64, 1..=OBJECT_REQUESTS_MAX),
        ("object.known_max", object.known_max.into(), 1..=OBJECT_KNOWN_MAX),
        ("object.list_s", object.list_s, 1..=OBJECT_LIST_S_MAX),
        ("host.adopted_percent", host.adopted_percent.into(), 0..=ADOPTED_PERCENT_MAX),
        ("transport.rdma_queues", transport.rdma_queues.into(), 1..=8),
    ]
}

/// Settings with a largest value.
fn maxima(config: &Config) -> [(&'static str, i64, i64); 6] {
    let Config { kv, transport, .. } = config;
    [
        ("kv.high_percent", kv.high_percent.into(), 100),
        ("transport.rdma_gid", transport.rdma_gid.into(), u8::MAX.into()),
        ("transport.rdma_service_level", transport.rdma_service_level.into(), RdmaService::SERVICE_LEVEL_MAX.into()),
        ("transport.rdma_flow_label", transport.rdma_flow_label.into(), RdmaService::FLOW_LABEL_MAX.into()),
        ("transport.rdma_timeout", transport.rdma_timeout.into(), RdmaService::TIMEOUT_MAX.into()),
        ("transport.rdma_retries", transport.rdma_retries.into(), RdmaService::RETRIES_MAX.into()),
    ]
}

/// Settings that are at least 1.
fn positive(config: &Config) -> [(&'static str, u64); 21] {
    let device_bytes = match config.kv.device_bytes {
        BytesOrAuto::Auto => 1,
        BytesOrAuto::Bytes(bytes) => bytes.0,
    };
    let Config { router, engine, placement, handoff, session, .. } = config;
    [
        ("router.body_bytes_max", router.body_bytes_max.0),
        ("router.body_wait_s", router.body_wait_s),
        ("router.body_min_bytes_per_s", router.body_min_bytes_per_s.0),
        ("router.prompts_max", router.prompts_max as u64),
        ("router.choices_max", router.choices_max.into()),
        ("router.requests_max", router.requests_max as u64),
        ("router.connections_max", router.connections_max as u64),
        ("router.deadline_s", router.deadline_s),
        ("router.stream_buffer", router.stream_buffer as u64),
        ("router.write_wait_s", router.write_wait_s),
        ("engine.chunk_tokens", engine.chunk_tokens.into()),
        ("engine.running_max", engine.running_max.into()),
        ("engine.waiting_max", engine.waiting_max.into()),
        ("kv.device_bytes", device_bytes),
        ("placement.attempts_max", placement.attempts_max.into()),
        ("placement.index_blocks_max", placement.index_blocks_max as u64),
        ("handoff.lease_ms", handoff.lease_ms),
        ("handoff.wait_ms", handoff.wait_ms),
        ("handoff.release_retry_ms", handoff.release_retry_ms),
        ("session.heartbeat_ms", session.heartbeat_ms),
        ("handoff.offer_max_ms", handoff.offer_max_ms),
    ]
}

fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
