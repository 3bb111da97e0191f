//! A real etcd, in a process of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How long it may take to begin. Nothing that works takes nearly as long.
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether it has begun.
const GLANCE: Duration = Duration::from_millis(20);

/// An etcd of one member; killed when dropped.
pub(crate) struct EtcdServer {
    folder: TempDir,
    address: SocketAddr,
    scheme: &'static str,
    flags: Vec<String>,
    child: Option<Child>,
}

impl EtcdServer {
    /// Starts an etcd at an address that is the caller's alone, with these flags. Without `etcd` there is none, which
    /// is said.
    pub(crate) fn start(address: SocketAddr, flags: &[&str]) -> Option<Self> {
        let mut server = Self::prepare(address, flags)?;
        server.start_again();
        Some(server)
    }

    /// The same, not started yet.
    pub(crate) fn prepare(address: SocketAddr, flags: &[&str]) -> Option<Self> {
        if Command::new("etcd").arg("--version").output().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            eprintln!("skipped: there is no etcd (scripts/install-tools etcd)");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let scheme = if flags.iter().any(|flag| flag.starts_with("--cert-file")) { "https" } else { "http" };
        let flags = flags.iter().map(ToString::to_string).collect();
        Some(Self { folder, address, scheme, flags, child: None })
    }

    /// Where clients reach it.
    pub(crate) fn endpoint(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Starts it with what it had on disk, and waits until it takes connections.
    pub(crate) fn start_again(&mut self) {
        let (clients, peers) = (self.endpoint(), format!("http://{}:{}", self.address.ip(), self.address.port() + 1));
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(self.data())
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            // So that elections are short, and leases may be.
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(["--logger", "zap", "--log-level", "error", "--log-outputs", "stderr"])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("etcd runs"));
        for _ in 0..BEGIN_MAX.as_millis() / GLANCE.as_millis() {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().expect("a child can be waited for"));
            assert!(ended.is_none(), "etcd ended: {ended:?}");
            if TcpStream::connect(self.address).is_ok() {
                return;
            }
            std::thread::sleep(GLANCE);
        }
        panic!("etcd does not listen");
    }

    /// The number of its process.
    #[allow(dead_code, reason = "not every target that starts an etcd looks at its process")]
    pub(crate) fn process(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Kills it.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Loses what it had on disk.
    #[allow(dead_code, reason = "not every target that starts an etcd empties it")]
    pub(crate) fn wipe(&mut self) {
        self.stop();
        std::fs::remove_dir_all(self.data()).expect("it had something");
    }

    /// The answer to a question in JSON, by etcd's gateway. Errors: etcd's answer that it is none.
    #[allow(dead_code, reason = "not every target that starts an etcd asks it something")]
    pub(crate) fn ask(&self, token: &str, path: &str, question: &str) -> Result<String, String> {
        let mut stream = TcpStream::connect(self.address).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(BEGIN_MAX)).expect("a socket takes its options");
        let (host, length) = (self.address, question.len());
        let token = if token.is_empty() { String::new() } else { format!("Authorization: {token}\r\n") };
        let request = format!(
            "POST {path} HTTP/1.0\r\nHost: {host}\r\n{token}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{question}"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        if head.contains(" 200 ") { Ok(body.to_owned()) } else { Err(body.to_owned()) }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.stop();
    }
}
