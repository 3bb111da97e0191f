//! Asking many workers at once.

use crate::cluster::Cluster;
use domain::WorkerId;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use proto::admin::worker_answer::Body as Answer;
use proto::admin::worker_ask::Body as Ask;
use proto::admin::{ListLanesResponse, ListTiersResponse, Nothing, Silence, Worker, WorkerAsk};
use std::sync::Arc;
use tonic::Status;

/// Workers that are asked at once.
const FAN_OUT: usize = 32;

/// Asks one worker. Errors: it does not answer, or refuses.
pub(crate) async fn ask(cluster: &impl Cluster, worker: &Worker, ask: Ask) -> Result<Answer, Status> {
    match cluster.ask(WorkerId(worker.id), WorkerAsk { body: Some(ask) }).await?.body {
        Some(Answer::Refused(why)) => Err(Status::failed_precondition(format!("{}: {why}", worker.name))),
        Some(answer) => Ok(answer),
        None => Err(unexpected(worker)),
    }
}

/// Returns the error of an answer to something else.
pub(crate) fn unexpected(worker: &Worker) -> Status {
    Status::internal(format!("{} answers something else than it was asked: is it of another version?", worker.name))
}

/// Asks these workers for their lanes.
pub(crate) async fn lanes(cluster: &Arc<impl Cluster>, workers: &[Worker]) -> ListLanesResponse {
    let mut all = ListLanesResponse::default();
    for (worker, answer) in ask_all(cluster, workers, Ask::Lanes(Nothing {})).await {
        match answer {
            Ok(Answer::Lanes(its)) => all.lanes.extend(its.lanes),
            other => all.silent.push(silence(&worker, other)),
        }
    }
    all
}

/// Asks these workers for their tiers.
pub(crate) async fn tiers(cluster: &Arc<impl Cluster>, workers: &[Worker]) -> ListTiersResponse {
    let mut all = ListTiersResponse::default();
    for (worker, answer) in ask_all(cluster, workers, Ask::Tiers(Nothing {})).await {
        match answer {
            Ok(Answer::Tiers(its)) => all.tiers.extend(its.tiers),
            other => all.silent.push(silence(&worker, other)),
        }
    }
    all
}

/// Asks these workers the same, and returns the answers in their order.
pub(crate) async fn ask_all(
    cluster: &Arc<impl Cluster>,
    workers: &[Worker],
    what: Ask,
) -> Vec<(Worker, Result<Answer, Status>)> {
    let (cluster, workers) = (cluster.clone(), workers.to_vec());
    // What is asked may be long: it is copied when a worker is asked, not before.
    let asks = stream::iter(workers).map(move |worker| one(cluster.clone(), worker, what.clone()));
    asks.buffered(FAN_OUT).collect().await
}

/// Asks one of many.
fn one(cluster: Arc<impl Cluster>, worker: Worker, what: Ask) -> BoxFuture<'static, (Worker, Result<Answer, Status>)> {
    async move {
        let answer = ask(&*cluster, &worker, what).await;
        (worker, answer)
    }
    .boxed()
}

/// Describes a worker that did not answer, or answered something else.
pub(crate) fn silence(worker: &Worker, answer: Result<Answer, Status>) -> Silence {
    let status = answer.err().unwrap_or_else(|| unexpected(worker));
    Silence { worker: worker.name.clone(), why: status.message().to_owned() }
}
