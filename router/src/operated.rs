//! The router as the admin service sees it: its brain answers, and passes on what is asked of workers.

use crate::brain::{AskError, Note, OperatorNote};
use crate::dialects::prefix;
use crate::http::App;
use admin::{ANSWER_WAIT, Cluster, Settings, Status};
use domain::{RequestId, Token, WorkerId};
use proto::admin::{Explanation, Message, Model, Request, Worker, WorkerAnswer, WorkerAsk};
use std::sync::Arc;
use threads::Doing;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// Prefixes that are made tokens of at once; more wait. Each may take a processor for seconds.
const TOKENIZED_AT_ONCE: usize = 1;

/// A router for operators.
pub(crate) struct Operated {
    app: Arc<App>,
    tokenizes: Arc<Semaphore>,
}

impl Operated {
    pub(crate) fn new(app: Arc<App>) -> Self {
        Self { app, tokenizes: Arc::new(Semaphore::new(TOKENIZED_AT_ONCE)) }
    }

    /// Asks the brain. `None`: no worker has been up yet, so that there is no brain to ask. Errors: the router ends.
    async fn brain<T>(&self, note: impl FnOnce(oneshot::Sender<T>) -> OperatorNote) -> Result<Option<T>, Status> {
        if self.app.service.borrow().is_none() {
            return Ok(None);
        }
        let ends = || Status::unavailable("the router ends");
        let (reply, answer) = oneshot::channel();
        self.app.notes.send(Note::Operator(note(reply))).await.map_err(|_| ends())?;
        answer.await.map(Some).map_err(|_| ends())
    }
}

impl Cluster for Operated {
    const SEES_ALL: bool = true;

    async fn workers(&self) -> Result<Vec<Worker>, Status> {
        let mut workers = self.brain(OperatorNote::Workers).await?.unwrap_or_default();
        workers.iter_mut().for_each(|worker| worker.model.clone_from(&self.app.card.name));
        Ok(workers)
    }

    async fn requests(&self) -> Result<Vec<Request>, Status> {
        Ok(self.brain(OperatorNote::Requests).await?.unwrap_or_default())
    }

    fn open(&self) -> Vec<Request> {
        self.app.open_requests.list(self.app.clock)
    }

    async fn ended(&self, most: usize) -> Result<Vec<Request>, Status> {
        Ok(self.brain(|reply| OperatorNote::Ended(most, reply)).await?.unwrap_or_default())
    }

    async fn models(&self) -> Result<Vec<Model>, Status> {
        let App { card, service, .. } = &*self.app;
        let served = service.borrow().map(|service| service.served);
        Ok(vec![Model {
            name: card.name.clone(),
            created: card.created,
            layers: card.shape.layers,
            hidden: card.shape.hidden,
            vocab: card.shape.vocab,
            context_tokens: served.map_or(0, |served| served.context_tokens),
            block_tokens: served.map_or(0, |served| served.block_tokens),
            token_bytes: served.map_or(0, |served| served.token_bytes),
            weights: served
                .map_or_else(String::new, |served| served.weights.map(|byte| format!("{byte:02x}")).concat()),
            layout: served.map_or(0, |served| served.layout),
            batch_invariant: served.is_some_and(|served| served.batch_invariant),
        }])
    }

    async fn explain(&self, request: RequestId) -> Result<Option<Explanation>, Status> {
        Ok(self.brain(|reply| OperatorNote::Explain(request, reply)).await?.flatten())
    }

    fn settings(&self) -> &dyn Settings {
        &*self.app.config.settings
    }

    async fn tokens(&self, request: String) -> Result<Vec<Token>, Status> {
        let app = self.app.clone();
        let limits = app.limits().map_err(|error| error.to_admin())?;
        let turn = self.tokenizes.clone().acquire_owned().await.expect("it is never closed");
        // An operator that goes meanwhile does not stop it, so it keeps its turn until its end.
        let read = move || {
            let read = || prefix(request.as_bytes(), &app.card, &limits);
            let tokens = threads::during(Doing::ReadsPrompt, read);
            drop(turn);
            tokens
        };
        let tokens = tokio::task::spawn_blocking(read).await;
        let failed = |error| Status::internal(format!("reading the request failed: {error}"));
        Ok(tokens.map_err(failed)?.map_err(|error| error.to_admin())?.to_vec())
    }

    async fn ask(&self, worker: WorkerId, ask: WorkerAsk) -> Result<WorkerAnswer, Status> {
        let ask = ask.encode_to_vec();
        let asked = self.brain(|reply| OperatorNote::Ask { worker, ask, reply });
        let answer = match timeout(ANSWER_WAIT, asked).await {
            Err(_) => {
                return Err(Status::deadline_exceeded(format!(
                    "{worker} did not answer in {} s: it stands still",
                    ANSWER_WAIT.as_secs()
                )));
            }
            Ok(Ok(None)) => Err(AskError::Gone),
            Ok(Ok(Some(answer))) => answer,
            // Its session ended before it answered; or the router ends, which is as well.
            Ok(Err(_)) => Err(AskError::Gone),
        };
        let answer = answer.map_err(|error| match error {
            AskError::Gone => Status::unavailable(error.to_string()),
            AskError::Full => Status::resource_exhausted(error.to_string()),
            AskError::Older(_) => Status::failed_precondition(error.to_string()),
        })?;
        let strange = |error| Status::internal(format!("what {worker} answers cannot be read: {error}"));
        WorkerAnswer::decode(answer.as_slice()).map_err(strange)
    }
}
