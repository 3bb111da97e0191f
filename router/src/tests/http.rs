//! A small HTTP client that shows the bytes: what the server sends is the subject of these tests.

use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time after which a test that waits has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Http {
    pub(super) stream: TcpStream,
    /// The key of the API that requests show.
    pub(super) key: Option<String>,
    raw: Vec<u8>,
    /// Body bytes of a chunked answer that no event took yet.
    text: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }
}

impl Http {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server listens");
        Self { stream, key: None, raw: Vec::new(), text: Vec::new() }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the server reads");
    }

    pub(super) async fn send(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) {
        let authorization = self.key.as_ref().map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nContent-Type: {kind}\r\n{authorization}Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.write(&[head.as_bytes(), body].concat()).await;
    }

    /// Sends a request with further headers, each a line without its end.
    pub(super) async fn send_with(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) {
        let more: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n{more}Content-Length: {length}\r\n\r\n");
        self.write(&[head.as_bytes(), body].concat()).await;
    }

    pub(super) async fn post(&mut self, path: &str, body: &Value) {
        self.send("POST", path, "application/json", body.to_string().as_bytes()).await;
    }

    async fn fill(&mut self) -> usize {
        timeout(PATIENCE, self.stream.read_buf(&mut self.raw)).await.expect("the server answers").unwrap_or(0)
    }

    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.raw.windows(end.len()).position(|window| window == end) {
                let part = self.raw.drain(..at + end.len()).collect::<Vec<_>>();
                return Some(part[..at].to_vec());
            }
            if self.fill().await == 0 {
                return None;
            }
        }
    }

    pub(super) async fn exactly(&mut self, bytes: usize) -> Vec<u8> {
        while self.raw.len() < bytes {
            assert_ne!(self.fill().await, 0, "the connection ended in the middle of a body");
        }
        self.raw.drain(..bytes).collect()
    }

    /// All that comes, as it is, until the connection ends.
    pub(super) async fn rest(&mut self) -> Vec<u8> {
        while self.fill().await > 0 {}
        std::mem::take(&mut self.raw)
    }

    pub(super) async fn head(&mut self) -> Head {
        let head = self.until(b"\r\n\r\n").await.expect("an answer");
        let head = String::from_utf8(head).expect("heads are ASCII");
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
        let headers = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        Head { status, headers }
    }

    /// Returns the next chunk of a chunked body; `None` at its end, or where the connection ended.
    async fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = self.until(b"\r\n").await?;
        let size = usize::from_str_radix(std::str::from_utf8(&size).expect("ASCII"), 16).expect("a chunk size");
        let chunk = self.exactly(size + 2).await;
        (size > 0).then(|| chunk[..size].to_vec())
    }

    /// The next server-sent event as it came, without comments.
    async fn raw_event(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.text.windows(2).position(|window| window == b"\n\n") {
                let event: Vec<u8> = self.text.drain(..at + 2).collect();
                let event = String::from_utf8(event).expect("events are UTF-8");
                if event.starts_with(':') {
                    continue;
                }
                return Some(event.trim_end_matches('\n').to_owned());
            }
            let chunk = self.chunk().await?;
            self.text.extend_from_slice(&chunk);
        }
    }

    /// The next server-sent event's data.
    pub(super) async fn event(&mut self) -> Option<String> {
        let event = self.raw_event().await?;
        Some(event.strip_prefix("data: ").expect("an event is one line of data").to_owned())
    }

    /// The next event with its name.
    pub(super) async fn named_event(&mut self) -> Option<(String, String)> {
        let event = self.raw_event().await?;
        let (name, data) = event.split_once("\ndata: ").expect("a name, and one line of data");
        Some((name.strip_prefix("event: ").expect("a name").to_owned(), data.to_owned()))
    }

    /// All events up to the end of the body, each with its name.
    pub(super) async fn named_events(&mut self) -> Vec<(String, String)> {
        let mut events = Vec::new();
        while let Some(event) = self.named_event().await {
            events.push(event);
        }
        assert!(self.text.is_empty(), "half an event is left");
        events
    }

    /// All events up to the end of the body.
    pub(super) async fn events(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        while let Some(event) = self.event().await {
            events.push(event);
        }
        assert!(self.text.is_empty(), "half an event is left");
        events
    }

    /// The rest of a chunked body.
    pub(super) async fn chunks(&mut self) -> String {
        let mut body = std::mem::take(&mut self.text);
        while let Some(chunk) = self.chunk().await {
            body.extend(chunk);
        }
        String::from_utf8(body).expect("UTF-8")
    }

    pub(super) async fn answer(&mut self) -> (Head, Vec<u8>) {
        let head = self.head().await;
        let length = head.header("content-length").and_then(|length| length.parse().ok()).expect("a length");
        let body = self.exactly(length).await;
        (head, body)
    }

    pub(super) async fn json(&mut self) -> (Head, Value) {
        let (head, body) = self.answer().await;
        assert_eq!(head.header("content-type"), Some("application/json"));
        (head, serde_json::from_slice(&body).expect("a body of JSON"))
    }

    /// Returns whether the server closes the connection without another byte.
    pub(super) async fn closed(&mut self) -> bool {
        self.raw.is_empty() && self.fill().await == 0
    }
}
