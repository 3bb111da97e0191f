//! A hub on this machine that can be told to fail.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What the hub does to a request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Answers with this status and these header lines.
    Status(u16, &'static str),
    /// Sends so many bytes of the body and closes the connection.
    Break(usize),
    /// Sends the whole file, whatever range was asked for.
    WholeFile,
    /// Sends other bytes.
    OtherBytes,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct SeenRequest {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
}

#[derive(Default)]
struct State {
    commit: String,
    files: BTreeMap<String, Vec<u8>>,
    requests: Vec<SeenRequest>,
    /// For requests of the bytes of large files.
    faults: VecDeque<Fault>,
    /// For requests of the description.
    refusals: VecDeque<Fault>,
}

/// The hub, and under another name of this host the store that holds large files.
#[derive(Clone)]
pub(crate) struct FakeHub {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl FakeHub {
    /// Starts a hub with one model, `o/n`, of these files.
    pub(crate) fn start(files: &[(&str, &[u8])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let hub = Self { address: listener.local_addr().expect("bound"), state: Arc::default() };
        hub.publish(&"a".repeat(40), files);
        let serving = hub.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let hub = serving.clone();
                thread::spawn(move || while hub.serve(&stream).is_some() {});
            }
        });
        hub
    }

    /// The model has this commit and these files now.
    pub(crate) fn publish(&self, commit: &str, files: &[(&str, &[u8])]) {
        let mut state = self.state.lock().expect("no panic");
        state.commit = commit.to_owned();
        state.files = files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect();
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.address.port())
    }

    /// The next requests for the bytes of large files meet these faults.
    pub(crate) fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().expect("no panic").faults.extend(faults);
    }

    /// The next requests for the description meet these faults.
    pub(crate) fn refuse(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().expect("no panic").refusals.extend(faults);
    }

    /// Takes the requests that came since the last call.
    pub(crate) fn requests(&self) -> Vec<SeenRequest> {
        std::mem::take(&mut self.state.lock().expect("no panic").requests)
    }

    /// Takes the requests that came for the bytes of files.
    pub(crate) fn transfers(&self) -> Vec<SeenRequest> {
        let is_transfer =
            |request: &SeenRequest| request.path.starts_with("/store/") || request.path.ends_with(".json");
        self.requests().into_iter().filter(is_transfer).collect()
    }

    /// Serves one request; `None`: the connection is over.
    fn serve(&self, stream: &TcpStream) -> Option<()> {
        let request = read_request(stream)?;
        let mut state = self.state.lock().expect("no panic");
        state.requests.push(request.clone());
        let path = request.path.as_str();
        if path.starts_with("/api/models/o/n/revision/") {
            if let Some(Fault::Status(status, headers)) = state.refusals.pop_front() {
                return answer(stream, status, headers, b"");
            }
            let body = state.describe();
            return answer(stream, 200, "content-type: application/json\r\n", body.as_bytes());
        }
        let resolve = format!("/o/n/resolve/{}/", state.commit);
        let file = path.strip_prefix("/store/").or_else(|| path.strip_prefix(&resolve)).map(str::to_owned);
        let Some(bytes) = file.as_ref().and_then(|file| state.files.get(file)).cloned() else {
            return answer(stream, 404, "", b"");
        };
        if path.starts_with("/o/") && is_large(path) {
            drop(state);
            let location =
                format!("location: http://localhost:{}/store/{}\r\n", self.address.port(), file.expect("it is known"));
            return answer(stream, 302, &location, b"");
        }
        let fault = is_large(path).then(|| state.faults.pop_front()).flatten();
        drop(state);
        send_bytes(stream, &request, bytes, fault)
    }
}

impl State {
    fn describe(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let file = |(path, bytes): (&String, &Vec<u8>)| {
            let size = bytes.len();
            let blob = [format!("blob {size}\0").as_bytes(), bytes].concat();
            let id = hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, &blob).as_ref());
            let lfs = format!(r#", "lfs": {{"sha256": "{}", "size": {size}}}"#, hex(digest(&SHA256, bytes).as_ref()));
            let lfs = if is_large(path) { lfs.as_str() } else { "" };
            format!(r#"{{"rfilename": "{path}", "size": {size}, "blobId": "{id}"{lfs}}}"#)
        };
        let files: Vec<_> = self.files.iter().map(file).collect();
        format!(r#"{{"sha": "{}", "siblings": [{}]}}"#, self.commit, files.join(", "))
    }
}

fn is_large(path: &str) -> bool {
    path.ends_with(".safetensors") || path.ends_with(".gguf")
}

fn send_bytes(stream: &TcpStream, request: &SeenRequest, mut bytes: Vec<u8>, fault: Option<Fault>) -> Option<()> {
    let from: Option<usize> =
        request.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let total = bytes.len();
    let (status, headers) = match (&fault, from) {
        (Some(Fault::Status(status, headers)), _) => return answer(stream, *status, headers, b""),
        (Some(Fault::WholeFile), _) | (_, None) => (200, String::new()),
        (_, Some(from)) if from >= total => return answer(stream, 416, "", b""),
        (_, Some(from)) => {
            bytes.drain(..from);
            (206, format!("content-range: bytes {from}-{}/{total}\r\n", total - 1))
        }
    };
    match fault {
        Some(Fault::Break(count)) => {
            let head = format!("HTTP/1.1 {status} x\r\n{headers}content-length: {}\r\n\r\n", bytes.len());
            let mut stream = stream;
            stream.write_all(head.as_bytes()).ok()?;
            stream.write_all(&bytes[..count.min(bytes.len())]).ok()?;
            stream.shutdown(std::net::Shutdown::Both).ok()?;
            None
        }
        Some(Fault::OtherBytes) => {
            bytes.iter_mut().for_each(|byte| *byte ^= 1);
            answer(stream, status, &headers, &bytes)
        }
        _ => answer(stream, status, &headers, &bytes),
    }
}

fn answer(mut stream: &TcpStream, status: u16, headers: &str, body: &[u8]) -> Option<()> {
    let head = format!("HTTP/1.1 {status} x\r\n{headers}content-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()
}

fn read_request(stream: &TcpStream) -> Option<SeenRequest> {
    let mut lines = BufReader::with_capacity(1, stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line.ok()?;
        match line.split_once(": ") {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None => break,
        };
    }
    let path = path.split('?').next().unwrap_or(&path).to_owned();
    Some(SeenRequest { path, headers })
}
