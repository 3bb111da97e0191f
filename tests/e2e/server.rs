//! A `baton serve` process.

use crate::http::{Answer, Connection, post, request};
use crate::metrics::{Metrics, Pool};
use crate::models::BATON;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

/// How long a test waits for what must happen. Nothing that works takes nearly as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How often it looks.
const GLANCE: Duration = Duration::from_millis(20);
/// Longer than workers take to publish their metrics.
const PUBLISHED: Duration = Duration::from_millis(300);

/// A running service; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<String>>,
    /// Blocks of every KV pool when the service began.
    pools: BTreeMap<Pool, f64>,
}

/// Looks until `look` sees what it is for. Panics with `what` if that does not happen.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..PATIENCE.as_millis() / GLANCE.as_millis() {
        if let Some(seen) = look() {
            return seen;
        }
        sleep(GLANCE);
    }
    panic!("{what} did not happen");
}

/// The end of a process that must end by itself; one that does not is killed.
pub(crate) fn ended(child: &mut Child) -> ExitStatus {
    for _ in 0..PATIENCE.as_millis() / GLANCE.as_millis() {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status;
        }
        sleep(GLANCE);
    }
    child.kill().expect("a child can be killed");
    panic!("the process did not end");
}

/// A command of the binary that nothing of the tester's environment reaches.
pub(crate) fn baton(arguments: &[&str]) -> Command {
    let mut command = Command::new(BATON);
    command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Server {
    /// `baton serve` on a free port, with these flags.
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_with(flags, &[])
    }

    /// The same, with settings in the environment.
    pub(crate) fn start_with(flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = baton(&["serve", "--listen", "127.0.0.1:0"]);
        let mut child = command.args(flags).envs(environment.iter().copied()).spawn().expect("the binary runs");
        let log = Arc::new(Mutex::new(String::new()));
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let copy = log.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                *copy.lock().expect("nobody panics with it") += &format!("{line}\n");
            }
        });
        let mut welcome = String::new();
        let read = BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut welcome);
        let address = welcome.trim_end().rsplit("http://").next().and_then(|address| address.parse().ok());
        let Some(address) = address else {
            let status = ended(&mut child);
            panic!("no address in {welcome:?} ({read:?}), {status}: {}", log.lock().expect("nobody panics with it"));
        };
        let mut server = Self { child, address, log, pools: BTreeMap::new() };
        // Until all workers published, and not halfway through it.
        let mut seen = BTreeMap::new();
        server.pools = until("the workers' first metrics", || {
            let metrics = server.metrics();
            let pools = metrics.pools();
            let workers: BTreeSet<&String> = pools.keys().map(|(worker, _)| worker).collect();
            let whole = workers.len() == metrics.workers() && metrics.unrest(&pools).is_empty();
            let filled = !pools.is_empty() && pools.values().all(|&blocks| blocks > 0.0);
            let again = std::mem::replace(&mut seen, pools.clone()) == pools;
            (whole && filled && again).then_some(pools)
        });
        server
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address).expect("the service listens")
    }

    /// The answer to a GET.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.exchange(&request("GET", path, "application/json", b""))
    }

    /// The answer to a POST of JSON.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.exchange(&post(path, body))
    }

    /// The answer to these bytes on a connection of their own.
    pub(crate) fn exchange(&self, bytes: &[u8]) -> Answer {
        let mut connection = self.connect();
        connection.send(bytes).expect("the service reads");
        connection.answer().expect("the service answers")
    }

    /// What `/metrics` says now.
    pub(crate) fn metrics(&self) -> Metrics {
        Metrics::parse(self.get("/metrics").text())
    }

    /// Waits until nothing is under way any more: every block free or cached, no lease alive, no request open.
    pub(crate) fn settled(&self) -> Metrics {
        until("the end of all requests", || (self.metrics().sum("baton_requests_open", &[]) == 0.0).then_some(()));
        // What workers published before that says nothing.
        sleep(PUBLISHED);
        let mut unrest = Vec::new();
        for _ in 0..PATIENCE.as_millis() / GLANCE.as_millis() {
            let metrics = self.metrics();
            unrest = metrics.unrest(&self.pools);
            if unrest.is_empty() {
                return metrics;
            }
            sleep(GLANCE);
        }
        panic!("not at rest: {}", unrest.join("; "));
    }

    /// Sends a signal such as `INT`.
    pub(crate) fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().expect("there is a shell").success(), "{line}");
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        ended(&mut self.child)
    }

    /// What it wrote to standard error so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("nobody panics with it").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("log of the service at {}:\n{}", self.address, self.log());
        }
    }
}

/// Everything that a child wrote to a pipe.
pub(crate) fn drained(pipe: Option<impl Read>) -> String {
    let mut text = String::new();
    pipe.expect("it is piped").read_to_string(&mut text).expect("the binary writes UTF-8");
    text
}
