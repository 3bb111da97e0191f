//! A `baton serve` process.

use crate::metrics::{Metrics, Pool};
use crate::models::{BUNDLED, binary};
use crate::process::Process;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// How long a test waits for what must happen. Nothing that works takes nearly as long, not even a long prompt of the
/// fetched model on one thread of a processor without AVX-512.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// How often it looks.
const GLANCE: Duration = Duration::from_millis(20);
/// Longer than workers take to publish their metrics.
const PUBLISHED: Duration = Duration::from_millis(300);

/// A running service; killed when dropped.
pub(crate) struct Server {
    process: Process,
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

/// A command of the binary that nothing of the tester's environment reaches. Its model is the bundled one, unless
/// `arguments` name another.
pub(crate) fn baton(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(arguments)
        .env_clear()
        .envs([BUNDLED])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl Server {
    /// `baton serve` on a free port, with these flags.
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_with(flags, &[])
    }

    /// The same, with settings in the environment.
    pub(crate) fn start_with(flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let arguments: Vec<&str> =
            ["serve", "--listen", "127.0.0.1:0"].into_iter().chain(flags.iter().copied()).collect();
        let mut server = Self { process: Process::start(&arguments, environment), pools: BTreeMap::new() };
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
}

impl Deref for Server {
    type Target = Process;
    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Everything that a child wrote to a pipe.
pub(crate) fn drained(pipe: Option<impl Read>) -> String {
    let mut text = String::new();
    pipe.expect("it is piped").read_to_string(&mut text).expect("the binary writes UTF-8");
    text
}
