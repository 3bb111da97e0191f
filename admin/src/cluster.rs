//! What the service needs of the process that serves it.

use crate::settings::Settings;
use domain::{RequestId, Token, WorkerId};
use proto::admin::{Explanation, Model, Request, Worker, WorkerAnswer, WorkerAsk};
use tonic::Status;

/// A router with its workers, or one worker.
pub trait Cluster: Send + Sync + 'static {
    /// Whether all workers of a cluster are seen from here, and not one alone.
    const SEES_ALL: bool;

    /// Lists the workers, by id, without their tiers. Errors: the process ends.
    fn workers(&self) -> impl Future<Output = Result<Vec<Worker>, Status>> + Send;

    /// Lists the open requests. Errors: the process ends.
    fn requests(&self) -> impl Future<Output = Result<Vec<Request>, Status>> + Send;

    /// Lists the requests that clients wait for, as far as it is known without waiting for an answer: of those that
    /// [`Self::requests`] lists as well, the ids count. A worker has no clients.
    fn open(&self) -> Vec<Request> {
        Vec::new()
    }

    /// Lists at most so many requests that ended, the latest first. Errors: the process ends.
    fn ended(&self, most: usize) -> impl Future<Output = Result<Vec<Request>, Status>> + Send;

    /// Lists the models that are served. Errors: the process ends.
    fn models(&self) -> impl Future<Output = Result<Vec<Model>, Status>> + Send;

    /// Explains a request. `None`: it is not known. Errors: the process cannot, or ends.
    fn explain(&self, request: RequestId) -> impl Future<Output = Result<Option<Explanation>, Status>> + Send;

    /// Returns the settings of the process.
    fn settings(&self) -> &dyn Settings;

    /// Makes tokens of the prompt of a request, which is the body of one to the API in JSON. Errors: it is none, or the
    /// process cannot.
    fn tokens(&self, request: String) -> impl Future<Output = Result<Vec<Token>, Status>> + Send;

    /// Asks a worker. Errors: it is not there, or does not answer in [`ANSWER_WAIT`](crate::ANSWER_WAIT).
    fn ask(&self, worker: WorkerId, ask: WorkerAsk) -> impl Future<Output = Result<WorkerAnswer, Status>> + Send;
}
