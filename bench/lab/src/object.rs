//! Reads of objects by a plain client, beside which the mover of objects is measured: threads that each send
//! requests without a signature over a socket of their own, and have the system write what comes to where it
//! belongs.

use clap::Args;
use serde_json::json;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A server that checks no signatures wants one all the same.
const SOMEBODY: &str =
    "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Address of a server of S3's API that does not check credentials: HOST:PORT.
    #[arg(long)]
    server: String,
    /// Its bucket.
    #[arg(long, default_value = "bench")]
    bucket: String,
    /// Bytes of an object.
    #[arg(long, default_value_t = 4 << 20)]
    bytes: usize,
    /// Objects.
    #[arg(long, default_value_t = 32)]
    objects: usize,
    /// Requests under way.
    #[arg(long, default_value_t = 4)]
    requests: usize,
    /// How often all objects are read.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// File for the figures.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut memory = vec![0; options.objects * options.bytes];
    let mut figures = Vec::new();
    for round in 0..options.rounds {
        // Pages are found before it begins.
        memory.fill(u8::MAX);
        let bytes_per_s = memory.len() as f64 / seconds(options, &mut memory)?;
        println!("round {}: {:.3} GB/s", round + 1, bytes_per_s / 1e9);
        figures.push(json!({ "bytes_per_s": bytes_per_s }));
    }
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string_pretty(&figures)?)?;
    }
    Ok(())
}

/// Returns the key of an object, as `baton bench transfer` names it.
fn key(options: &Options, n: usize) -> String {
    format!("baton-bench/transfer/{}/{n}", options.bytes)
}

/// Reads all objects and returns the seconds that it took.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn seconds(options: &Options, memory: &mut [u8]) -> Result<f64, Box<dyn Error>> {
    let begin = Instant::now();
    let places: Vec<_> = memory.chunks_mut(options.bytes).map(std::sync::Mutex::new).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let client = || -> std::io::Result<()> {
            let mut connection = None;
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some(place) = places.get(n) else { return Ok(()) };
                let mut place = place.try_lock().map_err(|_| std::io::Error::other("two read one object"))?;
                get(options, &mut connection, &key(options, n), &mut place)?;
            }
        };
        let clients: Vec<_> = (0..options.requests).map(|_| scope.spawn(client)).collect();
        clients.into_iter().try_for_each(|client| {
            client.join().map_err(|_| "a plain client panicked")?.map_err(Box::<dyn Error>::from)
        })
    })?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Reads an object, over the connection that there is, and leaves there the one to be used next.
fn get(
    options: &Options,
    connection: &mut Option<BufReader<TcpStream>>,
    key: &str,
    to: &mut [u8],
) -> std::io::Result<()> {
    let mut stream = match connection.take() {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(&options.server)?;
            stream.set_nodelay(true)?;
            BufReader::new(stream)
        }
    };
    let (server, last) = (&options.server, to.len() - 1);
    let head = format!(
        "GET /{}/{key} HTTP/1.1\r\nHost: {server}\r\nAuthorization: {SOMEBODY}\r\nRange: bytes=0-{last}\r\n\r\n",
        options.bucket
    );
    stream.get_mut().write_all(head.as_bytes())?;
    let (mut line, mut first, mut kept) = (String::new(), true, true);
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        if first && !line.contains(" 206 ") {
            return Err(std::io::Error::other(line));
        }
        kept &= !line.eq_ignore_ascii_case("connection: close\r\n");
        if line == "\r\n" || line.is_empty() {
            break;
        }
        first = false;
    }
    stream.read_exact(to)?;
    *connection = kept.then_some(stream);
    Ok(())
}
