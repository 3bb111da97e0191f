//! Routers and workers as processes of one cluster.

use crate::address::own_place;
use crate::process::Process;
use crate::server::until;
use rustls::ClientConfig;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;

/// A cluster whose first router is the one that is asked.
pub(crate) struct Cluster {
    secret: String,
    /// What workers have in their environment beside the secret.
    environment: Vec<(String, String)>,
    workers: Vec<Worker>,
    router: Option<Process>,
}

/// A worker of a [`Cluster`], running or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WorkerAt(usize);

struct Worker {
    command: &'static str,
    flags: Vec<String>,
    secret: String,
    address: SocketAddr,
    process: Option<Process>,
}

impl Cluster {
    /// Nobody, yet; those to come know this secret.
    pub(crate) fn new(secret: &str) -> Self {
        Self { secret: secret.to_owned(), environment: Vec::new(), workers: Vec::new(), router: None }
    }

    /// Changes what workers that are started from now on have in their environment.
    pub(crate) fn set_environment(&mut self, environment: &[(&str, &str)]) {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.environment = environment.iter().map(own).collect();
    }

    /// Starts a prefill worker.
    pub(crate) fn prefill(&mut self, flags: &[&str]) -> WorkerAt {
        self.start("prefill-worker", &self.secret.clone(), flags)
    }

    /// Starts a decode worker.
    pub(crate) fn decode(&mut self, flags: &[&str]) -> WorkerAt {
        self.start("decode-worker", &self.secret.clone(), flags)
    }

    /// Starts a worker that knows this secret.
    pub(crate) fn start(&mut self, command: &'static str, secret: &str, flags: &[&str]) -> WorkerAt {
        let at = self.reserve(command, secret, flags);
        self.restart(at);
        at
    }

    /// An address for a worker that is started later ([`Self::restart`]).
    pub(crate) fn reserve(&mut self, command: &'static str, secret: &str, flags: &[&str]) -> WorkerAt {
        let address = own_place();
        let flags = flags.iter().map(ToString::to_string).collect();
        self.workers.push(Worker { command, flags, secret: secret.to_owned(), address, process: None });
        WorkerAt(self.workers.len() - 1)
    }

    /// Starts a worker at its address; an earlier life of it is killed.
    pub(crate) fn restart(&mut self, at: WorkerAt) {
        let worker = &mut self.workers[at.0];
        worker.process = None;
        let address = worker.address.to_string();
        let mut arguments = vec![worker.command, "--listen", &address, "--threads", "1"];
        arguments.extend(worker.flags.iter().map(String::as_str));
        let environment = self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let environment: Vec<_> = environment.chain([("BATON_CLUSTER__SECRET", worker.secret.as_str())]).collect();
        worker.process = Some(Process::start(&arguments, &environment));
    }

    /// Where the workers' sessions listen, in the order in which they were started.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.workers.iter().map(|worker| worker.address).collect()
    }

    /// A worker that runs.
    pub(crate) fn worker(&self, at: WorkerAt) -> &Process {
        self.workers[at.0].process.as_ref().expect("it was started")
    }

    /// Waits for the end of a worker, and says how it ended.
    pub(crate) fn ended(&mut self, at: WorkerAt) -> Option<i32> {
        self.workers[at.0].process.take().expect("it was started").ended().code()
    }

    /// Starts the router, which knows all workers that were started or reserved before.
    pub(crate) fn route(&mut self, flags: &[&str]) {
        self.router = Some(self.another_router(flags));
    }

    /// Another one.
    pub(crate) fn another_router(&self, flags: &[&str]) -> Process {
        self.router_at("127.0.0.1:0", flags)
    }

    /// Another one, which listens there.
    pub(crate) fn router_at(&self, listen: &str, flags: &[&str]) -> Process {
        let workers: Vec<String> = self.workers.iter().map(|worker| worker.address.to_string()).collect();
        let workers = workers.join(",");
        let mut arguments = vec!["router", "--listen", listen, "--workers", &workers];
        arguments.extend(flags);
        Process::start(&arguments, &[("BATON_CLUSTER__SECRET", &self.secret)])
    }

    /// Speaks TLS with the router from now on.
    pub(crate) fn trust(&mut self, trusts: &Arc<ClientConfig>) {
        self.router.as_mut().expect("it was started").trust(trusts);
    }

    /// The router.
    pub(crate) fn router(&self) -> &Process {
        self.router.as_ref().expect("it was started")
    }

    /// Waits until the router counts so many workers, all of which take requests.
    pub(crate) fn until_ready(&self, prefill: usize, decode: usize) {
        let wanted = json!({ "prefill": prefill, "decode": decode });
        until("the workers are counted", || (self.router().get("/ready").json()["workers"] == wanted).then_some(()));
    }

    /// Ends everybody by SIGTERM, the router first; how each ended.
    pub(crate) fn end(mut self) -> Vec<Option<i32>> {
        let workers = self.workers.drain(..).filter_map(|worker| worker.process);
        let end = |mut process: Process| {
            process.signal("TERM");
            process.ended().code()
        };
        self.router.take().into_iter().chain(workers).map(end).collect()
    }
}
