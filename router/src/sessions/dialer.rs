//! Keeping a session with each worker.

use super::dial::{Dial, DialError, Dialed};
use super::link::WorkerLink;
use super::remote::Remote;
use super::roster::Roster;
use super::service::Service;
use crate::clock::Draw;
use discovery::{Address, Change, Discovery};
use domain::Secrets;
use domain::session::{ModelShape, ToWorker};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

/// Pause before a worker is dialed again; doubles with every failure up to [`PAUSE_MAX`]. A session that lasted
/// longer than that was a good one, and is begun again at once.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause: a worker that returns is used after it at the latest.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time for a worker that is refused to hear why.
const REFUSED_WAIT: Duration = Duration::from_secs(1);
/// How often discovery is asked for changes.
const DISCOVERY_EVERY: Duration = Duration::from_millis(500);
/// Links that wait for the brain.
const LINKS_MAX: usize = 64;

/// Sessions as they begin, for [`crate::serve`].
#[derive(Debug)]
pub struct Sessions {
    /// The links of those that begin.
    pub(crate) links: mpsc::Receiver<WorkerLink>,
    /// What the workers serve, once the first has said it.
    pub(crate) service: watch::Receiver<Option<Service>>,
}

/// Begins sessions and hands them to the brain. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dialer {
    links: mpsc::Sender<WorkerLink>,
    roster: Arc<Roster>,
}

impl Dialer {
    /// Makes a dialer of workers that compute a model of this shape, and the end where its sessions come out.
    pub fn new(shape: ModelShape) -> (Self, Sessions) {
        let (links, receiver) = mpsc::channel(LINKS_MAX);
        let (service, seen) = watch::channel(None);
        (Self { links, roster: Arc::new(Roster::new(shape, service)) }, Sessions { links: receiver, service: seen })
    }

    /// Keeps a session with every worker that `source` names, until dropped.
    pub async fn follow(&self, mut source: impl Discovery, secrets: Secrets) -> Infallible {
        let router = Draw::new().random();
        let mut kept = BTreeMap::<Address, SessionTask>::new();
        loop {
            while let Some(change) = source.poll() {
                match change {
                    Change::Up(address) => {
                        let (dialer, remote) = (self.clone(), Remote::new(address.clone(), secrets.clone(), router));
                        let task = tokio::spawn(async move { dialer.keep(&remote).await });
                        kept.insert(address, SessionTask(task.abort_handle()));
                    }
                    Change::Down(address) => drop(kept.remove(&address)),
                }
            }
            sleep(DISCOVERY_EVERY).await;
        }
    }

    /// Keeps a session with one worker, until dropped or the router ends.
    pub async fn keep(&self, worker: &impl Dial) {
        let mut pause = PAUSE_MIN;
        let mut known = None;
        loop {
            let began = Instant::now();
            let session = self.session(worker).await;
            if self.links.is_closed() {
                return;
            }
            let error = match session {
                Ok(over) => {
                    tracing::info!(worker = worker.name(), why = over, "the session is over");
                    None
                }
                Err(error) => Some(error),
            };
            // What goes on failing in the same way is said once.
            if let Some(error) = error.as_ref().filter(|error| known.as_ref().is_none_or(|known| error.is_news(known)))
            {
                tracing::warn!(worker = worker.name(), "{error}; it is tried again");
            }
            let lasted = error.is_none() && began.elapsed() >= PAUSE_MAX;
            known = error;
            if lasted {
                pause = PAUSE_MIN;
            } else {
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    /// Runs one session, from the dial to its end, and returns why it ended. Errors: none began.
    async fn session(&self, worker: &impl Dial) -> Result<String, DialError> {
        let Dialed { peer, served, send, receive, until_over } = worker.dial().await?;
        let _place = match self.roster.admit(&worker.name(), &peer, served) {
            Ok(place) => place,
            Err(error) => {
                let why = error.to_string();
                // An error says that the session is over, and then the worker does without the reason.
                let _ = send.try_send(proto::session::encode_to_worker(&ToWorker::Refused { why: why.clone() }), 0);
                // What it was told is on its way until it ends the session.
                let _ = timeout(REFUSED_WAIT, until_over).await;
                return Err(DialError::Refused(why));
            }
        };
        let link = WorkerLink { peer, context_tokens: served.context_tokens, address: worker.name(), send, receive };
        if self.links.send(link).await.is_err() {
            return Ok("the router ends".to_owned());
        }
        Ok(until_over.await)
    }
}

/// The task that keeps a session; it ends with this.
struct SessionTask(AbortHandle);

impl Drop for SessionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
