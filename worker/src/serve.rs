//! Sessions with routers of other processes: who may begin one, and the way of its messages between the connection and the
//! worker's thread.
//!
//! The one part of a worker that runs on tokio. A session ends when either end drops it; what becomes of its attempts is
//! [`crate::Machine`]'s matter.

use crate::inbox::WorkerInput;
use domain::Secret;
use domain::session::{FromWorker, Hello, PROTOCOL, PeerInfo, RouterHello, Served, ToWorker};
use proto::rpc::{BEGIN_WAIT, Code, Incoming, Outgoing, Status};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

#[cfg(test)]
mod tests;

/// Messages of a session on their way to the router; what is beyond it waits in the worker.
const SESSION_MESSAGES_MAX: usize = 8192;

/// What a worker says of itself to every router, and the secret that both must know.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Who it is, and where its peers find it.
    pub peer: PeerInfo,
    /// What it serves.
    pub served: Served,
    /// The cluster's.
    pub secret: Secret,
}

/// Where routers come in.
struct Entrance {
    worker: WorkerInput,
    identity: Identity,
    /// Why the last session did not begin, if none did since: who is refused, or refuses, tries again every second, and the log
    /// is told once.
    refusal: Mutex<String>,
}

impl Entrance {
    /// Tells the log that a session did not begin.
    fn tell(&self, what: &str, why: &str) {
        let mut last = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != why {
            why.clone_into(&mut last);
            tracing::warn!(worker = self.identity.peer.name, why, "{what}");
        }
    }

    /// A session has begun.
    fn begun(&self) {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn refused(&self, status: Status) -> Status {
        self.tell("a router is refused", status.message());
        status
    }
}

/// Serves sessions with `worker` on `listener` until `shutdown` is ready and those that are open have ended, or a short time
/// after it.
pub async fn serve(listener: TcpListener, worker: WorkerInput, identity: Identity, shutdown: impl Future<Output = ()>) {
    let entrance = Arc::new(Entrance { worker, identity, refusal: Mutex::default() });
    let session = move |incoming| begin(entrance.clone(), incoming);
    proto::rpc::serve(listener, session, shutdown).await;
}

/// Hears a router's hello and answers it; the session goes on by itself. Errors: the router is refused.
async fn begin(entrance: Arc<Entrance>, mut incoming: Incoming) -> Result<Outgoing, Status> {
    let router = match hear(&mut incoming).await? {
        ToWorker::Hello(hello) => hello,
        _ => return Err(Status::failed_precondition("a session begins with a hello")),
    };
    if router.protocol != PROTOCOL {
        let theirs = router.protocol;
        let detail = format!("the worker speaks protocol {PROTOCOL}, the router {theirs}: they must be of one version");
        return Err(entrance.refused(Status::failed_precondition(detail)));
    }
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| Status::internal(format!("no random numbers: {error}")))?;
    let identity = &entrance.identity;
    let hello = Hello::answer(&identity.secret, &router, identity.peer.clone(), identity.served, nonce);
    let (sender, outgoing) = mpsc::channel(SESSION_MESSAGES_MAX);
    let bytes = proto::session::encode_from_worker(&FromWorker::Hello(Box::new(hello.clone())));
    sender.try_send(Ok(bytes)).map_err(|_| Status::internal("an empty queue is full"))?;
    tokio::spawn(async move {
        if let Err(status) = session(&entrance, router, hello, incoming, &sender).await {
            // Where the router is gone, nobody wants to know.
            let _ = sender.send(Err(status)).await;
        }
    });
    Ok(outgoing)
}

/// The session after the hellos, until it ends. Errors: what the router is told about its end.
async fn session(
    entrance: &Entrance,
    router: RouterHello,
    hello: Hello,
    mut incoming: Incoming,
    sender: &mpsc::Sender<Result<Vec<u8>, Status>>,
) -> Result<(), Status> {
    let proof = hear(&mut incoming).await.map_err(|status| match status.code() {
        Code::DeadlineExceeded | Code::InvalidArgument => entrance.refused(status),
        // It says nothing more to whom it does not trust, nor would it be trusted.
        _ => {
            let why = "it ended the session at this worker's hello: unless it ended itself, give both the same secret (cluster.secret)";
            entrance.tell("a router refuses this worker", why);
            status
        }
    })?;
    let proven = match proof {
        ToWorker::Proof(proof) => hello.proves_router(&entrance.identity.secret, &router, &proof),
        _ => false,
    };
    if !proven {
        let detail = "the router does not know the secret of the worker's cluster (cluster.secret)";
        return Err(entrance.refused(Status::unauthenticated(detail)));
    }
    // Dropped with the worker's end of the session.
    let (held, dropped) = oneshot::channel::<()>();
    let outgoing = sender.clone();
    let send = Box::new(move |bytes| {
        let _ = &held;
        outgoing.try_send(Ok(bytes)).map_err(|error| error.into_inner().unwrap_or_default())
    });
    let input = entrance
        .worker
        .open_session(send)
        .ok_or_else(|| Status::unavailable("the worker has ended or is overloaded"))?;
    let heard = async {
        let mut is_first = true;
        while let Ok(Some(bytes)) = incoming.message().await {
            if std::mem::take(&mut is_first) {
                if let Ok(ToWorker::Refused { why }) = proto::session::decode_to_worker(&bytes) {
                    entrance.tell("a router refuses this worker", &why);
                    return Ok(());
                }
                entrance.begun();
            }
            if !input.send(bytes) {
                return Err(Status::resource_exhausted("the worker's inbox is full"));
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = heard => ended,
        _ = dropped => Ok(()),
    }
}

/// The next message of a router that is about to begin. Errors: it says nothing in time, or no message.
async fn hear(incoming: &mut Incoming) -> Result<ToWorker, Status> {
    let message = timeout(BEGIN_WAIT, incoming.message()).await;
    let message = message.map_err(|_| Status::deadline_exceeded("the router says nothing"))??;
    let bytes = message.ok_or_else(|| Status::cancelled("the router ended the session"))?;
    proto::session::decode_to_worker(&bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}
