//! A server that is measured: a process of its own, asked over HTTP.

use crate::error::BenchError;
use crate::limits::{now, seconds_since};
use crate::subject::Subject;
use kv_manager::tiers::Tier;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;
use telemetry::metrics::name;

/// What the model is called in requests.
const MODEL: &str = "bench-tiers";
/// Seconds for it to be ready.
const READY_S_MAX: f64 = 120.0;
/// Seconds for it to end.
const END_S_MAX: f64 = 20.0;
/// Time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(600);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// How often it is looked whether something happened.
pub(crate) const GLANCE: Duration = Duration::from_millis(50);
/// Lines of its log that are told when it does not start.
const LOG_LINES: usize = 5;
/// Where tokens of a prompt may come from, as the server counts them.
pub(crate) const SOURCES: [&str; 5] = ["device", "host", "disk", "object", "computed"];

/// A running server. Dropping it ends it.
pub(crate) struct Server {
    process: Child,
    /// It is not read after the welcome, which fits the pipe. It is open so that nothing breaks.
    _output: BufReader<ChildStdout>,
    address: SocketAddr,
    /// Stays open between requests, as a client's does.
    connection: RefCell<Option<BufReader<TcpStream>>>,
    tiers: Vec<Tier>,
}

/// An answer.
pub(crate) struct Answer {
    /// Seconds from the request to the end of the answer.
    pub(crate) seconds: f64,
    /// What it says.
    pub(crate) text: String,
}

/// What the server counts.
pub(crate) struct Counts(String);

impl Server {
    /// Starts a server for prompts of the length, with these tiers, which take all that is computed. Its log and the
    /// files of its disk tier lie in the folder. Errors: it does not start.
    pub(crate) fn start(subject: &Subject, tokens: u32, tiers: &[Tier], folder: &Path) -> Result<Self, BenchError> {
        let log = folder.join("log");
        let mut command = Command::new(&subject.program);
        // It ends with its input, which closes when this process ends, of whatever.
        command.args(["serve", "--until-closed", "--prefill", "0", "--decode", "1", "--listen", "127.0.0.1:0"]);
        command.args(&subject.flags);
        let has = |tier| tiers.contains(&tier);
        let room = subject.tier_bytes(tokens).to_string();
        let mut settings = vec![
            ("model.name", MODEL.to_owned()),
            ("kv.device_bytes", subject.device_bytes(tokens).to_string()),
            // What was used first goes first: nothing of a prompt is left when its turn comes.
            ("kv.eviction", "lru".to_owned()),
            ("host.bytes", if has(Tier::Host) { room.clone() } else { "0".to_owned() }),
            ("host.write", "through".to_owned()),
            ("disk.folders", if has(Tier::Disk) { folder.display().to_string() } else { String::new() }),
            ("disk.bytes", room),
            ("disk.write", "through".to_owned()),
            ("object.write", "through".to_owned()),
            // Apart from what others keep there, and from earlier runs, whose prompts were the same.
            ("object.prefix", format!("baton-bench/{}", std::process::id())),
        ];
        if !has(Tier::Object) {
            settings.push(("object.endpoint", String::new()));
        }
        for (key, value) in settings {
            command.args(["--set", &format!("{key}={value}")]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut process = command.spawn()?;
        let mut output = BufReader::new(process.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?);
        let mut welcome = String::new();
        output.read_line(&mut welcome)?;
        let address = welcome.trim_end().rsplit(' ').next().map(|url| url.trim_start_matches("http://"));
        let Some(address) = address.and_then(|address| address.parse().ok()) else {
            // It says why, and ends by itself.
            process.wait()?;
            return Err(BenchError::Start(last_lines(&log)));
        };
        let server = Self { process, _output: output, address, connection: RefCell::default(), tiers: tiers.to_vec() };
        let begin = now();
        while !server.exchange("GET", "/ready", "").is_ok_and(|(status, _)| status == 200) {
            if seconds_since(begin) > READY_S_MAX {
                return Err(BenchError::Start(format!("it is not ready within {READY_S_MAX} s")));
            }
            sleep(GLANCE);
        }
        Ok(server)
    }

    /// Returns the tiers that it has.
    pub(crate) fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// Asks for so many tokens after the prompt.
    pub(crate) fn ask(&self, prompt: &[u32], tokens: u32) -> Result<Answer, BenchError> {
        let path = "/v1/completions";
        let body = json!({
            "model": MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true,
        });
        let body = body.to_string();
        let begin = now();
        let (status, text) =
            self.exchange("POST", path, &body).map_err(|error| BenchError::Silent { path, why: error.to_string() })?;
        let seconds = seconds_since(begin);
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        match value["choices"][0]["text"].as_str() {
            Some(said) if status == 200 => Ok(Answer { seconds, text: said.to_owned() }),
            _ => Err(BenchError::Silent { path, why: format!("status {status}, {text}") }),
        }
    }

    /// Reads what it counts now.
    pub(crate) fn counts(&self) -> Result<Counts, BenchError> {
        let path = "/metrics";
        match self.exchange("GET", path, "") {
            Ok((200, text)) => Ok(Counts(text)),
            Ok((status, _)) => Err(BenchError::Silent { path, why: format!("status {status}") }),
            Err(error) => Err(BenchError::Silent { path, why: error.to_string() }),
        }
    }

    /// Sends a request by HTTP/1.1 over a connection that is kept. The server closes one that was idle for long: then
    /// over another one.
    fn exchange(&self, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: bench-tiers\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let request = head + body;
        let over = |mut connection: BufReader<TcpStream>| {
            connection.get_mut().write_all(request.as_bytes())?;
            let answer = answer(&mut connection)?;
            self.connection.replace(Some(connection));
            Ok(answer)
        };
        if let Some(Ok(answer)) = self.connection.take().map(over) {
            return Ok(answer);
        }
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        over(BufReader::new(stream))
    }
}

/// Status and body of an answer that says how long it is.
fn answer(connection: &mut impl BufRead) -> io::Result<(u16, String)> {
    let strange = || io::Error::new(io::ErrorKind::InvalidData, "its answer is not HTTP of a known length");
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(strange)?;
    let mut bytes: Option<u64> = None;
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => bytes = value.trim().parse().ok(),
            Some(_) => {}
            None => break,
        }
    }
    let bytes = bytes.filter(|&bytes| bytes <= ANSWER_BYTES_MAX).ok_or_else(strange)?;
    let mut body = vec![0; bytes as usize];
    connection.read_exact(&mut body)?;
    Ok((status, String::from_utf8(body).map_err(|_| strange())?))
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let begin = now();
        while self.process.try_wait().is_ok_and(|status| status.is_none()) {
            if seconds_since(begin) > END_S_MAX {
                // An error of these says that it has ended.
                let _ = self.process.kill();
                let _ = self.process.wait();
                return;
            }
            sleep(GLANCE);
        }
    }
}

impl Counts {
    /// Returns the sum of the samples of a metric that have the labels.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let of = |line: &&str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && labels.iter().all(|label| line.contains(label))
        };
        self.0.lines().filter(of).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// Returns the prompt tokens so far, in the order of [`SOURCES`].
    pub(crate) fn tokens(&self) -> [u64; 5] {
        let name = format!("{}_sum", name::prompt_source_tokens);
        SOURCES.map(|source| self.sum(&name, &[("source", source)]) as u64)
    }

    /// Records that the tier holds.
    pub(crate) fn held(&self, tier: Tier) -> u64 {
        self.sum(name::tier_records, &[("tier", tier.name()), ("state", "held")]) as u64
    }

    /// Returns the bytes that were written to the tier, and read from it.
    pub(crate) fn moved(&self, tier: Tier) -> [u64; 2] {
        let moved =
            |direction| self.sum(name::tier_moved_bytes, &[("tier", tier.name()), ("direction", direction)]) as u64;
        ["write", "read"].map(moved)
    }
}

/// Returns the end of the log of a server that did not start, in one line.
fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_as_long_as_it_says() {
        let mut two =
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nA: b\r\n\r\nyesHTTP/1.1 404 No\r\ncontent-length:0\r\n\r\n"
                .as_slice();
        assert_eq!(answer(&mut two).expect("the first"), (200, "yes".to_owned()));
        assert_eq!(answer(&mut two).expect("the second"), (404, String::new()));
        for strange in ["", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nno", "no\r\n"] {
            assert!(answer(&mut strange.as_bytes()).is_err(), "{strange}");
        }
    }

    #[test]
    fn counts_are_summed_by_name_and_labels() {
        let text = "# HELP x y\nbaton_prompt_source_tokens_sum{worker=\"w1\",source=\"host\"} 48\n\
                    baton_prompt_source_tokens_sum{worker=\"w2\",source=\"host\"} 16\n\
                    baton_prompt_source_tokens_count{worker=\"w2\",source=\"host\"} 2\n\
                    baton_prompt_source_tokens_sum{worker=\"w2\",source=\"computed\"} 5\n\
                    baton_tier_moved_bytes_total{worker=\"w1\",tier=\"disk\",direction=\"write\"} 4096\n";
        let counts = Counts(text.to_owned());
        assert_eq!(counts.tokens(), [0, 64, 0, 0, 5]);
        assert_eq!((counts.moved(Tier::Disk), counts.held(Tier::Disk)), ([4096, 0], 0));
    }
}
