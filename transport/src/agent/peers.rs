//! The peers of an agent: where each is, whether it is connected, and the messages that wait for it.
//!
//! The control thread connects peers. It takes those that are wanted from here.

use crate::agent::event::AgentEvent;
use crate::agent::known_peer::KnownPeer;
use crate::agent::link::{Link, Way};
use crate::agent::metadata::ImportError;
use crate::agent::shared::AgentShared;
use crate::lanes::{Lane, LaneStatus};
use domain::{Encoding, Incarnation, WorkerId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Messages that wait to be sent to one peer. One more is refused.
const MESSAGES_MAX: usize = 4096;
/// Bytes of all messages that wait to be sent to one peer.
const MESSAGE_BYTES_QUEUED_MAX: usize = 32 << 20;
/// Bytes of one message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// After a peer could not be connected, it is not tried again for so long; each failure doubles it.
const BACK_OFF_MIN: Duration = Duration::from_millis(50);
/// The longest back-off.
const BACK_OFF_MAX: Duration = Duration::from_secs(5);

/// Why a message was not sent. A message not sent is a message lost: the deadlines of the protocol cover it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The agent was not told where the peer is, or the peer left this process.
    #[error("worker {0} is not connected")]
    NotConnected(WorkerId),
    /// The peer's inbox, or the queue to it, is full.
    #[error("the inbox of worker {0} is full")]
    Full(WorkerId),
    /// The message is longer than any may be.
    #[error("a message of {bytes} bytes to worker {peer} is over {MESSAGE_BYTES_MAX} bytes")]
    TooLong {
        /// The peer that it was for.
        peer: WorkerId,
        /// Bytes of the message.
        bytes: usize,
    },
}

/// An attempt to connect a peer, and what was known of the peer when it began. An agent that forgets the peer drops
/// the outcome of the attempt.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) peer: KnownPeer,
    pub(crate) number: u64,
    /// Whether the attempt before this one failed.
    pub(crate) again: bool,
}

#[derive(Default)]
pub(crate) struct Peers(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    peers: HashMap<WorkerId, Peer>,
    /// Peers that want to be connected.
    wanted: Vec<WorkerId>,
    /// Peers that messages wait for.
    writable: Vec<WorkerId>,
    /// Attempts that were begun.
    attempts: u64,
}

#[derive(Default)]
struct Peer {
    known: Option<KnownPeer>,
    state: State,
    messages: VecDeque<Vec<u8>>,
    message_bytes: usize,
    /// Attempts to connect that failed in a row.
    failures: u32,
    /// When it may be tried again.
    not_before: Option<Instant>,
    /// Whether it was connected once.
    was_connected: bool,
    /// The link that it had before a better lane was taken: transfers over it go on until it, or the peer, is left.
    retired: Option<Arc<Link>>,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    /// By the attempt of this number.
    Connecting(u64),
    Connected(Arc<Link>, LaneStatus),
}

impl Peer {
    fn link(&self) -> Option<&Arc<Link>> {
        match &self.state {
            State::Connected(link, _) if !link.is_gone() => Some(link),
            _ => None,
        }
    }

    /// The attempt that connects it, if one does.
    fn attempt(&self) -> Option<Attempt> {
        match self.state {
            State::Connecting(number) => Some(Attempt { peer: self.known.clone()?, number, again: self.failures > 0 }),
            State::Idle | State::Connected(..) => None,
        }
    }

    fn drop_messages(&mut self) {
        self.messages.clear();
        self.message_bytes = 0;
    }
}

impl Peers {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the link to a peer that is connected.
    pub(crate) fn link(&self, id: WorkerId) -> Option<Arc<Link>> {
        self.lock().peers.get(&id)?.link().cloned()
    }

    pub(crate) fn lanes(&self) -> Vec<(WorkerId, LaneStatus)> {
        let status = |(&id, peer): (&WorkerId, &Peer)| match &peer.state {
            State::Connected(link, status) if !link.is_gone() => Some((id, status.clone())),
            _ => None,
        };
        self.lock().peers.iter().filter_map(status).collect()
    }

    /// Takes the attempts to connect peers that were begun, each with its earliest time.
    pub(crate) fn take_wanted(&self) -> Vec<(Attempt, Option<Instant>)> {
        let mut inner = self.lock();
        let wanted = std::mem::take(&mut inner.wanted);
        wanted
            .iter()
            .filter_map(|id| inner.peers.get(id))
            .filter_map(|peer| Some((peer.attempt()?, peer.not_before)))
            .collect()
    }

    /// Returns the attempt with what is known of the peer by now. `None`: it was given up.
    pub(crate) fn connecting(&self, attempt: &Attempt) -> Option<Attempt> {
        let now = self.lock().peers.get(&attempt.peer.id)?.attempt()?;
        (now.number == attempt.number).then_some(now)
    }

    /// Takes the peers that messages wait for.
    pub(crate) fn take_writable(&self) -> Vec<WorkerId> {
        std::mem::take(&mut self.lock().writable)
    }

    /// Takes the next message to the peer behind `link`.
    pub(crate) fn take_message(&self, link: &Arc<Link>) -> Option<Vec<u8>> {
        let mut inner = self.lock();
        let peer = inner.peers.get_mut(&link.peer)?;
        if !peer.link().is_some_and(|current| Arc::ptr_eq(current, link)) {
            return None;
        }
        let message = peer.messages.pop_front()?;
        peer.message_bytes -= message.len();
        Some(message)
    }

    /// Takes the link that an attempt made, and returns whether the peer had been connected before. `None`: the link is
    /// not taken. The attempt was given up, or a newer life of the peer is known, or the link is gone already; in the
    /// last two cases the peer is still wanted.
    pub(crate) fn connected(&self, attempt: &Attempt, link: &Arc<Link>, status: LaneStatus) -> Option<bool> {
        let mut inner = self.lock();
        let peer = inner.peers.get_mut(&link.peer)?;
        let now = peer.attempt().filter(|now| now.number == attempt.number)?;
        if now.peer.incarnation != link.incarnation || link.is_gone() {
            inner.wanted.push(link.peer);
            return None;
        }
        (peer.failures, peer.not_before) = (0, None);
        peer.state = State::Connected(link.clone(), status);
        let again = std::mem::replace(&mut peer.was_connected, true);
        inner.writable.push(link.peer);
        Some(again)
    }

    /// Returns what is known of the peer behind `link`, if that is its current link.
    pub(crate) fn behind(&self, link: &Arc<Link>) -> Option<KnownPeer> {
        let inner = self.lock();
        let peer = inner.peers.get(&link.peer)?;
        peer.known.clone().filter(|_| peer.link().is_some_and(|current| Arc::ptr_eq(current, link)))
    }

    /// Puts `new` in the place of `old`, whose transfers go on. Returns the link that was retired before, which ends
    /// now. Errors: `old` is not the current link any more, or `new` is gone.
    pub(crate) fn switch(&self, old: &Arc<Link>, new: &Arc<Link>, status: LaneStatus) -> Result<Option<Arc<Link>>, ()> {
        let mut inner = self.lock();
        let peer = inner.peers.get_mut(&old.peer).ok_or(())?;
        if new.is_gone() || !peer.link().is_some_and(|current| Arc::ptr_eq(current, old)) {
            return Err(());
        }
        peer.state = State::Connected(new.clone(), status);
        let before = peer.retired.replace(old.clone());
        inner.writable.push(old.peer);
        Ok(before)
    }

    /// Notes that an attempt failed at `now`. `false`: it was given up, or a newer life of the peer is wanted instead.
    pub(crate) fn failed(&self, tried: &Attempt, now: Instant) -> bool {
        let mut inner = self.lock();
        let Some(peer) = inner.peers.get_mut(&tried.peer.id) else { return false };
        let Some(current) = peer.attempt().filter(|current| current.number == tried.number) else { return false };
        if current.peer.incarnation != tried.peer.incarnation {
            inner.wanted.push(tried.peer.id);
            return false;
        }
        let back_off = BACK_OFF_MIN.saturating_mul(1 << peer.failures.min(16)).min(BACK_OFF_MAX);
        peer.failures += 1;
        peer.not_before = Some(now + back_off);
        peer.state = State::Idle;
        peer.drop_messages();
        true
    }

    /// Ends a link. Returns whether it was the peer's current one, and the retired link that ends with it. `None`: it
    /// had ended before.
    pub(crate) fn forget(&self, link: &Arc<Link>) -> Option<(bool, Option<Arc<Link>>)> {
        let mut inner = self.lock();
        // Under the lock: a caller that wants the peer meanwhile would find a link that is gone.
        if !link.leave() {
            return None;
        }
        let Some(peer) = inner.peers.get_mut(&link.peer) else { return Some((false, None)) };
        let current = matches!(&peer.state, State::Connected(current, _) if Arc::ptr_eq(current, link));
        if current {
            peer.state = State::Idle;
            peer.drop_messages();
        }
        Some((current, peer.retired.take_if(|retired| current || Arc::ptr_eq(retired, link))))
    }

    /// Removes a peer that is neither known nor connected.
    fn drop_unknown(&self, id: WorkerId) {
        let mut inner = self.lock();
        if inner.peers.get(&id).is_some_and(|peer| peer.known.is_none() && matches!(peer.state, State::Idle)) {
            inner.peers.remove(&id);
        }
    }

    /// Has the next connection to a peer not counted as one after a loss.
    fn forget_connection(&self, id: WorkerId) {
        if let Some(peer) = self.lock().peers.get_mut(&id) {
            peer.was_connected = false;
        }
    }

    /// Forgets all: links hold agents, which hold their peers.
    pub(crate) fn clear(&self) {
        *self.lock() = Inner::default();
    }

    /// Returns the newest life that is known of a peer.
    pub(crate) fn incarnation(&self, id: WorkerId) -> Option<Incarnation> {
        Some(self.lock().peers.get(&id)?.known.as_ref()?.incarnation)
    }
}

impl AgentShared {
    /// Remembers a life of a peer. It replaces an older one; one that is older than the known one is ignored.
    pub(crate) fn introduce(&self, new: KnownPeer) {
        let mut inner = self.peers.lock();
        let peer = inner.peers.entry(new.id).or_default();
        if peer.known.as_ref().is_some_and(|known| known.incarnation > new.incarnation) {
            return;
        }
        let newer = peer.known.as_ref().is_none_or(|known| known.incarnation < new.incarnation);
        let (id, incarnation) = (new.id, new.incarnation);
        peer.known = Some(new);
        if !newer {
            return;
        }
        (peer.failures, peer.not_before) = (0, None);
        let old = match &peer.state {
            State::Connected(link, _) if link.incarnation < incarnation => Some(link.clone()),
            _ => None,
        };
        drop(inner);
        self.control.introduced(id, incarnation);
        if let Some(streams) = &self.streams {
            streams.lane_queue().introduced(id, incarnation);
        }
        if let Ok(verbs) = &self.verbs {
            verbs.lane_queue().introduced(id, incarnation);
        }
        if let Some(link) = old {
            self.lose(&link, "a new life of it is there");
        }
    }

    /// Forgets where a peer is, and ends the connection to it, or the attempt to connect it.
    pub(crate) fn forget(&self, id: WorkerId) {
        const REASON: &str = "this agent forgot it";
        let mut inner = self.peers.lock();
        let Inner { peers, wanted, .. } = &mut *inner;
        let Some(peer) = peers.get_mut(&id) else { return };
        peer.known = None;
        let link = peer.link().cloned();
        let was_connecting = matches!(peer.state, State::Connecting(_));
        if was_connecting {
            peer.state = State::Idle;
            peer.drop_messages();
            wanted.retain(|&other| other != id);
        }
        drop(inner);
        if was_connecting {
            self.tell(AgentEvent::Lost { peer: id, reason: REASON.to_owned() });
        }
        if let Some(link) = link {
            self.lose(&link, REASON);
        }
        self.peers.drop_unknown(id);
    }

    /// Ends the connection to a peer without a word. It is connected again when it is used again.
    pub(crate) fn disconnect(&self, id: WorkerId) {
        if let Some(link) = self.peers.link(id)
            && self.end_link(&link, "it is not needed")
        {
            self.peers.forget_connection(id);
        }
    }

    /// Connects a peer: at once if it is in this process, else in the background. The outcome comes as an event.
    pub(crate) fn connect(&self, id: WorkerId) {
        let outcome = {
            let mut inner = self.peers.lock();
            self.want(&mut inner, id)
        };
        self.tell_outcome(outcome);
    }

    /// Tells an outcome. It needs the lock to be free: the sink may call back.
    fn tell_outcome(&self, outcome: Outcome) {
        match outcome {
            Outcome::Nothing => {}
            Outcome::Wanted => self.control.wake(),
            Outcome::Event(event) => self.tell(event),
        }
    }

    fn want(&self, inner: &mut Inner, id: WorkerId) -> Outcome {
        let here = self.hub.find(id).filter(|agent| !agent.is_gone());
        let Inner { peers, wanted, attempts, .. } = inner;
        let peer = peers.entry(id).or_default();
        if peer.link().is_some() || matches!(peer.state, State::Connecting(_)) {
            return Outcome::Nothing;
        }
        let is_here = peer.known.as_ref().is_none_or(|known| known.address.process == self.hub.process());
        let here = here.filter(|agent| {
            is_here && peer.known.as_ref().is_none_or(|known| known.incarnation <= agent.config.incarnation)
        });
        match here {
            Some(agent) if agent.config.fingerprint != self.config.fingerprint => {
                let (theirs, ours) = (agent.config.fingerprint, self.config.fingerprint);
                let reason = ImportError::Layout { theirs, ours }.to_string();
                Outcome::Event(AgentEvent::Lost { peer: id, reason })
            }
            Some(agent) if self.config.lanes.contains(&Lane::Local) => {
                let name = agent.config.name.clone();
                let probe = self.hub.probe(crate::speed::probe::local);
                let link = Link::new(&agent.known(), Way::Local(agent), &self.fair_shares);
                let status = LaneStatus {
                    peer: name,
                    lane: Lane::Local,
                    tls: false,
                    encoding: Encoding::Exact,
                    staging: self.staging(&link),
                    probe,
                    expected_bytes_per_s: self.config.expect_bytes_per_s,
                    passed_over: Vec::new(),
                };
                link.speed().promise(self.config.expect_bytes_per_s);
                link.speed().probed(probe);
                peer.state = State::Connected(Arc::new(link), status.clone());
                Outcome::Event(AgentEvent::Connected { peer: id, status })
            }
            here => {
                // Another life of it in this process needs no introduction, whatever the lane.
                if let Some(agent) = here {
                    peer.known = Some(agent.known());
                }
                if peer.known.is_none() {
                    let reason = format!("nobody said where worker {id} is, and it is not in this process");
                    return Outcome::Event(AgentEvent::Lost { peer: id, reason });
                }
                *attempts += 1;
                peer.state = State::Connecting(*attempts);
                wanted.push(id);
                Outcome::Wanted
            }
        }
    }

    pub(crate) fn send(&self, id: WorkerId, bytes: Vec<u8>) -> Result<(), SendError> {
        if self.has_failed() {
            // Nobody connects it any more.
            return Err(SendError::NotConnected(id));
        }
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(SendError::TooLong { peer: id, bytes: bytes.len() });
        }
        let mut inner = self.peers.lock();
        let outcome = self.want(&mut inner, id);
        let Some(peer) = inner.peers.get_mut(&id) else { return Err(SendError::NotConnected(id)) };
        let sent = match peer.link().map(|link| &link.way) {
            Some(Way::Local(agent)) => {
                let agent = agent.clone();
                drop(inner);
                let message = AgentEvent::Message { from: self.config.id, bytes };
                if agent.deliver(message) { Ok(()) } else { Err(SendError::Full(id)) }
            }
            None if !matches!(peer.state, State::Connecting(_)) => Err(SendError::NotConnected(id)),
            _ if peer.messages.len() == MESSAGES_MAX || peer.message_bytes + bytes.len() > MESSAGE_BYTES_QUEUED_MAX => {
                Err(SendError::Full(id))
            }
            link => {
                let connected = link.is_some();
                peer.message_bytes += bytes.len();
                peer.messages.push_back(bytes);
                if connected && peer.messages.len() == 1 {
                    inner.writable.push(id);
                }
                drop(inner);
                if connected {
                    self.control.wake();
                }
                Ok(())
            }
        };
        self.tell_outcome(outcome);
        sent
    }

    /// An agent left this process.
    pub(crate) fn neighbour_left(&self, agent: &Arc<AgentShared>) {
        let link = {
            let inner = self.peers.lock();
            match inner.peers.get(&agent.config.id).map(|peer| &peer.state) {
                Some(State::Connected(link, _)) => Some(link.clone()),
                _ => None,
            }
        };
        if let Some(link) = link.filter(|link| matches!(&link.way, Way::Local(other) if Arc::ptr_eq(other, agent))) {
            self.lose(&link, "it left this process");
        }
    }
}

/// What follows from wanting a peer.
enum Outcome {
    Nothing,
    /// It is to be connected in the background.
    Wanted,
    Event(AgentEvent),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::config::AgentConfig;
    use crate::lanes::Staging;
    use crate::lanes::tcp::TcpWay;
    use domain::session::PeerAddress;
    use std::collections::BTreeMap;

    #[test]
    fn a_link_that_was_lost_while_it_was_made_is_not_taken() {
        let config = AgentConfig::in_process(WorkerId(1), Incarnation(1), "reader".to_owned(), 1);
        let agent = AgentShared::without_threads(config, None, Box::new(|_| true));
        let (id, name, incarnation) = (WorkerId(0), "owner".to_owned(), Incarnation(1));
        let known = KnownPeer { id, incarnation, name: name.clone(), address: PeerAddress::default() };
        let link =
            || Arc::new(Link::new(&known, Way::Tcp(TcpWay::new(BTreeMap::new(), Vec::new())), &agent.fair_shares));
        let status = LaneStatus {
            peer: name,
            lane: Lane::Tcp,
            tls: false,
            encoding: Encoding::Exact,
            staging: Staging::default(),
            probe: crate::lanes::Probe::default(),
            expected_bytes_per_s: None,
            passed_over: Vec::new(),
        };
        agent.introduce(known.clone());
        agent.send(id, vec![1]).expect("it waits until the peer is connected");
        let wanted = |agent: &AgentShared| agent.peers.take_wanted().pop().expect("it is wanted").0;

        let (attempt, lost) = (wanted(&agent), link());
        agent.lose(&lost, "");
        assert_eq!(agent.peers.connected(&attempt, &lost, status.clone()), None);
        let (attempt, good) = (wanted(&agent), link());
        assert_eq!(agent.peers.connected(&attempt, &good, status.clone()), Some(false));
        assert_eq!(agent.peers.take_message(&good), Some(vec![1]));

        assert!(agent.peers.switch(&good, &lost, status.clone()).is_err());
        assert!(agent.peers.link(id).is_some_and(|link| Arc::ptr_eq(&link, &good)));
        assert!(agent.peers.switch(&good, &link(), status).is_ok());
    }
}
