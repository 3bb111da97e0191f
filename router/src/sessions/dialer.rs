//! Keeping a session with each worker. A worker is dialed while a directory lists it. That it lives is shown by its
//! session alone.

use super::dial::{Dial, DialError, Dialed};
use super::link::{Shown, WorkerLink};
use super::remote::Remote;
use super::roster::Roster;
use super::service::Service;
use crate::clock::Draw;
use discovery::{About, Change, Discovery, Entry, Key, Member};
use domain::session::{ModelShape, ToWorker};
use domain::{Incarnation, Secrets};
use proto::tls::Connector;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Pause before a worker is dialed again; doubles with every failure up to [`PAUSE_MAX`]. A session that lasted
/// longer than that was a good one, and is begun again at once.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause: a worker that returns is used after it at the latest.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time for a worker that is refused to hear why.
const REFUSED_WAIT: Duration = Duration::from_secs(1);
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

    /// Keeps a session with every worker that `source` lists, until dropped; over TLS if that is there. A worker that
    /// is not listed any more keeps its session for as long as that lasts, and is forgotten with it.
    pub async fn follow(&self, mut source: impl Discovery, secrets: Secrets, tls: Option<Connector>) -> Infallible {
        let router = Draw::new().random();
        let mut followed = BTreeMap::<Key, watch::Sender<Option<Member>>>::new();
        // They end with this.
        let mut tasks = JoinSet::new();
        loop {
            let (key, member) = tokio::select! {
                change = source.next() => match change {
                    Change::Joined(member) | Change::Changed(member) => {
                        log_listed(&member);
                        (member.key.clone(), Some(member))
                    }
                    Change::Left(key) => (key, None),
                },
                Some(Ok(key)) = tasks.join_next() => {
                    // It may be listed again meanwhile.
                    let last: Option<watch::Sender<_>> = followed.remove(&key);
                    match last.and_then(|last| last.borrow().clone()) {
                        Some(member) => (key, Some(member)),
                        None => continue,
                    }
                }
            };
            match (followed.get(&key), member) {
                (Some(follower), member) => drop(follower.send_replace(member)),
                (None, Some(member)) => {
                    let (sender, listed) = watch::channel(Some(member));
                    followed.insert(key.clone(), sender);
                    let (dialer, secrets, tls) = (self.clone(), secrets.clone(), tls.clone());
                    tasks.spawn(async move {
                        let remote = |member| Remote::new(member, secrets.clone(), tls.clone(), router);
                        dialer.keep_listed(listed, remote).await;
                        key
                    });
                }
                (None, None) => {}
            }
        }
    }

    /// Keeps a session with a worker of a directory, until it is not listed and has no session.
    async fn keep_listed(&self, mut listed: watch::Receiver<Option<Member>>, remote: impl Fn(Member) -> Remote) {
        let mut redial = Redial::new();
        loop {
            let Some(member) = listed.borrow_and_update().clone() else { return };
            let remote = remote(member);
            let began = Instant::now();
            let session = self.session(&remote).await;
            let Some(pause) = redial.after(&remote.name(), session, began.elapsed()) else { continue };
            // A worker that changed, as after a restart, is dialed at once. The follower lives while this runs.
            let _ = timeout(pause, listed.changed()).await;
        }
    }

    /// Keeps a session with one worker, until dropped or the router ends.
    pub async fn keep(&self, worker: &impl Dial) {
        let mut redial = Redial::new();
        loop {
            let began = Instant::now();
            let session = self.session(worker).await;
            if self.links.is_closed() {
                return;
            }
            if let Some(pause) = redial.after(&worker.name(), session, began.elapsed()) {
                sleep(pause).await;
            }
        }
    }

    /// Runs one session, from the dial to its end. Errors: none began.
    async fn session(&self, worker: &impl Dial) -> Result<Over, DialError> {
        let Dialed { peer, served, protocol, send, receive, mut until_over } = worker.dial().await?;
        let place = match self.roster.admit(&worker.name(), &peer, served) {
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
        let (shown, mut seen) = watch::channel(Shown::new(peer.role));
        let (context_tokens, address) = (served.context_tokens, worker.name());
        let life = peer.incarnation;
        let link = WorkerLink { peer, context_tokens, protocol, address, send, receive, shown };
        if self.links.send(link).await.is_err() {
            return Ok(Over { why: "the router ends".to_owned(), life, has_left: false });
        }
        loop {
            tokio::select! {
                why = &mut until_over => return Ok(Over { why, life, has_left: seen.borrow().has_left }),
                Ok(()) = seen.changed() => place.take_role(seen.borrow_and_update().role),
            }
        }
    }
}

/// How a session ended.
struct Over {
    why: String,
    /// The life of the worker.
    life: Incarnation,
    /// It drained before, and said that it is about to end.
    has_left: bool,
}

/// When a worker is dialed again, and what is said of it.
struct Redial {
    pause: Duration,
    known: Option<DialError>,
    /// Its last life, if that drained and left. What a directory lists is dialed though it left: it may return.
    left: Option<Incarnation>,
}

impl Redial {
    fn new() -> Self {
        Self { pause: PAUSE_MIN, known: None, left: None }
    }

    /// Notes how a session with the worker called `name` ended after `lasted`, or why none began. Returns how long to
    /// wait before the next one; none: not at all.
    fn after(&mut self, name: &str, session: Result<Over, DialError>, lasted: Duration) -> Option<Duration> {
        let error = match session {
            Ok(Over { why, life, has_left }) => {
                tracing::info!(worker = name, why, "the session is over");
                // A worker that is about to end takes sessions until it does.
                self.left = has_left.then_some(life).or(self.left.filter(|left| *left == life));
                None
            }
            Err(error) => Some(error),
        };
        // What goes on failing in the same way is said once.
        if let Some(error) = &error
            && self.known.as_ref().is_none_or(|known| error.is_news(known))
        {
            match error {
                DialError::Unreachable(_) if self.left.is_some() => {
                    tracing::info!(worker = name, "the worker has left; it is used again if it returns");
                }
                error => tracing::warn!(worker = name, "{error}; it is tried again"),
            }
        }
        let was_good = error.is_none() && lasted >= PAUSE_MAX;
        self.known = error;
        if was_good {
            self.pause = PAUSE_MIN;
            return None;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        Some(pause)
    }
}

/// Logs what a directory says of a worker.
fn log_listed(member: &Member) {
    let address = member.address.as_str();
    match &member.about {
        About::Nothing => {}
        About::Worker(Entry { id, name, role, model, topology, .. }) => {
            tracing::info!(worker = name, id = id.0, address, ?role, model, %topology, "discovery lists a worker");
        }
        About::Pod { role, topology } => {
            let worker = member.key.to_string();
            tracing::info!(worker, address, ?role, %topology, "discovery lists a worker");
        }
    }
}
