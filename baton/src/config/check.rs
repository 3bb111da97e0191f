//! What must hold among the values, and what this build can do.

use super::hidden::Hidden;
use super::layers::Origin;
use super::tree::{Config, Device, EncodeKv};
use discovery::StaticList;
use domain::Encoding;
use engine::sim::Preset;
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
/// Most memory of dead workers' tiers that a worker keeps, beside its own.
const ADOPTED_PERCENT_MAX: u32 = 10_000;

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

/// All problems of `config`; `origin` says where a setting's value came from.
pub(super) fn problems(config: &Config, origin: impl Fn(&str) -> Origin) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut expect = |holds: bool, key: &'static str, what: &dyn Fn() -> String| {
        if !holds {
            found.push(Problem { key, origin: origin(key), what: what() });
        }
    };
    let Config { serve, router, worker, cluster, engine, sim, kv, placement, transport, handoff, .. } = config;

    expect(serve.decode > 0, "serve.decode", &|| {
        "at least one decode worker is needed, prefill workers are optional".to_owned()
    });
    let workers = serve.prefill.saturating_add(serve.decode);
    expect(workers <= WORKERS_MAX, "serve.prefill", &|| {
        format!("{workers} workers with serve.decode are too many for a process: at most {WORKERS_MAX}")
    });
    expect(worker.name.len() <= NAME_BYTES_MAX, "worker.name", &|| {
        format!("it has {} bytes: at most {NAME_BYTES_MAX}", worker.name.len())
    });
    let listed = StaticList::parse(&cluster.workers);
    let reason = || listed.as_ref().map_or_else(ToString::to_string, |_| String::new());
    expect(listed.is_ok(), "cluster.workers", &reason);
    let secrets = [
        ("cluster.secret", &cluster.secret, "cluster.secret_file", &cluster.secret_file),
        ("cluster.accept_secret", &cluster.accept_secret, "cluster.accept_secret_file", &cluster.accept_secret_file),
    ];
    for (key, secret, file_key, file) in secrets {
        let bytes = secret.0.len();
        expect(bytes == 0 || bytes >= SECRET_BYTES_MIN, key, &|| {
            format!(
                "it has {bytes} bytes, which others can find by trying: at least {SECRET_BYTES_MIN}, such as `openssl rand -hex 32` makes"
            )
        });
        expect(bytes == 0 || file.is_empty(), file_key, &|| format!("{key} is set as well: set one of the two"));
    }
    let has = |secret: &Hidden, file: &str| !secret.0.is_empty() || !file.is_empty();
    let replaces = has(&cluster.secret, &cluster.secret_file);
    expect(replaces || !has(&cluster.accept_secret, &cluster.accept_secret_file), "cluster.accept_secret", &|| {
        "there is no cluster.secret beside it, by which this process proves itself".to_owned()
    });
    for (key, address) in [("router.listen", &router.listen), ("worker.listen", &worker.listen)] {
        let what = || format!("{address:?} is not HOST:PORT, such as 127.0.0.1:8000");
        expect(is_address(address), key, &what);
    }
    for (key, address) in [("router.ops_listen", &router.ops_listen), ("worker.ops_listen", &worker.ops_listen)] {
        let what = || format!("{address:?} is not HOST:PORT, such as 127.0.0.1:8001, nor auto, nor empty");
        expect(is_address(address) || matches!(address.as_str(), "" | "auto"), key, &what);
    }
    expect(router.connections_max > router.requests_max, "router.connections_max", &|| {
        format!(
            "{} is not above router.requests_max = {}: who asks whether the service is ready needs a connection, too",
            router.connections_max, router.requests_max
        )
    });
    expect(router.bodies_bytes_max >= router.body_bytes_max, "router.bodies_bytes_max", &|| {
        format!(
            "{} is less than router.body_bytes_max = {}: no body of that size would be taken",
            router.bodies_bytes_max, router.body_bytes_max
        )
    });
    for address in transport.listen.split(',').map(str::trim) {
        let what = || format!("{address:?} is not HOST:PORT, such as 127.0.0.1:8000");
        expect(is_address(address) || transport.listen.is_empty(), "transport.listen", &what);
    }
    let hosts = |text: &str| text.split(',').count();
    let told = transport.advertise.is_empty() || hosts(&transport.advertise) == hosts(&transport.listen);
    expect(told, "transport.advertise", &|| {
        format!("{:?} are not as many hosts as transport.listen has", transport.advertise)
    });

    let filter = telemetry::logging::check(&config.log.level);
    let reason = || filter.as_ref().map_or_else(ToString::to_string, |()| String::new());
    expect(filter.is_ok(), "log.level", &reason);

    let engine_room = engine.running_max.saturating_add(engine.chunk_tokens);
    expect(engine.step_tokens_max >= engine_room, "engine.step_tokens_max", &|| {
        format!(
            "{} is too small: a step must hold running_max + chunk_tokens = {engine_room} tokens, or decoding could \
             starve prompts",
            engine.step_tokens_max
        )
    });
    let choices_run = u32::from(router.choices_max) <= engine.running_max;
    expect(choices_run, "router.choices_max", &|| {
        format!(
            "{} is above engine.running_max = {}: the sequences of a prompt run together",
            router.choices_max, engine.running_max
        )
    });
    let whole_blocks = engine.block_tokens == 0 || engine.chunk_tokens.is_multiple_of(engine.block_tokens);
    expect(whole_blocks, "engine.chunk_tokens", &|| {
        format!("{} is not a multiple of engine.block_tokens = {}", engine.chunk_tokens, engine.block_tokens)
    });
    expect(kv.reserve_percent <= 90, "kv.reserve_percent", &|| {
        format!("{} leaves too little to prompts: at most 90", kv.reserve_percent)
    });
    let left = kv.reserve_percent.saturating_add(kv.pinned_percent) <= 90;
    expect(left || kv.reserve_percent > 90, "kv.pinned_percent", &|| {
        format!("{} leaves too little to prompts: at most 90 with kv.reserve_percent", kv.pinned_percent)
    });
    let quotas = [
        ("kv.tenant_percent", kv.tenant_percent),
        ("host.tenant_percent", config.host.tenant_percent),
        ("disk.tenant_percent", config.disk.tenant_percent),
        ("object.tenant_percent", config.object.tenant_percent),
    ];
    for (key, percent) in quotas {
        expect((1..=100).contains(&percent), key, &|| format!("{percent} is not 1 to 100"));
    }
    let parks = config.host.bytes.0 > 0 || !config.disk.folders.is_empty();
    expect(kv.park_idle_ms == 0 || parks, "kv.park_idle_ms", &|| {
        "there is nowhere to park: it wants host.bytes or disk.folders".to_owned()
    });
    expect(kv.high_percent <= 100, "kv.high_percent", &|| format!("{} is above 100", kv.high_percent));
    expect(kv.low_percent <= kv.high_percent, "kv.low_percent", &|| {
        format!("{} is above kv.high_percent = {}", kv.low_percent, kv.high_percent)
    });
    let sound = kv.encoding == Encoding::Exact || engine.device != Device::Sim;
    expect(sound, "kv.encoding", &|| {
        format!("the KV of the device sim is tags, which {} would not give back: only exact does", kv.encoding)
    });
    let has_encoding = kv.encoding != Encoding::Exact;
    let encodes = transport.encode_kv != EncodeKv::Off;
    expect(!encodes || has_encoding, "transport.encode_kv", &|| {
        "there is no encoding to read KV in: it wants kv.encoding = \"int8\" or \"fp8\"".to_owned()
    });
    let reads_over_tcp = transport.lanes.0.is_empty() || transport.lanes.0.contains(&Lane::Tcp);
    expect(!encodes || reads_over_tcp, "transport.encode_kv", &|| {
        "it is about the lane tcp, which transport.lanes does not allow".to_owned()
    });
    let object = &config.object;
    if !object.endpoint.is_empty() {
        let known = ["https://", "http://"].iter().any(|scheme| object.endpoint.starts_with(scheme));
        // It may hold a secret, and this is read by many.
        let nobody = !object.endpoint.contains('@');
        expect(nobody, "object.endpoint", &|| {
            "it names a user; object.key_id and object.secret say who asks".to_owned()
        });
        expect(known || !nobody, "object.endpoint", &|| {
            format!("{:?} does not begin with https:// or http://", object.endpoint)
        });
        for (key, value) in [("object.bucket", &object.bucket), ("object.key_id", &object.key_id)] {
            expect(!value.is_empty(), key, &|| "object.endpoint wants it too".to_owned());
        }
        expect(!object.secret.0.is_empty(), "object.secret", &|| "object.key_id wants it too".to_owned());
        let names = object.prefix.split('/').all(|name| !matches!(name, "" | "." | ".."));
        let plain = names && !object.prefix.contains(char::is_control);
        expect(plain || object.prefix.is_empty(), "object.prefix", &|| {
            format!("{:?} is not names with slashes between them, such as baton or team/kv", object.prefix)
        });
    }
    let bounded: [(&'static str, u64, RangeInclusive<u64>); 3] = [
        ("object.requests", object.requests as u64, 1..=OBJECT_REQUESTS_MAX),
        ("object.known_max", object.known_max.into(), 1..=OBJECT_KNOWN_MAX),
        ("object.list_s", object.list_s, 1..=OBJECT_LIST_S_MAX),
    ];
    for (key, value, range) in bounded {
        expect(range.contains(&value), key, &|| format!("{value} is not {} to {}", range.start(), range.end()));
    }
    expect(config.host.adopted_percent <= ADOPTED_PERCENT_MAX, "host.adopted_percent", &|| {
        format!("{} is not 0 to {ADOPTED_PERCENT_MAX}", config.host.adopted_percent)
    });
    let session = &config.session;
    expect(session.silence_ms / 3 >= session.heartbeat_ms, "session.silence_ms", &|| {
        format!(
            "{} is less than three times session.heartbeat_ms = {}: one late sign of life would end a session",
            session.silence_ms, session.heartbeat_ms
        )
    });
    expect(handoff.release_retry_ms <= handoff.answer_ms, "handoff.release_retry_ms", &|| {
        format!(
            "{} is longer than handoff.answer_ms = {}: no release would be repeated",
            handoff.release_retry_ms, handoff.answer_ms
        )
    });

    expect(handoff.lease_ms <= handoff.offer_max_ms, "handoff.lease_ms", &|| {
        format!(
            "{} is longer than handoff.offer_max_ms = {}: no lease would last",
            handoff.lease_ms, handoff.offer_max_ms
        )
    });

    let built_in = engine.device != Device::Cuda;
    expect(built_in, "engine.device", &|| format!("{} is not built in yet; cpu and sim are", engine.device.name()));
    expect(Preset::named(&sim.preset).is_some(), "sim.preset", &|| {
        format!("{:?} is not one of {}", sim.preset, Preset::names().collect::<Vec<_>>().join(", "))
    });
    for (key, lane) in [("transport.require", transport.require.0.as_slice()), ("transport.lanes", &transport.lanes.0)]
        .into_iter()
        .flat_map(|(key, lanes)| lanes.iter().map(move |lane| (key, lane)))
    {
        expect(lane.not_built().is_none(), key, &|| {
            let lanes: Vec<_> =
                Lane::all().filter(|(_, missing)| missing.is_none()).map(|(lane, _)| lane.name()).collect();
            let reason = lane.not_built().unwrap_or_default();
            format!("lane {lane} is {reason}; this build has: {}", lanes.join(", "))
        });
    }

    let tls = [
        ("transport.tls_certificate", &transport.tls_certificate),
        ("transport.tls_key", &transport.tls_key),
        ("transport.tls_authorities", &transport.tls_authorities),
    ];
    let wanted = tls.iter().any(|(_, file)| !file.is_empty());
    for (key, file) in tls {
        expect(!wanted || !file.is_empty(), key, &|| "TLS needs certificate, key and authorities".to_owned());
    }
    expect((1..=8).contains(&transport.rdma_queues), "transport.rdma_queues", &|| {
        format!("{} is not 1 to 8", transport.rdma_queues)
    });
    expect(transport.rdma_gid <= i16::from(u8::MAX), "transport.rdma_gid", &|| {
        format!("{} is above {}", transport.rdma_gid, u8::MAX)
    });

    let most = [
        ("transport.rdma_service_level", transport.rdma_service_level.into(), RdmaService::SERVICE_LEVEL_MAX.into()),
        ("transport.rdma_flow_label", transport.rdma_flow_label, RdmaService::FLOW_LABEL_MAX),
        ("transport.rdma_timeout", transport.rdma_timeout.into(), RdmaService::TIMEOUT_MAX.into()),
        ("transport.rdma_retries", transport.rdma_retries.into(), RdmaService::RETRIES_MAX.into()),
    ];
    for (key, value, most) in most {
        expect(value <= most, key, &|| format!("{value} is above {most}"));
    }
    // To a device, 0 is to wait for ever.
    expect(transport.rdma_timeout > 0, "transport.rdma_timeout", &|| "it must be at least 1".to_owned());

    let positive: [(&'static str, u64); 21] = [
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
        ("kv.device_bytes", kv.device_bytes.0),
        ("placement.attempts_max", placement.attempts_max.into()),
        ("placement.index_blocks_max", placement.index_blocks_max as u64),
        ("handoff.lease_ms", handoff.lease_ms),
        ("handoff.wait_ms", handoff.wait_ms),
        ("handoff.release_retry_ms", handoff.release_retry_ms),
        ("session.heartbeat_ms", config.session.heartbeat_ms),
        ("handoff.offer_max_ms", handoff.offer_max_ms),
    ];
    for (key, value) in positive {
        expect(value > 0, key, &|| "0 is too small: at least 1".to_owned());
    }
    found
}

fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
