//! What sessions between processes cost: tokens carried for each second of CPU time, and sessions that have nothing to say.
//! Both ends are in this process and meet over loopback, so its CPU time is that of both, with that of the kernel in between.

use domain::session::{FromWorker, ToWorker, TokenRow};
use domain::{Choice, Epoch, RequestId, SeqKey};
use proto::rpc::{Incoming, Status};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Tokens of a step: one row for each running sequence.
const ROWS: usize = 64;
/// Steps of a measurement.
const FRAMES: usize = 40_000;
/// Measurements; the best one counts, since what disturbs one only makes it slower.
const REPEATS: usize = 5;
/// Messages that wait for a connection.
const QUEUE: usize = 1024;
/// Sessions that say signs of life and nothing else.
const IDLE: usize = 2000;
/// How often a worker says one by the default of `session.heartbeat_ms`, and a router, which does so a quarter of that time
/// before it is due at the latest.
const WORKER_BEATS: Duration = Duration::from_millis(1500);
const ROUTER_BEATS: Duration = Duration::from_millis(1125);
/// How long idle sessions are watched.
const WATCHED: Duration = Duration::from_secs(20);

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
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
        let share = idle().await?;
        println!("{IDLE} idle sessions with heartbeats, both ends: {:.1}% of a core", share * 100.0);
        Ok(())
    })
}

/// Seconds.
struct Cost {
    cpu: f64,
    wall: f64,
}

/// One session that carries tokens as fast as it can.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
async fn tokens() -> Result<Cost, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let worker = |mut incoming: Incoming| async move {
        incoming.message().await?;
        let (sender, outgoing) = mpsc::channel(QUEUE);
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
    let served = tokio::spawn(proto::rpc::serve(listener, worker, std::future::pending()));
    let (sender, outgoing) = mpsc::channel(1);
    sender.send(proto::session::encode_to_worker(&ToWorker::Heartbeat)).await?;
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let mut incoming = proto::rpc::open(&address, outgoing).await?;
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

/// The share of a core that idle sessions take.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
async fn idle() -> Result<f64, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let worker = |mut incoming: Incoming| async move {
        let (sender, outgoing) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            let mut beats = interval(WORKER_BEATS);
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    message = incoming.message() => if !matches!(message, Ok(Some(_))) { return },
                    _ = beats.tick() => {
                        let bytes = proto::session::encode_from_worker(&FromWorker::Heartbeat);
                        if sender.send(Ok(bytes)).await.is_err() { return }
                    }
                }
            }
        });
        Ok(outgoing)
    };
    let served = tokio::spawn(proto::rpc::serve(listener, worker, std::future::pending()));
    let mut routers = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        let (sender, outgoing) = mpsc::channel(QUEUE);
        let mut incoming = proto::rpc::open(&address, outgoing).await?;
        routers.push(tokio::spawn(async move {
            let mut beats = interval(ROUTER_BEATS);
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    message = incoming.message() => if !matches!(message, Ok(Some(_))) { return },
                    _ = beats.tick() => {
                        let bytes = proto::session::encode_to_worker(&ToWorker::Heartbeat);
                        if sender.send(bytes).await.is_err() { return }
                    }
                }
            }
        }));
    }
    sleep(Duration::from_secs(1)).await;
    let (began, cpu) = (Instant::now(), cpu_seconds());
    sleep(WATCHED).await;
    let share = (cpu_seconds() - cpu) / began.elapsed().as_secs_f64();
    if let Some(at) = routers.iter().position(tokio::task::JoinHandle::is_finished) {
        return Err(format!("session {at} ended").into());
    }
    routers.iter().for_each(tokio::task::JoinHandle::abort);
    served.abort();
    Ok(share)
}

/// A step's tokens, as they are in the middle of an answer.
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

/// CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// As many open files as the system allows: each session is two here.
fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it is refused, opening sessions says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
