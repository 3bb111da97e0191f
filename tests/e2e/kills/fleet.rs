//! Roles as processes of their own, which can be killed or stopped at a named step, and started again where they were.

use crate::address::own_address;
use crate::http::{Connection, request};
use crate::metrics::Metrics;
use crate::models::{BUNDLED, binary};
use crate::server::until;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

/// Longer than workers take to publish their metrics.
const PUBLISHED: Duration = Duration::from_millis(300);
/// What all processes are told: to notice within seconds who is gone, and to try often.
const SETTINGS: &[&str] = &[
    "session.heartbeat_ms=100",
    "session.silence_ms=1500",
    "handoff.lease_ms=1000",
    "handoff.wait_ms=5000",
    "handoff.answer_ms=1000",
    "placement.handoff=always",
    "placement.attempts_max=10",
    "router.deadline_s=20",
    "engine.block_tokens=16",
    "engine.chunk_tokens=64",
    "engine.threads=1",
    "kv.device_bytes=64MiB",
    "log.level=info,worker=debug,router=debug,transport=debug",
];

/// Where workers listen for routers.
pub(super) const SESSION_PORT: u16 = 9001;
/// Where they listen for each other.
pub(super) const LANE_PORT: u16 = 9003;
/// Where programs are that need no setting.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Router,
    Prefill,
    Decode,
}

/// What happens to a process at its step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Kill,
    Stop,
}

/// No process is given up because it is silent for a moment, as all of a machine that is busy may be: who is
/// killed is missed at once, for its connections break. Only who stands still has to be found by its silence.
pub(super) const PATIENT: &str = "session.silence_ms=15000";

impl Action {
    /// The setting by which a process that falls so is missed, and no other one is.
    pub(super) fn silence(self) -> &'static str {
        match self {
            Self::Kill => PATIENT,
            Self::Stop => "session.silence_ms=1500",
        }
    }
}

/// A named step: the `count`th message of this kind that passes this place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step(pub(super) &'static str, pub(super) &'static str, pub(super) u32);

/// Where a process is, and what it is told.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) role: Role,
    pub(super) name: String,
    /// Where sessions and peers reach it.
    pub(super) address: Ipv4Addr,
    /// Where it serves HTTP: the API, or a worker's metrics.
    pub(super) http: SocketAddr,
    /// Settings beyond [`SETTINGS`], as `KEY=VALUE`.
    pub(super) settings: Vec<String>,
    /// The network namespace that it is in, if it is in one of its own.
    pub(super) host: Option<String>,
    /// Where others are told to reach it instead: a relay.
    pub(super) via: Option<Ipv4Addr>,
}

/// A process; killed when dropped.
pub(super) struct Process {
    pub(super) seat: Seat,
    child: Child,
    log: Arc<Mutex<String>>,
}

/// Processes that belong together.
pub(super) struct Fleet {
    pub(super) routers: Vec<Process>,
    /// Prefill workers first.
    pub(super) workers: Vec<Process>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(place, kind, count) = self;
        write!(f, "{place}:{kind}:{count}")
    }
}

impl Seat {
    /// A process of this host, at an address of its own.
    pub(super) fn new(role: Role, name: &str, settings: &[String]) -> Self {
        let address = own_address();
        let http = SocketAddr::from((address, 8000));
        Self { role, name: name.to_owned(), address, http, settings: settings.to_vec(), host: None, via: None }
    }

    fn command(&self) -> Command {
        let mut line: Vec<String> = Vec::new();
        if let Some(host) = &self.host {
            line.extend(["ip", "netns", "exec", host].map(str::to_owned));
        }
        line.push(binary().to_owned());
        line.push(["router", "prefill-worker", "decode-worker"][self.role as usize].to_owned());
        let (http, address) = (self.http, self.address);
        let own = match self.role {
            // A host of a test's own may have no loopback for the default of `router.ops_listen`.
            Role::Router => vec![format!("router.listen={http}"), "router.ops_listen=".to_owned()],
            Role::Prefill | Role::Decode => vec![
                format!("worker.name={}", self.name),
                format!("worker.listen={address}:{SESSION_PORT}"),
                format!("worker.ops_listen={http}"),
                format!("transport.listen={address}:{LANE_PORT}"),
                format!("transport.advertise={}", self.via.unwrap_or(address)),
            ],
        };
        let settings = SETTINGS.iter().copied().chain(own.iter().chain(&self.settings).map(String::as_str));
        line.extend(settings.flat_map(|setting| ["--set".to_owned(), setting.to_owned()]));
        let mut command = Command::new(&line[0]);
        // `ip` is found on the path.
        command
            .args(&line[1..])
            .env_clear()
            .env("PATH", PATH)
            .envs([BUNDLED])
            .env("BATON_CLUSTER__SECRET", "of the tests that kill")
            // Of the store, where there is one.
            .envs([("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

impl Process {
    /// Starts it, with a step at which it is killed or stopped.
    pub(super) fn start(seat: Seat, armed: Option<(Step, Action)>) -> Self {
        let mut process = Self { child: spawn(&seat, armed), seat, log: Arc::default() };
        process.attend();
        process
    }

    /// Starts it again, unarmed.
    pub(super) fn restart(&mut self) {
        self.restart_armed(None);
    }

    /// Starts it again.
    pub(super) fn restart_armed(&mut self, armed: Option<(Step, Action)>) {
        self.kill();
        self.child = spawn(&self.seat, armed);
        self.attend();
    }

    /// Copies what it writes, and waits until it has said where it listens.
    fn attend(&mut self) {
        let copy = |log: Box<dyn FnMut(String) + Send>, pipe: Box<dyn Read + Send>| {
            let lines = BufReader::new(pipe).lines();
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(log));
        };
        let (welcome, log) = (Arc::new(Mutex::new(false)), self.log.clone());
        let (said, errors) = (welcome.clone(), log.clone());
        let output = Box::new(self.child.stdout.take().expect("it is piped"));
        copy(Box::new(move |line| *said.lock().expect("nobody panics with it") |= line.starts_with("ready")), output);
        let output = Box::new(self.child.stderr.take().expect("it is piped"));
        copy(Box::new(move |line| *errors.lock().expect("nobody panics with it") += &format!("{line}\n")), output);
        until("the start of a process", || {
            let ended = self.child.try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "{} ended: {}", self.seat.name, self.log());
            welcome.lock().expect("nobody panics with it").then_some(())
        });
    }

    /// Whether what it is armed with has happened.
    pub(super) fn has_fallen(&mut self) -> bool {
        match self.child.try_wait().expect("a child can be waited for") {
            Some(status) => {
                assert_eq!(status.signal(), Some(9), "{} ended by itself: {}", self.seat.name, self.log());
                true
            }
            None => {
                let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
                stat.rsplit(')').next().is_some_and(|fields| fields.trim_start().starts_with('T'))
            }
        }
    }

    /// Sends a signal such as `CONT`.
    pub(super) fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().expect("there is a shell").success(), "{line}");
    }

    /// Ends it as the kernel would.
    pub(super) fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end.
    pub(super) fn ended(&mut self) -> ExitStatus {
        crate::server::ended(&mut self.child)
    }

    /// What its `/metrics` say now. Errors: it is not there, or cannot be reached.
    pub(super) fn metrics(&self) -> io::Result<Metrics> {
        let mut connection = Connection::open(self.seat.http)?;
        connection.send(&request("GET", "/metrics", "text/plain", b""))?;
        Ok(Metrics::parse(connection.answer()?.text()))
    }

    /// A metric of it, over all labels but these.
    pub(super) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.metrics().expect("it serves its metrics").sum(name, labels)
    }

    /// What it wrote to standard error in all its lives.
    pub(super) fn log(&self) -> String {
        self.log.lock().expect("nobody panics with it").clone()
    }

    /// What keeps it from being at rest: blocks that somebody holds, leases, sequences, requests.
    fn unrest(&self) -> Vec<String> {
        let Ok(metrics) = self.metrics() else { return vec!["no metrics".to_owned()] };
        let pools = metrics.pools();
        let mut unrest = metrics.unrest(&pools);
        if self.seat.role != Role::Router && pools.values().sum::<f64>() == 0.0 {
            unrest.push("no pools yet".to_owned());
        }
        unrest
    }
}

impl Fleet {
    /// So many routers and workers. `armed`: which of them falls when, by its name: `router-1`, `prefill-1`,
    /// `decode-1`.
    pub(super) fn start(counts: [usize; 3], settings: &[&str], armed: Option<(&str, Step, Action)>) -> Self {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let seats = |role, what: &str, count| -> Vec<Seat> {
            (1..=count).map(|number| Seat::new(role, &format!("{what}-{number}"), &settings)).collect()
        };
        let [routers, prefill, decode] = counts;
        let workers = [seats(Role::Prefill, "prefill", prefill), seats(Role::Decode, "decode", decode)].concat();
        Self::of(seats(Role::Router, "router", routers), workers, armed)
    }

    /// Processes where these seats say.
    pub(super) fn of(routers: Vec<Seat>, workers: Vec<Seat>, armed: Option<(&str, Step, Action)>) -> Self {
        let reached = |seat: &Seat| format!("{}:{SESSION_PORT}", seat.via.unwrap_or(seat.address));
        let list: Vec<String> = workers.iter().map(reached).collect();
        let list = format!("cluster.workers={}", list.join(","));
        let start = |mut seat: Seat| {
            if seat.role == Role::Router {
                seat.settings.push(list.clone());
            }
            let armed = armed.filter(|(name, ..)| *name == seat.name).map(|(_, step, action)| (step, action));
            Process::start(seat, armed)
        };
        let workers: Vec<Process> = workers.into_iter().map(start).collect();
        let fleet = Self { routers: routers.into_iter().map(start).collect(), workers };
        fleet.complete();
        fleet
    }

    /// Waits until every router has a session with every worker.
    pub(super) fn complete(&self) {
        for router in &self.routers {
            until("a session with every worker", || {
                (router.metrics().ok()?.workers() == self.workers.len()).then_some(())
            });
        }
    }

    /// The process called so.
    pub(super) fn process(&mut self, name: &str) -> &mut Process {
        let all = self.routers.iter_mut().chain(&mut self.workers);
        all.into_iter().find(|process| process.seat.name == name).expect("there is such a process")
    }

    /// Waits until nothing is under way in any process but `besides`.
    pub(super) fn at_rest(&self, besides: &str) {
        // What was published before says nothing.
        sleep(PUBLISHED);
        let mut unrest = Vec::new();
        let all = || self.routers.iter().chain(&self.workers).filter(|process| process.seat.name != besides);
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("rest", || {
                unrest = all().map(|process| (&process.seat.name, process.unrest())).collect();
                unrest.iter().all(|(_, found)| found.is_empty()).then_some(())
            });
        }));
        assert!(found.is_ok(), "not at rest: {unrest:?}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("log of {} at {}:\n{}", self.seat.name, self.seat.address, self.log());
        }
    }
}

fn spawn(seat: &Seat, armed: Option<(Step, Action)>) -> Child {
    let mut command = seat.command();
    if let Some((step, action)) = armed {
        command.env("FAILPOINT", format!("{step}:{}", ["kill", "stop"][action as usize]));
    }
    command.spawn().expect("the binary runs")
}
