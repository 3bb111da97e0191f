//! Prefixes on the devices of workers: pinned, unpinned, parked, brought back. A router makes tokens of what an
//! operator names, and asks one worker or all of them.

use crate::cluster::Cluster;
use crate::fan_out::{ask_all, silence};
use proto::admin::prefix_ask::Body as Ask;
use proto::admin::worker_answer::Body as Answer;
use proto::admin::{
    PIN_DEFAULT, PIN_MAX, Prefix, PrefixAsk, PrefixOutcome, PrefixResponse, Worker, WorkerPrefix, worker_ask,
};
use std::sync::Arc;
use tonic::{Code, Status};

/// Returns what a pin for so many seconds asks of a worker. Errors: they are too many.
pub(crate) fn pin(seconds: u64) -> Result<Ask, Status> {
    let seconds = if seconds == 0 { PIN_DEFAULT.as_secs() } else { seconds };
    if seconds > PIN_MAX.as_secs() {
        return Err(Status::invalid_argument(format!(
            "seconds is {seconds}: a pin lasts at most {} ({} days), and can be made again",
            PIN_MAX.as_secs(),
            PIN_MAX.as_secs() / (24 * 3600)
        )));
    }
    Ok(Ask::Pin(seconds * 1000))
}

/// Asks these workers to do this with a prefix. Errors: the prefix cannot be made tokens of.
pub(crate) async fn on_workers<C: Cluster>(
    cluster: &Arc<C>,
    workers: &[Worker],
    prefix: Option<Prefix>,
    what: Ask,
) -> Result<PrefixResponse, Status> {
    let Prefix { request, tenant } =
        prefix.ok_or_else(|| Status::invalid_argument("no prefix is named: give the request whose prompt it is"))?;
    let tokens = cluster.tokens(request).await?;
    if workers.is_empty() {
        return Err(Status::unavailable("no worker is up"));
    }
    let mut response = PrefixResponse { prompt_tokens: tokens.len() as u32, ..PrefixResponse::default() };
    let ask = worker_ask::Body::Prefix(PrefixAsk { tenant, tokens, body: Some(what) });
    for (worker, answer) in ask_all(cluster, workers, ask).await {
        match answer {
            Ok(Answer::Prefix(done)) => response.workers.push(done),
            Err(status) if status.code() == Code::FailedPrecondition => response.workers.push(refusal(worker, &status)),
            other => response.silent.push(silence(&worker, other)),
        }
    }
    Ok(response)
}

/// Describes a worker that refuses the ask as such, maybe because it is of an older version.
fn refusal(worker: Worker, status: &Status) -> WorkerPrefix {
    WorkerPrefix {
        worker: worker.id,
        worker_name: worker.name,
        outcome: PrefixOutcome::Refused.into(),
        why: status.message().to_owned(),
        ..WorkerPrefix::default()
    }
}
