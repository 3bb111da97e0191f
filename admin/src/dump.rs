//! A dump: what each request and each thread waits for. It is asked for when something hangs, so what does not answer
//! is named, and the rest comes all the same.

use crate::cluster::Cluster;
use crate::fan_out::{ask, unexpected};
use proto::admin::worker_answer::Body as Answer;
use proto::admin::worker_ask::Body as Ask;
use proto::admin::{DumpResponse, Nothing, Thread, Worker, WorkerDump};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;
use tonic::{Code, Status};

/// How long a dump waits for what has to answer: the router's brain, or a worker's step loop.
pub(crate) const PART_WAIT: Duration = Duration::from_secs(2);

/// A part of a dump.
enum Part<T> {
    Answered(T),
    /// What did not answer, in words.
    Unanswered(String),
}

/// Makes a dump, with the worker of that name, if it has one, which `find` finds. Errors: there is no such worker.
pub(crate) async fn dump<C: Cluster>(
    cluster: &C,
    name: &str,
    find: impl Future<Output = Result<Worker, Status>>,
) -> Result<DumpResponse, Status> {
    // First: nothing is waited for until then.
    let threads::Listed { threads, left_out } = threads::list();
    let everything = if C::SEES_ALL { "the router" } else { "the step loop" };
    let one = if C::SEES_ALL { format!("the step loop of {name}") } else { everything.to_owned() };
    let is_asked = !C::SEES_ALL || !name.is_empty();
    let found = AtomicBool::new(false);
    let worker = async {
        if !is_asked {
            return Ok(None);
        }
        let worker = find.await?;
        found.store(true, Ordering::Relaxed);
        of_worker(cluster, worker).await.map(Some)
    };
    // A worker that was not found was not asked.
    let asked = || if found.load(Ordering::Relaxed) { &one } else { everything };
    let (requests, worker) = tokio::join!(part(|| everything, cluster.requests()), part(asked, worker));
    let mut unanswered = Vec::new();
    let mut requests = requests?.or_note(&mut unanswered);
    // Looked at last: what has begun since then is open, and what has ended is not.
    let known: BTreeSet<String> = requests.iter().map(|request| request.id.clone()).collect();
    requests.extend(cluster.open().into_iter().filter(|open| !known.contains(&open.id)));
    let worker = worker?.or_note(&mut unanswered);
    // A step loop is asked for both.
    unanswered.dedup();
    Ok(DumpResponse {
        requests,
        worker,
        threads: threads.into_iter().map(thread).collect(),
        threads_left_out: left_out as u32,
        unanswered,
        process: std::process::id(),
    })
}

/// Asks a worker what it has to do.
async fn of_worker(cluster: &impl Cluster, worker: Worker) -> Result<WorkerDump, Status> {
    match ask(cluster, &worker, Ask::Dump(Nothing {})).await? {
        Answer::Dump(dump) => Ok(dump),
        _ => Err(unexpected(&worker)),
    }
}

/// Waits for a part of a dump, for [`PART_WAIT`]. Errors: what is asked for is not there.
async fn part<'a, T>(
    of: impl Fn() -> &'a str,
    asked: impl Future<Output = Result<T, Status>>,
) -> Result<Part<T>, Status> {
    let answer = timeout(PART_WAIT, asked).await;
    let of = of();
    Ok(match answer {
        Ok(Ok(answer)) => Part::Answered(answer),
        Ok(Err(status)) if status.code() == Code::NotFound => return Err(status),
        Ok(Err(status)) => Part::Unanswered(format!("{of} did not answer: {}", status.message())),
        Err(_) => Part::Unanswered(format!("{of} did not answer for {} ms", PART_WAIT.as_millis())),
    })
}

impl<T: Default> Part<T> {
    /// Returns the answer. Where there is none, what did not answer is noted.
    fn or_note(self, unanswered: &mut Vec<String>) -> T {
        match self {
            Self::Answered(answer) => answer,
            Self::Unanswered(what) => {
                unanswered.push(what);
                T::default()
            }
        }
    }
}

/// Describes a thread.
fn thread(thread: threads::Thread) -> Thread {
    let threads::Thread { id, name, state, cpu, kernel, doing } = thread;
    let (doing, time) = doing.map_or(("", Duration::ZERO), |(doing, time)| (doing.words(), time));
    Thread {
        id,
        name,
        state: state.map_or("", threads::State::word).to_owned(),
        cpu_s: cpu.as_secs_f64(),
        kernel,
        doing: doing.to_owned(),
        doing_ms: time.as_secs_f64() * 1e3,
    }
}
