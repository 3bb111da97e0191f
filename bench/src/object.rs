//! Reads of objects by the mover of objects, and by a plain client of the same server in turn with it: threads that each send
//! requests without a signature over a socket of their own, and have the system write what comes to where it belongs.

use crate::filled::{FILLED, fill, is_filled};
use clap::Args;
use serde_json::json;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use transport::{
    Memory, ObjectConfig, ObjectCredentials, ObjectEnd, ObjectMover, ObjectOutcome, ObjectPiece, ObjectWork, RegionId,
    SealedMemory,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// A server that checks no signatures wants one all the same.
const SOMEBODY: &str =
    "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Address of a server of S3's API that does not check who one is: HOST:PORT.
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
    /// How often all objects are read by each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// File for the figures.
    #[arg(long)]
    json: Option<PathBuf>,
}

struct Mover {
    mover: ObjectMover,
    ends: Receiver<ObjectEnd>,
    memory: Arc<SealedMemory>,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let mover = Mover::new(options)?;
    fill(&mover.memory, FILLED);
    mover.all(options, |key, range| ObjectWork::Write { key, memory: RegionId(0), range })?;
    let mut figures = Vec::new();
    for round in 0..options.rounds {
        let mut seconds = [0.0; 2];
        // Who begins has no advantage of it.
        for side in [round % 2, 1 - round % 2] {
            fill(&mover.memory, 0);
            seconds[side] = if side == 0 { mover.read(options)? } else { plain(options, &mover.memory)? };
            if !is_filled(&mover.memory) {
                return Err("what was read is not what was written".into());
            }
        }
        let bytes = (options.objects * options.bytes) as f64;
        let [ours, plain] = seconds.map(|seconds| bytes / seconds);
        println!(
            "round {}: {:.3} GB/s, plain {:.3} GB/s, ratio {:.3}",
            round + 1,
            ours / 1e9,
            plain / 1e9,
            ours / plain
        );
        figures.push(json!({ "bytes_per_s": ours, "plain_bytes_per_s": plain }));
    }
    mover.all(options, |key, _| ObjectWork::Delete { key })?;
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string_pretty(&figures)?)?;
    }
    Ok(())
}

fn key(n: usize) -> String {
    format!("bench/{n}")
}

impl Mover {
    fn new(options: &Options) -> Result<Self, Box<dyn Error>> {
        let (sender, ends) = sync_channel(options.objects);
        let config = ObjectConfig {
            name: "bench".to_owned(),
            endpoint: format!("http://{}", options.server),
            region: "us-east-1".to_owned(),
            bucket: options.bucket.clone(),
            credentials: ObjectCredentials { key_id: "bench".to_owned(), secret: "bench".to_owned(), token: None },
            requests_max: options.requests,
            posted_max: options.objects,
            part_bytes: options.bytes.max(ObjectConfig::PART_BYTES_MIN),
            silence_max: PATIENCE,
            give_up: PATIENCE,
        };
        let mover = ObjectMover::start(config, Box::new(move |end| drop(sender.try_send(end))))?;
        let memory = Arc::new(SealedMemory::new("bench", options.objects * options.bytes)?);
        mover.register(memory.clone());
        Ok(Self { mover, ends, memory })
    }

    /// Does something with each object, whose bytes have a place in memory, all at once.
    fn all(
        &self,
        options: &Options,
        work: impl Fn(String, std::ops::Range<u64>) -> ObjectWork,
    ) -> Result<(), Box<dyn Error>> {
        for n in 0..options.objects {
            let at = (n * options.bytes) as u64;
            self.mover.post(&self.mover.prepare(work(key(n), at..at + options.bytes as u64))?)?;
        }
        for _ in 0..options.objects {
            if self.ends.recv_timeout(PATIENCE)?.result?.outcome == ObjectOutcome::Missing {
                return Err("an object is missing".into());
            }
        }
        Ok(())
    }

    /// Seconds.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
    fn read(&self, options: &Options) -> Result<f64, Box<dyn Error>> {
        let begin = Instant::now();
        self.all(options, |key, range| {
            let pieces = vec![ObjectPiece { object: 0, memory: range.start, len: options.bytes }];
            ObjectWork::Read { key, memory: RegionId(0), pieces }
        })?;
        Ok(begin.elapsed().as_secs_f64())
    }
}

/// Seconds that the plain client takes.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn plain(options: &Options, memory: &SealedMemory) -> Result<f64, Box<dyn Error>> {
    let begin = Instant::now();
    // SAFETY: the range is the memory's, and no transfer is open.
    let memory = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), memory.len()) };
    let places: Vec<_> = memory.chunks_mut(options.bytes).map(std::sync::Mutex::new).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let client = || -> std::io::Result<()> {
            let mut connection = None;
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some(place) = places.get(n) else { return Ok(()) };
                let mut place = place.try_lock().map_err(|_| std::io::Error::other("two read one object"))?;
                get(options, &mut connection, &key(n), &mut place)?;
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
