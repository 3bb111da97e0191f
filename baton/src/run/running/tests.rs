use super::*;
use crate::config::KEYS;
use worker::Inbox;

fn set(settings: &[&str]) -> Flags {
    Flags { set: settings.iter().map(|&setting| setting.to_owned()).collect(), ..Flags::default() }
}

fn loaded(settings: &[&str]) -> Loaded {
    load(&set(settings)).expect("it can be read")
}

fn running(part: Part, settings: &[&str]) -> Arc<Running> {
    Running::new(part, set(settings), loaded(settings))
}

fn values(assignments: &[&str]) -> BTreeMap<String, String> {
    let pair = |text: &&str| text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    assignments.iter().map(|text| pair(text).expect("an assignment")).collect()
}

/// Changes by a call, and returns what differs.
fn call(running: &Running, assignments: &[&str]) -> Result<String, String> {
    running.take_called(&values(assignments)).map(|changed| list(&changed)).map_err(|error| with_causes(&error))
}

/// Takes up a configuration, and returns what differs.
fn configure(running: &Running, settings: &[&str]) -> Result<String, String> {
    running.take_configured(loaded(settings)).map(|changed| list(&changed)).map_err(|error| with_causes(&error))
}

fn origin(running: &Running, name: &str) -> String {
    running.list().into_iter().find(|setting| setting.name == name).expect("it is listed").from
}

/// Another value of each setting that can change, but for the log, which the process of this test does not keep.
const OTHER: [&str; 15] = [
    "router.prompt_tokens_max=7",
    "router.prompts_max=2",
    "router.choices_max=3",
    "router.requests_max=40",
    "router.deadline_s=5",
    "admin.explained_max=9",
    "cluster.workers=127.0.0.1:1,127.0.0.1:2",
    "engine.chunk_tokens=256",
    "engine.running_max=32",
    "engine.waiting_max=8",
    "placement.handoff=never",
    "placement.fetch=always",
    "placement.attempts_max=2",
    "placement.index_blocks_max=50",
    "traces.sample=0.5",
];

/// A model with windows started with these.
fn started(config: &Config) -> StartLimits {
    let scheduler = SchedulerConfig {
        step_tokens_max: config.engine.step_tokens_max,
        chunk_tokens: config.engine.chunk_tokens,
        running_max: config.engine.running_max,
        waiting_max: config.engine.waiting_max,
        block_tokens: 16,
        samples_max: config.engine.running_max + u32::from(config.router.choices_max),
    };
    StartLimits { scheduler, chunk_tokens_max: config.engine.chunk_tokens }
}

/// A process with a worker that the test plays.
fn with_worker(part: Part) -> (Arc<Running>, Inbox) {
    let running = running(part, &["cluster.workers=127.0.0.1:1"]);
    let inbox = worker::inbox();
    running.add_worker(inbox.input(), started(&running.config()));
    (running, inbox)
}

#[test]
fn each_setting_that_can_change_reaches_what_uses_it() {
    let (running, _inbox) = with_worker(Part::Router);
    let (limits, addresses) = (running.limits(), running.addresses());
    let changed = running.take_configured(loaded(&OTHER)).expect("it is taken");
    assert_eq!(list(&changed[..2]), "router.prompt_tokens_max (0 -> 7), router.prompts_max (64 -> 2)");
    let keys: Vec<_> = changed.iter().map(|changed| changed.key).chain(["log.level"]).collect();
    assert_eq!(keys, CHANGEABLE.map(|setting| setting.key));
    let wanted = RouterLimits {
        prompt_tokens_max: 7,
        prompts_max: 2,
        choices_max: 3,
        deadline: Duration::from_secs(5),
        explained_max: 9,
        placement: PlacementLimits {
            attempts_max: 2,
            requests_max: 40,
            index_blocks_max: 50,
            handoff: HandoffPolicy::Never,
            fetch: FetchPolicy::Always,
        },
    };
    assert_eq!(*limits.borrow(), wanted);
    assert_eq!(*addresses.borrow(), StaticList::parse("127.0.0.1:1,127.0.0.1:2").expect("a list"));
    let state = running.state();
    let of_worker = state.workers[0].limits(state.now.config()).expect("the device has room");
    let SchedulerConfig { chunk_tokens, running_max, waiting_max, .. } = of_worker;
    assert_eq!((chunk_tokens, running_max, waiting_max), (256, 32, 8));
    drop(state);
    assert_eq!(running.take_configured(loaded(&OTHER)).expect("it is taken"), []);
    assert!(CHANGEABLE.iter().all(|setting| KEYS.iter().any(|(key, _)| *key == setting.key)));
}

#[test]
fn a_configuration_is_refused_as_a_whole() {
    let running = running(Part::Router, &["cluster.workers=127.0.0.1:1"]);
    let before = *running.limits().borrow();
    let refused = |more: &[&str]| configure(&running, &[&OTHER[..], more].concat()).expect_err("it is refused");
    let text = refused(&["engine.threads=3", "kv.reserve_percent=9"]);
    assert!(text.ends_with("a restart: engine.threads (0 -> 3), kv.reserve_percent (5 -> 9)"), "{text}");
    for (wrong, named) in [
        ("router.connections_max=1", "router.connections_max"),
        ("log.level=loud", "loud"),
        // The process of this test keeps no log.
        ("log.level=warn", "no log"),
        ("cluster.workers=", "cluster.workers is empty"),
        ("cluster.workers=10.0.0.1:1", "cluster.workers"),
    ] {
        let text = refused(&[wrong]);
        assert!(text.contains(named), "{wrong}: {text}");
    }
    assert_eq!((*running.limits().borrow(), running.config().log.level.as_str()), (before, "info"));
}

#[test]
fn a_call_changes_all_or_nothing_and_says_why() {
    let (running, _inbox) = with_worker(Part::All);
    let before = running.list();
    for (wrong, code, said) in [
        ("router.request_max=1", "NotFound", "did you mean router.requests_max?"),
        ("router.requests_max=many", "InvalidArgument", "\"many\" is not a whole number"),
        ("router.requests_max=0", "InvalidArgument", "router.requests_max: 0 is too small: at least 1 (admin call)"),
        ("router.requests_max=9999", "InvalidArgument", "4096 is not above router.requests_max = 9999"),
        ("placement.fetch=maybe", "InvalidArgument", "expected one of `auto`, `always`, `never`"),
        ("engine.running_max=100", "InvalidArgument", "engine.running_max: 100 is above 80"),
        ("engine.chunk_tokens=24", "InvalidArgument", "24 is not a multiple of a block's 16 tokens"),
        ("engine.chunk_tokens=2048", "InvalidArgument", "engine.step_tokens_max"),
        ("engine.chunk_tokens=528", "InvalidArgument", "528 is above 512, for which the memory of the model's windows"),
        ("kv.device_bytes=1GiB", "FailedPrecondition", "kv.device_bytes cannot change without a restart"),
        ("cluster.secret=hush hush hush hush", "FailedPrecondition", "cluster.secret cannot change"),
        ("cluster.workers=a:1", "FailedPrecondition", "cluster.workers is of routers whose workers"),
    ] {
        let error = running.change(&values(&["router.deadline_s=5", wrong])).expect_err(wrong);
        assert_eq!((format!("{:?}", error.code()).as_str(), error.message().contains(said)), (code, true), "{error}");
        assert!(!error.message().contains("hush"), "{error}");
    }
    assert_eq!(running.list(), before);
    let worker = with_worker(Part::Worker).0;
    let error = call(&worker, &["router.requests_max=1"]).expect_err("a worker has none");
    assert!(error.contains("of routers, and this process is none of them"), "{error}");
    let names: Vec<_> = worker.list().into_iter().map(|setting| setting.name).collect();
    assert_eq!(names, ["engine.chunk_tokens", "engine.running_max", "engine.waiting_max", "log.level"]);
}

#[test]
fn what_is_given_as_toml_or_as_a_flag_is_the_same() {
    let running = running(Part::All, &[]);
    for (given, wanted) in [
        ("placement.fetch=never", "placement.fetch (\"auto\" -> \"never\")"),
        ("placement.fetch=\"always\"", "placement.fetch (\"never\" -> \"always\")"),
        ("router.requests_max=1_000", "router.requests_max (1024 -> 1000)"),
        ("traces.sample=0", "traces.sample (1.0 -> 0.0)"),
        ("traces.sample=0.0", ""),
    ] {
        assert_eq!(call(&running, &[given]).as_deref(), Ok(wanted));
    }
}

/// What wins: a call, until the configuration has another value than before.
#[test]
fn a_call_holds_until_the_configuration_changes_that_setting() {
    let (file, key) = ("router.requests_max=100", "router.requests_max");
    let running = running(Part::All, &[file]);
    assert_eq!(origin(&running, key), "flag --set");
    assert_eq!(call(&running, &["router.requests_max=7"]).as_deref(), Ok("router.requests_max (100 -> 7)"));
    assert_eq!(origin(&running, key), "admin call");
    // Another setting changes: the call stays.
    let changed = configure(&running, &[file, "router.deadline_s=5"]);
    assert_eq!(changed.as_deref(), Ok("router.deadline_s (600 -> 5)"));
    assert_eq!((running.config().router.requests_max, origin(&running, key).as_str()), (7, "admin call"));
    // This one does: the configuration wins.
    let changed = configure(&running, &["router.requests_max=200", "router.deadline_s=5"]);
    assert_eq!(changed.as_deref(), Ok("router.requests_max (7 -> 200)"));
    assert_eq!(origin(&running, key), "flag --set");
    // The undo of a call leaves no trace.
    call(&running, &["router.requests_max=7"]).expect("it is taken");
    call(&running, &["router.requests_max=200"]).expect("it is taken");
    assert_eq!(origin(&running, key), "flag --set");
    // A call that a configuration does not go with is named as the cause.
    call(&running, &["router.choices_max=60"]).expect("it is taken");
    let refused = configure(&running, &["router.requests_max=200", "router.deadline_s=5", "engine.running_max=50"]);
    let refused = refused.expect_err("a prompt would have more choices than may run");
    assert!(refused.contains("(admin call)"), "{refused}");
}

#[test]
fn a_worker_that_started_while_settings_changed_gets_them() {
    let running = running(Part::Worker, &[]);
    let before = started(&running.config());
    call(&running, &["engine.running_max=32"]).expect("it is taken");
    let inbox = worker::inbox();
    running.add_worker(inbox.input(), before);
    let state = running.state();
    assert_eq!(state.workers[0].limits(state.now.config()).expect("there is room").running_max, 32);
}
