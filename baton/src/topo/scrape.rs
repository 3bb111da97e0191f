//! What a process says of itself at `/metrics` and `/lanes`: asked for, and taken apart.

use proto::tls::OperatorTls;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long connecting and each answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Where a process listens.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProcessAddress {
    /// `host:port`.
    authority: String,
    /// Whether it is asked over TLS.
    https: bool,
}

/// A text that is not the URL of a process.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: no address such as http://127.0.0.1:8000 or https://router:8001")]
pub(super) struct UrlError(String);

impl ProcessAddress {
    /// Reads `http://host:port` or `https://host:port`, with or without `/metrics` behind it.
    pub(super) fn parse(url: &str) -> Result<Self, UrlError> {
        let secure = url.strip_prefix("https://");
        let rest = secure.or_else(|| url.strip_prefix("http://")).unwrap_or(url);
        let rest = rest.trim_end_matches('/').trim_end_matches("/metrics");
        let port = rest.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        match port.map(|(_, port)| port.parse::<u16>()) {
            Some(Ok(_)) if !rest.contains('/') => Ok(Self { authority: rest.to_owned(), https: secure.is_some() }),
            _ => Err(UrlError(url.to_owned())),
        }
    }

    /// Returns whether the process is asked over TLS.
    pub(super) fn speaks_tls(&self) -> bool {
        self.https
    }
}

/// Asks processes what they say of themselves.
#[derive(Debug)]
pub(super) struct Scraper {
    /// For processes that speak TLS; `None`: there is none.
    pub(super) tls: Option<OperatorTls>,
    /// Value of the header `authorization`, if there is one.
    pub(super) authorization: Option<String>,
}

impl Scraper {
    /// Returns what the process at `place` says at `path`.
    pub(super) fn ask(&self, place: &ProcessAddress, path: &str) -> io::Result<String> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in place.authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE).and_then(|stream| self.ask_at(stream, place, path)) {
                Ok(text) => return Ok(text),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn ask_at(&self, stream: TcpStream, place: &ProcessAddress, path: &str) -> io::Result<String> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        match self.tls.as_ref().filter(|_| place.https) {
            Some(tls) => self.exchange(tls.wrap(&place.authority, stream)?, place, path),
            None => self.exchange(stream, place, path),
        }
    }

    /// By HTTP/1.0, whose answers end with the connection.
    fn exchange(&self, mut stream: impl Read + Write, place: &ProcessAddress, path: &str) -> io::Result<String> {
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n", place.authority)?;
        if let Some(value) = &self.authorization {
            write!(stream, "Authorization: {value}\r\n")?;
        }
        stream.write_all(b"\r\n")?;
        stream.flush()?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        let strange = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| strange("its answer is not HTTP".to_owned()))?;
        let status = head.lines().next().unwrap_or_default();
        if status.split(' ').nth(1) != Some("200") {
            // One line says why it is refused, or that the port speaks TLS.
            let why = body.lines().next().unwrap_or_default();
            return Err(strange(format!("it answers {status:?}: {why}")));
        }
        Ok(body.to_owned())
    }
}

/// One line of metrics.
#[derive(Debug, PartialEq)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    pub(super) labels: HashMap<&'a str, String>,
    pub(super) value: f64,
}

/// Returns the lines of Prometheus' text format; those that are none are passed over.
pub(super) fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let Some((name, rest)) = line.split_once('{') else {
        let (name, value) = line.split_once(' ')?;
        return Some(Sample { name, labels: HashMap::new(), value: value.trim().parse().ok()? });
    };
    let (mut labels, mut rest) = (HashMap::new(), rest);
    while !rest.starts_with('}') {
        let (label, after) = rest.trim_start_matches(',').split_once("=\"")?;
        let (value, after) = unescaped(after)?;
        labels.insert(label, value);
        rest = after;
    }
    Some(Sample { name, labels, value: rest.strip_prefix('}')?.trim().parse().ok()? })
}

/// Returns a label's value, and what follows its closing quote.
fn unescaped(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_addresses_with_ports() {
        let place = |authority: &str, https| Ok(ProcessAddress { authority: authority.to_owned(), https });
        assert_eq!(ProcessAddress::parse("http://127.0.0.1:8000"), place("127.0.0.1:8000", false));
        assert_eq!(ProcessAddress::parse("http://host:1/metrics"), place("host:1", false));
        assert_eq!(ProcessAddress::parse("https://host:1/metrics"), place("host:1", true));
        assert_eq!(ProcessAddress::parse("[::1]:9"), place("[::1]:9", false));
        for wrong in
            ["", "host", "http://host/", "https://host", "ftp://host:1", "host:99999", ":1", "http://host:1/v1"]
        {
            assert!(ProcessAddress::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_are_taken_apart_and_garbage_is_passed_over() {
        let text = "# HELP a b\na 1\na{} 2\na{x=\"1\",y=\"a \\\"b\\\", {c}\"} 3.5e9\na{x=\"1 4\nb\nc{x=1} 2\n";
        let samples: Vec<_> = samples(text).collect();
        let values: Vec<_> = samples.iter().map(|sample| (sample.name, sample.labels.len(), sample.value)).collect();
        assert_eq!(values, [("a", 0, 1.0), ("a", 0, 2.0), ("a", 2, 3.5e9)]);
        assert_eq!(samples[2].labels["y"], "a \"b\", {c}");
    }
}
