//! A store to test against: moto, a server of S3's API that others wrote, in a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(crate) const BUCKET: &str = "kv-blocks";

/// A store with one empty bucket. It keeps what it has in memory: its death loses all.
pub(crate) struct Store {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Store {
    pub(crate) fn start() -> Self {
        Self::start_at(0)
    }

    /// Starts it at a port; 0: any.
    pub(crate) fn start_at(port: u16) -> Self {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the folder of builds");
        let python = target.join("conformance/venv/bin/python");
        assert!(python.exists(), "there is no {}: scripts/install-tools python", python.display());
        let mut process = Command::new(python)
            .args(["-m", "moto.server", "--port", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("moto starts");
        let mut said = BufReader::new(process.stderr.take().expect("it is piped"));
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert_ne!(said.read_line(&mut line).expect("it speaks"), 0, "moto ended");
            if let Some((_, address)) = line.split_once("Running on http://") {
                break address.trim().parse().expect("an address");
            }
        };
        // What it says of each request is not of interest, but has to go somewhere.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let store = Self { process, address };
        store.ask("PUT", "");
        store
    }

    /// Asks something about the bucket without signing it, which this store allows, and returns the answer.
    pub(crate) fn ask(&self, method: &str, query: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let head = format!("{method} /{BUCKET}{query} HTTP/1.0\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", self.address);
        stream.write_all(head.as_bytes()).expect("it is asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.contains(" 200 "), "{method} {query}: {answer}");
        answer
    }

    /// Kills it.
    pub(crate) fn die(&mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it is dead");
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.die();
    }
}
