//! A process of the binary that serves something.

use crate::http::{Answer, Connection, post, request};
use crate::metrics::Metrics;
use crate::server::{baton, ended, until};
use rustls::ClientConfig;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};

/// A running process; killed when dropped.
pub(crate) struct Process {
    child: Child,
    /// Where it listens, as the first line of its welcome says.
    pub(crate) address: SocketAddr,
    /// The rest of its welcome, so far.
    welcome: Arc<Mutex<String>>,
    /// By what it is known, if it speaks TLS.
    trusts: Option<Arc<ClientConfig>>,
    log: Arc<Mutex<String>>,
}

impl Process {
    /// Starts it with these arguments and settings in the environment, and waits for its welcome.
    pub(crate) fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = baton(arguments).envs(environment.iter().copied()).spawn().expect("the binary runs");
        let log = kept(BufReader::new(child.stderr.take().expect("it is piped")));
        let mut welcome = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let read = stdout.read_line(&mut welcome);
        let address = welcome.trim_end().rsplit(' ').next().map(|it| it.trim_start_matches("http://"));
        let address = address.map(|it| it.trim_start_matches("https://"));
        let Some(address) = address.and_then(|address| address.parse().ok()) else {
            let status = ended(&mut child);
            panic!("no address in {welcome:?} ({read:?}), {status}: {}", log.lock().expect("nobody panics with it"));
        };
        // Nobody who writes to a closed pipe goes on, so all of it is read.
        let welcome = kept(stdout);
        Self { child, address, welcome, trusts: None, log }
    }

    /// Where its operators reach it, as its welcome says.
    pub(crate) fn operations(&self) -> SocketAddr {
        until("it says where operators reach it", || {
            let welcome = self.welcome.lock().expect("nobody panics with it");
            let (_, rest) = welcome.split_once("\n  ops ")?;
            let (_, rest) = rest.trim_start().split_once("://")?;
            rest.split_once('/')?.0.parse().ok()
        })
    }

    /// Speaks TLS with it from now on.
    pub(crate) fn trust(&mut self, trusts: &Arc<ClientConfig>) {
        self.trusts = Some(trusts.clone());
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Connection {
        let opened = match &self.trusts {
            Some(trusts) => Connection::secure(self.address, trusts),
            None => Connection::open(self.address),
        };
        opened.expect("the service listens")
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

    /// Sends a signal such as `INT`.
    pub(crate) fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().expect("there is a shell").success(), "{line}");
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        ended(&mut self.child)
    }

    /// What it welcomed with so far, but for the first line.
    pub(crate) fn welcome(&self) -> String {
        self.welcome.lock().expect("nobody panics with it").clone()
    }

    /// What it wrote to standard error so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("nobody panics with it").clone()
    }
}

/// Keeps what a process writes, line by line.
fn kept(pipe: impl BufRead + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let copy = text.clone();
    std::thread::spawn(move || {
        for line in pipe.lines().map_while(Result::ok) {
            *copy.lock().expect("nobody panics with it") += &format!("{line}\n");
        }
    });
    text
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("log of the process at {}:\n{}", self.address, self.log());
        }
    }
}
