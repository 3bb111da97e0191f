//! Tokens carried for each second of CPU time. Both ends are in this process and meet over loopback, so its CPU
//! time is that of both, with that of the kernel in between.

use domain::session::{FromWorker, ToWorker, TokenRow};
use domain::{Choice, Epoch, RequestId, SeqKey};
use proto::queue::queue;
use proto::rpc::{Incoming, PortLimits, Status, Stranger};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::time::Instant;
use tokio::net::TcpListener;

/// Tokens of a step: one row for each running sequence.
const ROWS: usize = 64;
/// Steps of a measurement.
const FRAMES: usize = 40_000;
/// Measurements; the best one counts, since what disturbs one only makes it slower.
const REPEATS: usize = 5;
/// Bytes that wait for a connection, as a worker's do.
const QUEUE_BYTES: usize = 1 << 20;

pub(super) async fn run() -> Result<(), Box<dyn Error>> {
    let mut best = Cost { cpu: f64::INFINITY, wall: f64::INFINITY };
    for _ in 0..REPEATS {
        let cost = tokens().await?;
        if cost.cpu < best.cpu {
            best = cost;
        }
    }
    let tokens = (FRAMES * ROWS) as f64;
    println!("frames of {ROWS} tokens, encoded, carried and decoded; CPU time of both ends:");
    println!("{:.2} million tokens a second of CPU time", tokens / best.cpu / 1e6);
    println!("{:.2} million tokens a second of wall time", tokens / best.wall / 1e6);
    println!("{:.2} microseconds of CPU time a frame", best.cpu / FRAMES as f64 * 1e6);
    Ok(())
}

/// Seconds.
struct Cost {
    cpu: f64,
    wall: f64,
}

/// Runs one session that carries tokens as fast as it can.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
async fn tokens() -> Result<Cost, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let worker = |stranger: Stranger, mut incoming: Incoming| async move {
        incoming.message().await?;
        if !stranger.has_proven_itself() {
            return Err(Status::resource_exhausted("it is too late"));
        }
        let (sender, outgoing) = queue(QUEUE_BYTES);
        tokio::spawn(async move {
            for step in 0..FRAMES {
                let bytes = proto::session::encode_from_worker(&FromWorker::Tokens(rows(step as u32)));
                if sender.send(Ok::<_, Status>(bytes)).await.is_err() {
                    return;
                }
            }
        });
        Ok(outgoing)
    };
    let served = tokio::spawn(proto::rpc::serve(listener, PortLimits::default(), worker, std::future::pending()));
    let (sender, outgoing) = queue(QUEUE_BYTES);
    let said = sender.try_send(proto::session::encode_to_worker(&ToWorker::Heartbeat), 0);
    said.map_err(|_| "an empty queue is full")?;
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let (mut incoming, gate) = proto::rpc::open(&address, None, outgoing).await?;
    gate.open();
    let mut rows = 0;
    while let Some(bytes) = incoming.message().await? {
        match proto::session::decode_from_worker(&bytes)? {
            FromWorker::Tokens(tokens) => rows += tokens.len(),
            other => return Err(format!("not a frame of tokens: {other:?}").into()),
        }
    }
    let cost = Cost { cpu: cpu_seconds() - cpu, wall: began.elapsed().as_secs_f64() };
    served.abort();
    if rows != FRAMES * ROWS { Err(format!("{rows} tokens arrived").into()) } else { Ok(cost) }
}

/// Returns a step's tokens, as they are in the middle of an answer.
fn rows(step: u32) -> Vec<TokenRow> {
    let row = |at: u64| TokenRow {
        key: SeqKey { request: RequestId(0x1234_5678_9abc_def0 + at), epoch: Epoch(1), choice: Choice(0) },
        index: 500 + step,
        token: 70_000 + at as u32,
        logprobs: None,
        cached_tokens: 0,
    };
    (0..ROWS as u64).map(row).collect()
}

/// Returns the CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
