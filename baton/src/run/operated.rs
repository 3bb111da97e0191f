//! A worker of a process of its own as the admin service sees it: its thread answers.

use super::running::Running;
use admin::{ANSWER_WAIT, Cluster, Settings, Status};
use domain::session::{PROTOCOL, Served};
use domain::{RequestId, Token, WorkerId};
use proto::admin::worker_answer::Body as Answer;
use proto::admin::worker_ask::Body as Ask;
use proto::admin::{Attempt, Explanation, Model, Nothing, Request, Worker, WorkerAnswer, WorkerAsk};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::timeout;
use worker::WorkerInput;

/// A worker for operators.
pub(super) struct OperatedWorker {
    pub(super) input: WorkerInput,
    /// Where its sessions listen.
    pub(super) address: String,
    /// The name of its model.
    pub(super) model: String,
    pub(super) served: Served,
    pub(super) settings: Arc<Running>,
}

impl OperatedWorker {
    async fn answer(&self, ask: Ask) -> Result<Answer, Status> {
        let (reply, answer) = oneshot::channel();
        let asked = self.input.ask(WorkerAsk { body: Some(ask) }, move |answer: WorkerAnswer| {
            // An operator that does not wait any more needs no answer.
            let _ = reply.send(answer);
        });
        if !asked {
            return Err(Status::unavailable("the worker has ended, or too much waits for it"));
        }
        let late = || Status::deadline_exceeded(format!("no answer in {} s: it stands still", ANSWER_WAIT.as_secs()));
        let ended = || Status::unavailable("the worker has ended");
        let answer = timeout(ANSWER_WAIT, answer).await.map_err(|_| late())?.map_err(|_| ended())?;
        answer.body.ok_or_else(|| Status::internal("the worker answers nothing"))
    }

    /// Adds what the worker's thread does not know.
    fn complete(&self, worker: Worker) -> Worker {
        Worker { address: self.address.clone(), protocol: PROTOCOL.newest, model: self.model.clone(), ..worker }
    }
}

impl Cluster for OperatedWorker {
    const SEES_ALL: bool = false;

    async fn workers(&self) -> Result<Vec<Worker>, Status> {
        match self.answer(Ask::State(Nothing {})).await? {
            Answer::State(worker) => Ok(vec![self.complete(worker)]),
            _ => Err(Status::internal("the worker answers something else")),
        }
    }

    async fn requests(&self) -> Result<Vec<Request>, Status> {
        match self.answer(Ask::Dump(Nothing {})).await? {
            Answer::Dump(dump) => Ok(dump.attempts.into_iter().map(request).collect()),
            _ => Err(Status::internal("the worker answers something else")),
        }
    }

    async fn ended(&self, _: usize) -> Result<Vec<Request>, Status> {
        Ok(Vec::new())
    }

    async fn models(&self) -> Result<Vec<Model>, Status> {
        let Served { weights, shape, layout, block_tokens, token_bytes, context_tokens, batch_invariant, grammars: _ } =
            self.served;
        Ok(vec![Model {
            name: self.model.clone(),
            created: 0,
            layers: shape.layers,
            hidden: shape.hidden,
            vocab: shape.vocab,
            context_tokens,
            block_tokens,
            token_bytes,
            weights: weights.map(|byte| format!("{byte:02x}")).concat(),
            layout,
            batch_invariant,
        }])
    }

    async fn explain(&self, _: RequestId) -> Result<Option<Explanation>, Status> {
        let why = "a worker does not choose who serves a request: ask the router (router.ops_listen)";
        Err(Status::failed_precondition(why))
    }

    fn settings(&self) -> &dyn Settings {
        &*self.settings
    }

    async fn tokens(&self, _: String) -> Result<Vec<Token>, Status> {
        Err(Status::failed_precondition("a worker has no tokenizer: ask the router (router.ops_listen)"))
    }

    async fn ask(&self, _: WorkerId, ask: WorkerAsk) -> Result<WorkerAnswer, Status> {
        let Some(ask) = ask.body else { return Err(Status::invalid_argument("nothing is asked")) };
        Ok(WorkerAnswer { body: Some(self.answer(ask).await?) })
    }
}

/// Describes the request of an attempt, as far as one worker knows it.
fn request(attempt: Attempt) -> Request {
    let Attempt { request, waits_for, age_ms, .. } = attempt;
    Request { id: request, waits_for: waits_for.join("; "), age_ms, ..Request::default() }
}
