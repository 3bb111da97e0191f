use super::layers::resolve;
use super::origin::Origin;
use super::quantity::{Bytes, BytesOrAuto};
use super::tree::{Device, KvDtype};
use super::*;
use crate::config::Flags;
use domain::{Dtype, Encoding};
use std::ffi::OsString;
use std::path::Path;
use transport::Lane;

/// Returns the outcome of a file, variables and `--set` flags.
fn settle(file: &str, variables: &[(&str, &str)], set: &[&str]) -> Result<Loaded, ConfigError> {
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let flags = Flags { set: set.iter().map(|text| text.to_string()).collect(), ..Flags::default() };
    resolve(Some((Path::new("baton.toml"), file)), variables, &flags)
}

#[track_caller]
fn check_refused(outcome: Result<Loaded, ConfigError>, expect: &str) {
    let error = outcome.and_then(|loaded| loaded.checked().map(|_| ())).expect_err("it is refused");
    assert_eq!(error.to_string(), expect);
}

fn origin(loaded: &Loaded, key: &str) -> String {
    loaded.entries().find(|entry| entry.key == key).expect("the key is there").origin.to_string()
}

#[test]
fn the_defaults_are_good() {
    // The last is that of `baton admin`.
    let others = [("HOME", "x"), ("BATONS", "1"), ("BATON_KEY", "x")];
    let loaded = settle("", &others, &[]).expect("they resolve");
    assert!(loaded.entries().all(|entry| entry.origin == Origin::Default && entry.value == entry.default));
    assert_eq!(loaded.checked().expect("they are good"), Config::default());
}

#[test]
fn other_hosts_are_no_operators_without_keys() {
    let alone = settle("[admin]\nbeyond_loopback = true\n", &[], &[]);
    let error = alone.and_then(Loaded::checked).expect_err("it is refused").to_string();
    for part in ["admin.beyond_loopback: ", "`baton keys add ", "admin.keys_file", "(file baton.toml)"] {
        assert!(error.contains(part), "{error}");
    }
    let with = settle("[admin]\nbeyond_loopback = true\nkeys_file = \"keys.json\"\n", &[], &[]);
    with.and_then(Loaded::checked).expect("there are keys");
}

#[test]
fn every_setting_says_what_it_is() {
    for (key, about) in KEYS {
        assert!(about.trim().ends_with('.') && !about.contains("  "), "{key}: {about:?}");
    }
}

#[test]
fn later_layers_win() {
    let file = "[serve]\nprefill = 2\ndecode = 3\n[kv]\ndevice_bytes = \"2GiB\"\n[router]\ndeadline_s = 5\n";
    let variables = [("BATON_SERVE__DECODE", "4"), ("BATON_ROUTER__DEADLINE_S", "6")];
    let loaded = settle(file, &variables, &["router.deadline_s=7"]).expect("it resolves");
    assert_eq!(origin(&loaded, "serve.prefill"), "file baton.toml");
    assert_eq!(origin(&loaded, "serve.decode"), "environment BATON_SERVE__DECODE");
    assert_eq!(origin(&loaded, "router.deadline_s"), "flag --set");
    assert_eq!(origin(&loaded, "router.listen"), "default");
    let config = loaded.checked().expect("it is good");
    assert_eq!((config.serve.prefill, config.serve.decode, config.router.deadline_s), (2, 4, 7));
    assert_eq!(config.kv.device_bytes, BytesOrAuto::Bytes(Bytes(2 << 30)));
}

#[test]
fn what_s3_clients_go_by_is_the_weakest_word() {
    let usual = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_SESSION_TOKEN", "")];
    let file = "[object]\nkey_id = \"c\"\n";
    let loaded = settle(file, &usual, &[]).expect("it resolves");
    assert_eq!(origin(&loaded, "object.key_id"), "file baton.toml");
    assert_eq!(origin(&loaded, "object.secret"), "environment AWS_SECRET_ACCESS_KEY");
    assert_eq!(origin(&loaded, "object.token"), "default");
    let config = loaded.checked().expect("it is good");
    assert_eq!((config.object.key_id.as_str(), config.object.secret.0.as_str()), ("c", "b"));
    check_refused(
        settle("", &usual, &["object.endpoint=minio:9000", "object.bucket=kv"]),
        "object.endpoint: \"minio:9000\" does not begin with https:// or http:// (flag --set)",
    );
}

#[test]
fn a_token_goes_with_its_own_key_only() {
    let usual = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_SESSION_TOKEN", "t")];
    let token =
        |file: &str| settle(file, &usual, &[]).expect("it resolves").checked().expect("it is good").object.token.0;
    assert_eq!(token(""), "t");
    assert_eq!(token("[object]\nkey_id = \"c\"\nsecret = \"d\"\n"), "");
    assert_eq!(token("[object]\nkey_id = \"c\"\nsecret = \"d\"\ntoken = \"u\"\n"), "u");
}

#[test]
fn watermarks_are_in_order() {
    let with = |low, high| settle("", &[], &[low, high]);
    with("kv.low_percent=0", "kv.high_percent=100").and_then(Loaded::checked).expect("it is good");
    check_refused(
        with("kv.low_percent=91", "kv.high_percent=90"),
        "kv.low_percent: 91 is above kv.high_percent = 90 (flag --set)",
    );
    check_refused(with("kv.low_percent=1", "kv.high_percent=101"), "kv.high_percent: 101 is above 100 (flag --set)");
}

#[test]
fn what_is_pinned_leaves_room_and_what_is_parked_has_a_place() {
    let with = |set: &[&str]| settle("", &[], set);
    with(&["kv.pinned_percent=85"]).and_then(Loaded::checked).expect("it is good");
    check_refused(
        with(&["kv.pinned_percent=86"]),
        "kv.pinned_percent: 86 leaves too little to prompts: at most 90 with kv.reserve_percent (flag --set)",
    );
    with(&["kv.park_idle_ms=1", "host.bytes=1GiB"]).and_then(Loaded::checked).expect("it is good");
    with(&["kv.park_idle_ms=1", "disk.folders=/disk"]).and_then(Loaded::checked).expect("it is good");
    check_refused(
        with(&["kv.park_idle_ms=1"]),
        "kv.park_idle_ms: there is nowhere to park: it wants host.bytes or disk.folders (flag --set)",
    );
}

#[test]
fn kv_travels_encoded_where_there_is_an_encoding_and_the_lane_for_it() {
    let with = |set: &[&str]| settle("", &[], set).and_then(Loaded::checked);
    assert_eq!(with(&["kv.encoding=int8"]).expect("it is good").transport.encode_kv, EncodeKv::Off);
    let encodes = with(&["kv.encoding=int8", "transport.encode_kv=tcp"]).expect("it is good");
    assert_eq!(encodes.transport.encode_kv, EncodeKv::Tcp);
    with(&["kv.encoding=fp8", "transport.encode_kv=tcp", "transport.lanes=shm,tcp"]).expect("it is good");
    check_refused(
        settle("", &[], &["transport.encode_kv=tcp"]),
        "transport.encode_kv: there is no encoding to read KV in: it wants kv.encoding = \"int8\" or \"fp8\" (flag --set)",
    );
    check_refused(
        settle("", &[], &["kv.encoding=int8", "transport.encode_kv=tcp", "transport.lanes=shm"]),
        "transport.encode_kv: it is about the lane tcp, which transport.lanes does not allow (flag --set)",
    );
    check_refused(
        settle("", &[], &["transport.encode_kv=rdma"]),
        "flag --set: transport.encode_kv: unknown variant `rdma`, expected `off` or `tcp`",
    );
}

#[test]
fn an_encoding_is_named_and_wants_numbers_to_encode() {
    let with = |set: &[&str]| settle("", &[], set).and_then(Loaded::checked);
    assert_eq!(with(&[]).expect("it is good").kv.encoding, Encoding::Exact);
    assert_eq!(with(&["kv.encoding=fp8"]).expect("it is good").kv.encoding, Encoding::Fp8);
    with(&["kv.encoding=exact", "engine.device=sim"]).expect("it is good");
    check_refused(
        settle("", &[], &["kv.encoding=int8", "engine.device=sim"]),
        "kv.encoding: the KV of the device sim is tags, which int8 would not give back: only exact does (flag --set)",
    );
    check_refused(
        settle("", &[], &["kv.encoding=int4"]),
        "flag --set: kv.encoding: unknown variant `int4`, expected one of `exact`, `int8`, `fp8`",
    );
}

#[test]
fn the_object_tier_is_kept_within_bounds() {
    let with = |set: &str| {
        let whole = "[object]\nendpoint = \"http://minio\"\nbucket = \"kv\"\nkey_id = \"a\"\nsecret = \"b\"\n";
        settle(whole, &[], &[set])
    };
    for good in ["", "team", "team/kv", "a.b/..c"] {
        with(&format!("object.prefix={good}")).and_then(Loaded::checked).expect("it is good");
    }
    for wrong in ["/", "/a", "a/", "a//b", "./a", "a/..", "a\tb"] {
        let expect = "is not names with slashes between them, such as baton or team/kv (flag --set)";
        check_refused(with(&format!("object.prefix={wrong}")), &format!("object.prefix: {wrong:?} {expect}"));
    }
    for (set, what) in [
        ("requests=0", "0 is not 1 to 1024"),
        ("requests=1025", "1025 is not 1 to 1024"),
        ("known_max=16777217", "16777217 is not 1 to 16777216"),
        ("list_s=9223372036854775807", "9223372036854775807 is not 1 to 604800"),
    ] {
        let (key, _) = set.split_once('=').expect("a setting");
        check_refused(with(&format!("object.{set}")), &format!("object.{key}: {what} (flag --set)"));
    }
    // What it says is not repeated.
    for wrong in ["http://me:hush@minio", "me:hush@minio"] {
        let expect = "object.endpoint: it names a user; object.key_id and object.secret say who asks (flag --set)";
        check_refused(with(&format!("object.endpoint={wrong}")), expect);
    }
}

#[test]
fn values_are_typed() {
    let file = "[model]\nkv_dtype = \"f32\"\n[kv]\ndevice_bytes = 4096\n[transport]\nrequire = \"local\"\n";
    let config = settle(file, &[("BATON_MODEL__NAME", "7")], &["engine.device=cpu"]).and_then(Loaded::checked);
    let config = config.expect("it is good");
    assert_eq!(config.model.kv_dtype, KvDtype::F32);
    assert_eq!(config.model.kv_dtype.resolve(Dtype::Bf16), Dtype::F32);
    assert_eq!(KvDtype::Auto.resolve(Dtype::Bf16), Dtype::Bf16);
    assert_eq!(config.kv.device_bytes, BytesOrAuto::Bytes(Bytes(4096)));
    assert_eq!(config.transport.require.0, Some(Lane::Local));
    assert_eq!(config.model.name, "7");
    assert_eq!(config.engine.device, Device::Cpu);
}

#[test]
fn unknown_keys_are_refused_with_the_nearest() {
    check_refused(
        settle("[router]\nlisten_on = \"x\"\n", &[], &[]),
        "file baton.toml: there is no setting \"router.listen_on\"; did you mean router.listen?",
    );
    check_refused(
        settle("", &[("BATON_SERVE_PREFILL", "2")], &[]),
        "environment BATON_SERVE_PREFILL: there is no setting \"serve_prefill\"; did you mean serve.prefill?",
    );
    check_refused(
        settle("", &[], &["threads=2"]),
        "flag --set: there is no setting \"threads\"; did you mean engine.threads?",
    );
    check_refused(
        settle("[zzz]\n", &[], &[]),
        "file baton.toml: there is no setting \"zzz\"; `baton config show` lists all",
    );
}

#[test]
fn wrong_values_name_the_key_and_the_layer() {
    check_refused(
        settle("", &[("BATON_SERVE__PREFILL", "two")], &[]),
        "environment BATON_SERVE__PREFILL: serve.prefill: \"two\" is not a whole number",
    );
    check_refused(
        settle("[serve]\nprefill = \"two\"\n", &[], &[]),
        "file baton.toml: serve.prefill: invalid type: string \"two\", expected usize",
    );
    check_refused(
        settle("", &[], &["engine.device=tpu"]),
        "flag --set: engine.device: unknown variant `tpu`, expected one of `cpu`, `sim`, `cuda`",
    );
    check_refused(
        settle("", &[], &["engine.kernels=fast"]),
        "engine.kernels: fast is for engine.device=cuda: no other has it (flag --set)",
    );
    check_refused(
        settle("", &[], &["kv.device_bytes=lots"]),
        "flag --set: kv.device_bytes: \"lots\" is not a number of bytes; write it as 512MiB, 4GiB or 4096 (units: B, KB, \
         KiB, MB, MiB, GB, GiB, TB, TiB); or as auto",
    );
    check_refused(
        settle("", &[], &["serve.prefill"]),
        "--set \"serve.prefill\": write it as KEY=VALUE, for example --set engine.chunk_tokens=256",
    );
    let error = settle("[serve\n", &[], &[]).expect_err("it is no TOML").to_string();
    assert!(error.starts_with("baton.toml is not TOML: "), "{error}");
}

#[test]
fn what_this_build_lacks_is_said() {
    check_refused(
        settle("", &[], &["sim.preset=h100"]),
        "sim.preset: \"h100\" is not one of h100-8b, h100-70b, h200-8b, h200-70b (flag --set)",
    );
}

#[test]
fn all_problems_are_told_at_once() {
    let settings = ["serve.decode=0", "engine.block_tokens=7", "router.listen=8000", "engine.step_tokens_max=100"];
    check_refused(
        settle("", &[], &settings),
        "serve.decode: at least one decode worker is needed, prefill workers are optional (flag --set)\n\
         router.listen: \"8000\" is not HOST:PORT, such as 127.0.0.1:8000 (flag --set)\n\
         engine.step_tokens_max: 100 is too small: a step must hold running_max + chunk_tokens = 576 tokens, or \
         decoding could starve prompts (flag --set)\n\
         engine.chunk_tokens: 512 is not a multiple of engine.block_tokens = 7 (default)",
    );
}

#[test]
fn what_is_said_of_the_network_has_bounds() {
    let refused = [
        ("transport.rdma_service_level=16", "transport.rdma_service_level: 16 is above 15 (flag --set)"),
        ("transport.rdma_flow_label=1048576", "transport.rdma_flow_label: 1048576 is above 1048575 (flag --set)"),
        ("transport.rdma_timeout=21", "transport.rdma_timeout: 21 is above 20 (flag --set)"),
        ("transport.rdma_timeout=0", "transport.rdma_timeout: it must be at least 1 (flag --set)"),
        ("transport.rdma_retries=8", "transport.rdma_retries: 8 is above 7 (flag --set)"),
    ];
    for (set, reason) in refused {
        check_refused(settle("", &[], &[set]), reason);
    }
    let reason = "flag --set: transport.expect_gbytes_per_s: \"x\" is not a number of gigabytes, such as 12.5, of at most 100000";
    check_refused(settle("", &[], &["transport.expect_gbytes_per_s=x"]), reason);
    for file in ["expect_gbytes_per_s = 12.5", "expect_gbytes_per_s = \"12.5\""] {
        let config = settle(&format!("[transport]\n{file}\n"), &[], &[]).and_then(Loaded::checked);
        assert_eq!(config.expect("it is good").transport.expect_gbytes_per_s.0, 12.5);
    }
    let all = ["transport.rdma_traffic_class=255", "transport.rdma_service_level=15", "transport.rdma_timeout=20"];
    assert!(settle("", &[], &all).and_then(Loaded::checked).is_ok());
}

#[test]
fn addresses_of_workers_are_checked() {
    check_refused(settle("", &[], &["cluster.workers=a:1,b"]), "cluster.workers: \"b\" is not HOST:PORT (flag --set)");
    let config = settle("[cluster]\nworkers = \"a:1, b:2\"\n", &[], &[]).and_then(Loaded::checked);
    assert_eq!(config.expect("it is good").cluster.workers, "a:1, b:2");
}

#[test]
fn the_secret_is_not_shown() {
    let secret = "hush, this is a test";
    let loaded = settle("", &[("BATON_CLUSTER__SECRET", secret)], &[]).expect("it resolves");
    let entry = loaded.entries().find(|entry| entry.key == "cluster.secret").expect("the key is there");
    assert_eq!((entry.value.as_str(), entry.default.as_str()), ("(hidden)", "\"\""));
    let config = loaded.checked().expect("it is good");
    assert_eq!(config.cluster.secret.0, secret);
    assert!(!format!("{config:?}").contains("hush"));
}

#[test]
fn keys_of_the_api_are_not_shown_and_refused_by_set() {
    let loaded = settle("", &[("BATON_ROUTER__API_KEYS", "hush,another")], &[]).expect("it resolves");
    let entry = loaded.entries().find(|entry| entry.key == "router.api_keys").expect("the key is there");
    assert_eq!(entry.value, "(hidden)");
    assert!(!format!("{:?}", loaded.checked().expect("it is good")).contains("hush"));
    check_refused(
        settle("", &[], &["router.api_keys=hush"]),
        "flag --set: router.api_keys: others of this machine can read flags: say it in the environment \
         (BATON_ROUTER__API_KEYS) or the file",
    );
    check_refused(
        settle("", &[("BATON_ROUTER__API_KEYS", "a, b")], &[]),
        "router.api_keys: keys are visible ASCII characters, separated by commas without spaces (environment \
         BATON_ROUTER__API_KEYS)",
    );
}

#[test]
fn parsers_are_named_or_a_pair_of_markers() {
    for good in ["tool_parser=hermes", "tool_parser=none", "reasoning_parser=think", "reasoning_parser=<a> </a>"] {
        settle("", &[], &[&format!("router.{good}")]).and_then(Loaded::checked).expect("it is good");
    }
    check_refused(
        settle("", &[], &["router.tool_parser=hermse"]),
        "router.tool_parser: no tool parser is named \"hermse\"; there are auto, none, harmony, qwen3_coder, hermes, \
         mistral, deepseek, pythonic, llama3_json, json (flag --set)",
    );
}

#[test]
fn origins_are_those_that_browsers_name() {
    for good in ["", "*", "https://chat.example.org", "http://localhost:3000, app://x"] {
        settle("", &[], &[&format!("router.cors_origins={good}")]).and_then(Loaded::checked).expect("it is good");
    }
    check_refused(
        settle("", &[], &["router.cors_origins=https://a.org/"]),
        "router.cors_origins: \"https://a.org/\" is no origin: write `*`, or such as https://chat.example.org, without a \
         path (flag --set)",
    );
}

#[test]
fn responses_are_in_a_folder_or_below_a_prefix_of_a_bucket() {
    let secret = [("BATON_OBJECT__SECRET", "secret")];
    let object = ["object.endpoint=https://s3.example.org", "object.bucket=kv", "object.key_id=id"];
    let settle_at = |place: &str| {
        let place = format!("router.responses.store={place}");
        settle("", &secret, &[&object[..], &[&place]].concat()).and_then(Loaded::checked)
    };
    for good in ["", "auto", "/var/lib/responses", "s3://baton/responses", "s3://baton/a/b"] {
        settle_at(good).expect("it is good");
    }
    for wrong in ["s3://", "s3://baton", "s3://baton/", "s3:///a", "s3://baton/../kv"] {
        check_refused(
            settle("", &secret, &[&object[..], &[&format!("router.responses.store={wrong}")]].concat()),
            &format!(
                "router.responses.store: {wrong:?} is not s3://BUCKET/PREFIX, such as s3://baton/responses (flag --set)"
            ),
        );
    }
    check_refused(
        settle("", &[], &["router.responses.store=s3://baton/responses"]),
        "router.responses.store: s3://BUCKET/PREFIX is in the store of object.endpoint, which is not set (flag --set)",
    );
}

#[test]
fn a_secret_is_long_comes_once_and_not_by_a_flag() {
    let (long, file) = (("BATON_CLUSTER__SECRET", "of sixteen bytes"), ("BATON_CLUSTER__SECRET_FILE", "/run/secret"));
    let also = ("BATON_CLUSTER__ACCEPT_SECRET", "the one of before");
    for good in [&[long][..], &[file], &[long, also], &[file, also]] {
        settle("", good, &[]).and_then(Loaded::checked).expect("it is good");
    }
    check_refused(
        settle("", &[("BATON_CLUSTER__SECRET", "fifteen letters")], &[]),
        "cluster.secret: it has 15 bytes, which others can find by trying: at least 16, such as `openssl rand -hex 32` makes \
         (environment BATON_CLUSTER__SECRET)",
    );
    check_refused(
        settle("", &[long, file], &[]),
        "cluster.secret_file: cluster.secret is set as well: set one of the two (environment BATON_CLUSTER__SECRET_FILE)",
    );
    check_refused(
        settle("", &[also], &[]),
        "cluster.accept_secret: there is no cluster.secret beside it, by which this process proves itself (environment \
         BATON_CLUSTER__ACCEPT_SECRET)",
    );
    let by_flag = "others of this machine can read flags: say it in the environment";
    check_refused(
        settle("", &[], &["cluster.secret=of sixteen bytes"]),
        &format!(
            "flag --set: cluster.secret: {by_flag} (BATON_CLUSTER__SECRET) or the file, or say cluster.secret_file"
        ),
    );
    check_refused(
        settle("", &[], &["object.token=a"]),
        &format!("flag --set: object.token: {by_flag} (BATON_OBJECT__TOKEN) or the file"),
    );
}

#[test]
fn what_is_true_or_false_is_said_so() {
    let with = |set: &str| settle("", &[], &[set]).and_then(Loaded::checked);
    assert!(with("cluster.insecure=true").expect("it is good").cluster.insecure);
    assert!(!with("cluster.insecure=false").expect("it is good").cluster.insecure);
    check_refused(
        settle("", &[], &["cluster.insecure=yes"]),
        "flag --set: cluster.insecure: \"yes\" is not true or false",
    );
}

#[test]
fn traces_go_to_an_address_and_are_a_share_of_requests() {
    let with = |set: &[&str]| settle("", &[], set).and_then(Loaded::checked);
    let config = with(&["traces.endpoint=https://collector:4318", "traces.sample=0.25"]).expect("it is good");
    assert_eq!(config.traces.sample, 0.25);
    let config = settle("[traces]\nsample = 0\n", &[], &[]).and_then(Loaded::checked).expect("it is good");
    assert_eq!(config.traces.sample, 0.0);
    check_refused(settle("", &[], &["traces.sample=half"]), "flag --set: traces.sample: \"half\" is not a number");
    check_refused(
        settle("", &[], &["traces.sample=1.5"]),
        "traces.sample: 1.5 is no share of requests: from 0 (none) to 1 (all) (flag --set)",
    );
    check_refused(
        settle("", &[], &["traces.endpoint=collector:4317"]),
        "traces.endpoint: \"collector:4317\" is no address of a collector that takes OTLP over HTTP, such as \
         http://127.0.0.1:4318 (flag --set)",
    );
}

#[test]
fn a_router_has_connections_to_spare_and_room_for_a_body() {
    let with = |set: &[&str]| settle("", &[], set).and_then(Loaded::checked);
    let config = with(&["router.metrics_on_api=false", "router.ops_listen=", "worker.ops_listen=0.0.0.0:9100"]);
    assert!(!config.expect("it is good").router.metrics_on_api);
    let set = |text: &str| settle("", &[], &[text]);
    check_refused(set("router.metrics_on_api=no"), "flag --set: router.metrics_on_api: \"no\" is not true or false");
    check_refused(
        set("admin.hosts=http://baton.example"),
        "admin.hosts: \"http://baton.example\" has more than names, such as console.example.com, separated by commas (flag \
         --set)",
    );
    check_refused(
        set("worker.ops_listen=here"),
        "worker.ops_listen: \"here\" is not HOST:PORT, such as 127.0.0.1:8001, nor auto, nor empty (flag --set)",
    );
    check_refused(
        set("router.connections_max=1024"),
        "router.connections_max: 1024 is not above router.requests_max = 1024: who asks whether the service is ready needs a \
         connection, too (flag --set)",
    );
    check_refused(
        set("router.bodies_bytes_max=1MiB"),
        "router.bodies_bytes_max: 1MiB is less than router.body_bytes_max = 16MiB: no body of that size would be taken (flag \
         --set)",
    );
}

#[test]
fn a_name_fits_into_what_a_router_reads_of_a_stranger() {
    let with = |bytes: usize| settle("", &[], &[&format!("worker.name={}", "w".repeat(bytes))]);
    with(255).and_then(Loaded::checked).expect("it is good");
    check_refused(with(256), "worker.name: it has 256 bytes: at most 255 (flag --set)");
}

#[test]
fn sections_lie_within_sections() {
    let file = "[discovery]\nkind = \"etcd\"\n[discovery.etcd]\nendpoints = \"https://a:1\"\n[discovery.etcd.tls]\nca = \"ca.pem\"\n";
    let loaded = settle(file, &[("BATON_DISCOVERY__ETCD__PREFIX", "/blue")], &["discovery.etcd.lease_s=5"]);
    let loaded = loaded.expect("it resolves");
    assert_eq!(origin(&loaded, "discovery.etcd.tls.ca"), "file baton.toml");
    let config = loaded.checked().expect("it is good");
    let etcd = &config.discovery_etcd;
    assert_eq!((etcd.endpoints.as_str(), etcd.prefix.as_str(), etcd.lease_s), ("https://a:1", "/blue", 5));
    assert_eq!(config.discovery_etcd_tls.ca, "ca.pem");
    check_refused(
        settle("[discovery.etcd]\nendpoint = \"x\"\n", &[], &[]),
        "file baton.toml: there is no setting \"discovery.etcd.endpoint\"; did you mean discovery.etcd.endpoints?",
    );
    check_refused(
        settle("[discovery]\netcd = 3\n", &[], &[]),
        "file baton.toml: there is no setting \"discovery.etcd\"; did you mean discovery.etcd.tls.ca?",
    );
}

#[test]
fn a_directory_of_workers_is_wholly_described() {
    let etcd = |more: &[&str]| {
        let base = ["discovery.kind=etcd", "discovery.etcd.endpoints=http://a:1, http://b:2"];
        settle("", &[], &[&base, more].concat())
    };
    etcd(&[]).and_then(Loaded::checked).expect("it is good");
    for (setting, error) in [
        (
            "discovery.etcd.endpoints=",
            "discovery.etcd.endpoints: discovery.kind = \"etcd\" wants it, such as http://127.0.0.1:2379 (flag --set)",
        ),
        (
            "discovery.etcd.endpoints=a:1",
            "discovery.etcd.endpoints: \"a:1\" is not http://HOST:PORT or https://HOST:PORT (flag --set)",
        ),
        (
            "discovery.etcd.endpoints=http://u:p@a:1",
            "discovery.etcd.endpoints: one names a user; discovery.etcd.username and discovery.etcd.password say who asks (flag --set)",
        ),
        (
            "discovery.etcd.prefix=baton/",
            "discovery.etcd.prefix: \"baton/\" is not a slash and names with slashes between them, such as /baton or /baton/blue (flag --set)",
        ),
        ("discovery.etcd.lease_s=1", "discovery.etcd.lease_s: 1 is not 2 to 600 (flag --set)"),
        (
            "discovery.etcd.username=u",
            "discovery.etcd.password: discovery.etcd.username wants it, or discovery.etcd.password_file, too (default)",
        ),
        (
            "discovery.etcd.password_file=f",
            "discovery.etcd.username: the password is of nobody: discovery.etcd.password wants it too (default)",
        ),
        (
            "discovery.etcd.tls.ca=f",
            "discovery.etcd.tls.ca: no endpoint of discovery.etcd.endpoints begins with https:// (flag --set)",
        ),
        (
            "discovery.etcd.tls.key=f",
            "discovery.etcd.tls.cert: a certificate needs its key, and a key its certificate (default)",
        ),
        (
            "cluster.workers=a:1",
            "cluster.workers: discovery.kind says that workers are found otherwise: set one of the two (flag --set)",
        ),
        (
            "worker.listen=0.0.0.0:1",
            "worker.listen: routers cannot dial 0.0.0.0:1: set worker.advertise to what they can (flag --set)",
        ),
        (
            "worker.advertise=a:b",
            "worker.advertise: \"a:b\" is not HOST or HOST:PORT, such as 10.0.0.1 or decode-a:9001 (flag --set)",
        ),
    ] {
        check_refused(etcd(&[setting]), error);
    }
    for advertise in ["10.0.0.1", "10.0.0.1:9", "decode-a", "decode-a:9", "::1", "[::1]:9"] {
        let advertise = format!("worker.advertise={advertise}");
        etcd(&["worker.listen=0.0.0.0:1", &advertise]).and_then(Loaded::checked).expect(&advertise);
    }
    check_refused(
        etcd(&["discovery.etcd.password=p"]),
        "flag --set: discovery.etcd.password: others of this machine can read flags: say it in the environment (BATON_DISCOVERY__ETCD__PASSWORD) or the file, or say discovery.etcd.password_file",
    );
}

#[test]
fn the_files_of_tls_belong_together() {
    let tls = |more: &[&str]| settle("", &[], more);
    let pair = ["tls.cert=c.pem", "tls.key=c.key"];
    for good in [&[][..], &pair, &["tls.ca=ca.pem"], &[&pair[..], &["tls.client_ca=ca.pem"]].concat()] {
        tls(good).and_then(Loaded::checked).expect("it is good");
    }
    for (setting, error) in [
        ("tls.cert=f", "tls.key: a certificate needs its key, and a key its certificate (default)"),
        ("tls.key=f", "tls.cert: a certificate needs its key, and a key its certificate (default)"),
        (
            "tls.client_ca=f",
            "tls.client_ca: certificates of clients are requested by TLS only: it needs tls.cert and tls.key (flag --set)",
        ),
        ("tls.server_name=a", "tls.server_name: no certificates of workers are checked: it needs tls.ca (flag --set)"),
    ] {
        check_refused(tls(&[setting]), error);
    }
}

#[test]
fn kubernetes_is_found_from_a_pod_or_by_its_address() {
    let kind = "discovery.kind=kubernetes";
    let pod = [("KUBERNETES_SERVICE_HOST", "10.96.0.1"), ("KUBERNETES_SERVICE_PORT", "6443")];
    // A pod's address is dialed, whatever its worker listens on.
    let loaded = settle("", &pod, &[kind, "worker.listen=0.0.0.0:9001"]).expect("it resolves");
    assert_eq!(origin(&loaded, "discovery.kubernetes.service_host"), "environment KUBERNETES_SERVICE_HOST");
    let config = loaded.checked().expect("it is good");
    let kubernetes = &config.discovery_kubernetes;
    assert_eq!((kubernetes.service_host.as_str(), kubernetes.service_port), ("10.96.0.1", 6443));
    let outside = |more: &[&str]| {
        let base = [kind, "discovery.kubernetes.server=http://127.0.0.1:8001", "discovery.kubernetes.namespace=baton"];
        settle("", &[], &[&base, more].concat())
    };
    outside(&[]).and_then(Loaded::checked).expect("it is good");
    check_refused(
        settle("", &[], &[kind]),
        "discovery.kubernetes.server: discovery.kind = \"kubernetes\" wants it, since this process is not in a pod (KUBERNETES_SERVICE_HOST is not set) (default)",
    );
    for (setting, error) in [
        (
            "discovery.kubernetes.server=https://a/b:1",
            "discovery.kubernetes.server: \"https://a/b:1\" is not http://HOST:PORT or https://HOST:PORT (flag --set)",
        ),
        (
            "discovery.kubernetes.namespace=",
            "discovery.kubernetes.namespace: discovery.kubernetes.server wants it, because this process is in no pod (flag --set)",
        ),
        (
            "discovery.kubernetes.selector=",
            "discovery.kubernetes.selector: without one, all pods of the namespace would be workers (flag --set)",
        ),
        (
            "cluster.workers=a:1",
            "cluster.workers: discovery.kind says that workers are found otherwise: set one of the two (flag --set)",
        ),
    ] {
        check_refused(outside(&[setting]), error);
    }
    check_refused(
        outside(&["discovery.kubernetes.node_labels=true", "discovery.kubernetes.rack_label="]),
        "discovery.kubernetes.rack_label: discovery.kubernetes.node_labels wants the name of a label, which nodes need not have (flag --set)",
    );
}
