//! What many sessions cost that have nothing to say: the CPU time of a router with so many workers, and of the
//! workers' ends.
//!
//! The router is a real process. The workers are played by this one: each has a listener of its own and does on
//! its session what a worker without requests does, without the step loop behind it.

use crate::processes::{Process, binary};
use domain::session::{
    Challenge, FromWorker, ModelShape, Opening, PROTOCOL, PeerAddress, PeerInfo, Role, Served, ToWorker,
};
use domain::{Incarnation, Secret, WorkerId};
use proto::queue::queue;
use proto::rpc::{Incoming, Outgoing, PortLimits, Status, Stranger};
use proto::session::{decode_to_worker, encode_from_worker};
use std::error::Error;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::time::sleep;

/// Workers.
const WORKERS: u32 = 2000;
/// How long they are watched.
const WATCHED: Duration = Duration::from_secs(20);
/// Bytes that wait for a connection, as a worker's do.
const QUEUE_BYTES: usize = 1 << 20;
/// What a model serves, as far as a router asks.
const SHAPE: ModelShape = ModelShape { vocab: 4096, layers: 2, hidden: 64 };
const SERVED: Served = Served {
    weights: [1; 32],
    shape: SHAPE,
    layout: 7,
    block_tokens: 16,
    token_bytes: 64,
    context_tokens: 512,
    batch_invariant: true,
    grammars: true,
};
/// What the router and the workers know.
const SECRET: &str = "of nobody but this benchmark";
/// Looks whether all sessions have begun.
const LOOKS_MAX: usize = 300;
/// Time between two.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// What the played workers saw.
#[derive(Debug, Default)]
struct Seen {
    sessions: AtomicUsize,
    beats: AtomicUsize,
}

/// Measures and prints.
pub(super) async fn run() -> Result<(), Box<dyn Error>> {
    let seen = Arc::<Seen>::default();
    let mut addresses = Vec::new();
    for id in 0..WORKERS {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        addresses.push(listener.local_addr()?.to_string());
        let seen = seen.clone();
        let session = move |stranger, incoming| play(id, seen.clone(), stranger, incoming);
        tokio::spawn(proto::rpc::serve(listener, PortLimits::default(), session, std::future::pending()));
    }
    let mut command = Command::new(binary()?);
    command.args(["router", "--listen", "127.0.0.1:0", "--log-level", "error", "--workers", &addresses.join(",")]);
    command.env("BATON_CLUSTER__SECRET", SECRET);
    let (router, _) = Process::start(command)?;
    let mut looks = 0;
    while seen.sessions.load(Ordering::Relaxed) < WORKERS as usize {
        looks += 1;
        if looks > LOOKS_MAX {
            return Err(format!("{} of {WORKERS} sessions began", seen.sessions.load(Ordering::Relaxed)).into());
        }
        sleep(LOOK_PAUSE).await;
    }
    // What the beginning of so many left to do.
    sleep(5 * LOOK_PAUSE).await;
    watch(&seen, router.id()).await
}

/// Watches them for a while.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
async fn watch(seen: &Seen, router: u32) -> Result<(), Box<dyn Error>> {
    let used = || -> Result<[f64; 2], Box<dyn Error>> { Ok([cpu_seconds(router)?, cpu_seconds(std::process::id())?]) };
    let (began, before, beats) = (Instant::now(), used()?, seen.beats.load(Ordering::Relaxed));
    sleep(WATCHED).await;
    let (after, seconds) = (used()?, began.elapsed().as_secs_f64());
    let share = |at: usize| (after[at] - before[at]) / seconds * 100.0;
    let beats = (seen.beats.load(Ordering::Relaxed) - beats) as f64 / seconds;
    let sessions = seen.sessions.load(Ordering::Relaxed);
    if sessions != WORKERS as usize {
        return Err(format!("{} sessions ended or began anew meanwhile", sessions.abs_diff(WORKERS as usize)).into());
    }
    println!("{WORKERS} idle sessions, {beats:.0} signs of life a second each way:");
    println!("{:.1}% of a core for the router, {:.1}% for the workers' ends", share(0), share(1));
    Ok(())
}

/// Makes a worker without requests. All but the first compute prompts: those have nothing to do with each other.
async fn play(id: u32, seen: Arc<Seen>, stranger: Stranger, mut incoming: Incoming) -> Result<Outgoing, Status> {
    let broken = |_| Status::invalid_argument("a broken message");
    let first = incoming.message().await?.ok_or_else(|| Status::cancelled("no hello"))?;
    let ToWorker::Hello(router) = decode_to_worker(&first).map_err(broken)? else {
        return Err(Status::failed_precondition("no hello"));
    };
    let role = if id == 0 { Role::Decode } else { Role::Prefill };
    let (name, address) = (format!("worker-{id}"), PeerAddress::default());
    let peer = PeerInfo { id: WorkerId(id), incarnation: Incarnation(1), name, role, address };
    let worker = Challenge { versions: PROTOCOL, nonce: [3; 32] };
    let hello = Opening { router, worker }.hello(&Secret::new(SECRET), peer, SERVED);
    let (sender, outgoing) = queue(QUEUE_BYTES);
    tokio::spawn(async move {
        let say = |message| sender.try_send(Ok(encode_from_worker(&message)), 0).is_ok();
        // The router's proof is good: it is this benchmark's.
        if !say(FromWorker::Challenge(worker))
            || !matches!(incoming.message().await, Ok(Some(_)))
            || !stranger.has_proven_itself()
            || !say(FromWorker::Hello(Box::new(hello)))
        {
            return;
        }
        seen.sessions.fetch_add(1, Ordering::Relaxed);
        let mut open = say(FromWorker::Heartbeat);
        while open && let Ok(Some(bytes)) = incoming.message().await {
            if let Ok(ToWorker::Heartbeat) = decode_to_worker(&bytes) {
                seen.beats.fetch_add(1, Ordering::Relaxed);
                open = say(FromWorker::Heartbeat);
            }
        }
        seen.sessions.fetch_sub(1, Ordering::Relaxed);
    });
    Ok(outgoing)
}

/// Returns the CPU time of the threads that a process has, with that of the kernel for them.
fn cpu_seconds(process: u32) -> Result<f64, Box<dyn Error>> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        nanoseconds += text.split(' ').next().ok_or("no CPU time")?.parse::<u64>()?;
    }
    Ok(nanoseconds as f64 / 1e9)
}
