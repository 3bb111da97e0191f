//! Sessions with routers of other processes: who may begin one, and the way of its messages between the connection
//! and the worker's thread.
//!
//! A router is a stranger until it has proven that it knows the cluster's secret. A stranger is told nothing but
//! one sentence, which is the same for all. The one part of a worker that runs on tokio. A session ends when
//! either end drops it; what becomes of its attempts is [`crate::Machine`]'s matter.

use crate::inbox::WorkerInput;
use domain::session::{Challenge, FromWorker, Hello, Opening, PROTOCOL, PeerInfo, Role, Served, ToWorker};
use domain::{NO_COMMON_VERSION, Secrets, Versions};
use proto::queue::{Sender, queue};
use proto::rpc::{Incoming, Outgoing, PortLimits, Status, Stranger};
use proto::tls::Port;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{oneshot, watch};

#[cfg(test)]
mod tests;

/// Bytes of a session on their way to the router, beside those in the connection; what is beyond it waits in the
/// worker.
const SESSION_BYTES_MAX: usize = 1 << 20;
/// What every router is told that has not proven itself.
const STRANGER: &str =
    "the router has not proven that it knows the secret of the worker's cluster: set the same cluster.secret on both";

/// What a worker says of itself to every router that has proven itself, and the secrets of the cluster.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Who it is, and where its peers find it. Its role is that of the beginning.
    pub peer: PeerInfo,
    /// What it is there for, as it changes.
    pub role: watch::Receiver<Role>,
    /// What it serves.
    pub served: Served,
    /// The cluster's.
    pub secrets: Secrets,
}

/// Where routers come in.
struct Entrance {
    worker: WorkerInput,
    identity: Identity,
    told: Mutex<Told>,
}

/// What the log was told since a session last began. A router that is refused, or refuses, tries again every
/// second, and the log is told once.
#[derive(Default)]
struct Told {
    /// That a router speaks another protocol.
    protocol: bool,
    /// That a router knows another secret.
    secret: bool,
    /// Why a router refuses this worker.
    refused_by: String,
}

impl Entrance {
    /// Makes what is said to a router that knows the secret, proven by the same one. Others get nothing.
    fn hello(&self, opening: &Opening, proof: &[u8; 32]) -> Option<Hello> {
        let Identity { peer, role, served, secrets } = &self.identity;
        let secret = opening.proven_by(secrets, proof)?;
        let peer = PeerInfo { role: *role.borrow(), ..peer.clone() };
        Some(opening.hello(secret, peer, *served))
    }

    /// Tells the log of a router that speaks another protocol, and gives what to tell the router.
    fn other_protocol(&self, from: SocketAddr, theirs: Versions) -> Status {
        let why = format!("the worker speaks protocol {PROTOCOL}, the router {theirs}; {NO_COMMON_VERSION}");
        if !std::mem::replace(&mut self.told().protocol, true) {
            tracing::warn!(worker = self.identity.peer.name, %from, why, "a router is refused");
        }
        Status::failed_precondition(why)
    }

    /// Tells the log of a router that knows another secret, and gives what to tell the router.
    fn other_secret(&self, from: SocketAddr) -> Status {
        if !std::mem::replace(&mut self.told().secret, true) {
            let why = "it does not know the secret of this worker's cluster: set the same cluster.secret on both";
            tracing::warn!(worker = self.identity.peer.name, %from, why, "a router is refused");
        }
        Status::unauthenticated(STRANGER)
    }

    /// Tells the log of a router that knows the secret and does without this worker.
    fn refused_by(&self, from: SocketAddr, why: &str) {
        let mut told = self.told();
        if told.refused_by != why {
            why.clone_into(&mut told.refused_by);
            tracing::warn!(worker = self.identity.peer.name, %from, why, "a router refuses this worker");
        }
    }

    /// Forgets what was told: a session has begun.
    fn begun(&self) {
        *self.told() = Told::default();
    }

    /// A panic while it was held left nothing half done.
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves sessions with `worker` on `port` until `shutdown` is ready and those that are open have ended, or a short
/// time after it.
pub async fn serve(port: impl Into<Port>, worker: WorkerInput, identity: Identity, shutdown: impl Future<Output = ()>) {
    let entrance = Arc::new(Entrance { worker, identity, told: Mutex::default() });
    let session = move |stranger, incoming| begin(entrance.clone(), stranger, incoming);
    proto::rpc::serve(port, PortLimits::default(), session, shutdown).await;
}

/// Hears a router's hello and challenges it; the session goes on by itself. Errors: the router is refused.
async fn begin(entrance: Arc<Entrance>, stranger: Stranger, mut incoming: Incoming) -> Result<Outgoing, Status> {
    let Some(ToWorker::Hello(router)) = hear(&mut incoming).await else {
        return Err(Status::unauthenticated(STRANGER));
    };
    if PROTOCOL.common(router.versions).is_none() {
        return Err(entrance.other_protocol(stranger.address, router.versions));
    }
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| Status::internal(format!("no random numbers: {error}")))?;
    let challenge = Challenge { versions: PROTOCOL, nonce };
    let (sender, outgoing) = queue(SESSION_BYTES_MAX);
    say(&sender, &FromWorker::Challenge(challenge))?;
    let opening = Opening { router, worker: challenge };
    tokio::spawn(async move {
        if let Err(status) = session(&entrance, opening, stranger, incoming, &sender).await {
            // Where the router is gone, nobody wants to know.
            let _ = sender.send(Err(status)).await;
        }
    });
    Ok(outgoing)
}

/// The session after the challenge, until it ends. Errors: what the router is told about its end.
async fn session(
    entrance: &Entrance,
    opening: Opening,
    stranger: Stranger,
    mut incoming: Incoming,
    sender: &Sender<Result<Vec<u8>, Status>>,
) -> Result<(), Status> {
    let from = stranger.address;
    let hello = match hear(&mut incoming).await {
        Some(ToWorker::Proof(proof)) => entrance.hello(&opening, &proof).ok_or_else(|| entrance.other_secret(from))?,
        _ => return Err(Status::unauthenticated(STRANGER)),
    };
    if !stranger.has_proven_itself() {
        return Err(Status::resource_exhausted(
            "the worker has as many sessions as it takes, or the proof came too late",
        ));
    }
    say(sender, &FromWorker::Hello(Box::new(hello)))?;
    // Dropped with the worker's end of the session.
    let (held, dropped) = oneshot::channel::<()>();
    let outgoing = sender.clone();
    let send = Box::new(move |bytes| {
        let _ = &held;
        outgoing.try_send(Ok(bytes), 0).map_err(Result::unwrap_or_default)
    });
    let input = entrance.worker.open_session(send).ok_or_else(|| Status::unavailable("the worker has ended"))?;
    let heard = async {
        let mut is_first = true;
        while let Ok(Some(bytes)) = incoming.message().await {
            if std::mem::take(&mut is_first) {
                if let Ok(ToWorker::Refused { why }) = proto::session::decode_to_worker(&bytes) {
                    entrance.refused_by(from, &why);
                    return Ok(());
                }
                entrance.begun();
            }
            // While the inbox is full, nothing more is read: the connection's window closes, and the router keeps
            // the rest.
            if !input.send(bytes).await {
                return Err(Status::unavailable("the worker has ended"));
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = heard => ended,
        _ = dropped => Ok(()),
    }
}

/// Queues a message. Errors: there is no room, which a session that begins has.
fn say(sender: &Sender<Result<Vec<u8>, Status>>, message: &FromWorker) -> Result<(), Status> {
    let bytes = proto::session::encode_from_worker(message);
    sender.try_send(Ok(bytes), 0).map_err(|_| Status::internal("an empty queue is full"))
}

/// Hears the next message of a router that is about to begin; none where it says something else, or nothing more.
async fn hear(incoming: &mut Incoming) -> Option<ToWorker> {
    let bytes = incoming.message().await.ok()??;
    proto::session::decode_to_worker(&bytes).ok()
}
