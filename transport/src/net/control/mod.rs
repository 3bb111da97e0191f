//! The control thread of an agent.
//!
//! It accepts connections, carries messages and regions, notices peers that leave, and starts the threads that connect
//! peers. Idle connections cost it nothing. How a connection of each direction begins:
//!
//! - Incoming: `accept` takes it in as a stranger (`strangers`). `serve` checks its hello (`hello`), then serves it.
//! - Outgoing: `dials` says which peer is next. `dial` tries every lane, each by `connect`, and keeps the best.
//!   `survey` compares the lanes again later.
//!
//! What is deliberately absent: bytes of regions. The copy threads move them, and those of `lanes::rdma` and
//! `lanes::tcp`.

mod accept;
mod admission_error;
pub(crate) mod channel;
mod connect;
mod connect_error;
mod dial;
mod dials;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod hello;
mod serve;
mod sockets;
mod strangers;
mod survey;
#[cfg(test)]
mod tests;

pub(crate) use channel::{Channel, ChannelError, Frame};
pub(crate) use connect::join;
pub(crate) use connect_error::ConnectError;
pub(crate) use sockets::{LISTENERS_MAX, Listeners};

use crate::agent::counts::{Counts, Refusal};
use crate::agent::event::AgentEvent;
use crate::agent::link::Link;
use crate::agent::peers::Attempt;
use crate::agent::shared::AgentShared;
use crate::clock::now;
use crate::net::HELLO_BYTES_MAX;
use crate::speed::link_speed::Slow;
use crate::wake::{Doorbell, Wake};
use crate::wire_error::WireError;
use accept::{ACCEPTS_PER_TURN, Accepting};
use admission_error::AdmissionError;
use connect_error::DialError;
use dial::Dialled;
use dials::Dials;
use domain::{Incarnation, WorkerId};
use hello::{Purpose, REFUSAL, kind};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::Timespec;
use serve::Serving;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use strangers::Strangers;
use threads::Doing;

/// How soon an event that the sink did not take is offered again.
const OFFER_AGAIN_AFTER: Duration = Duration::from_millis(1);
/// Bytes of messages that wait at a socket; others wait where senders see how many they are.
const UNSENT_MAX: usize = 1 << 20;
/// Connections of peers, of either direction. One more that a peer opens is closed. Strangers have places of their own.
const CONNECTIONS_MAX: usize = 16 << 10;
/// Connections of strangers that are heard before it is others' turn: as many as all listeners accept in a turn,
/// so that what is accepted is heard soon.
const STRANGERS_PER_TURN: usize = ACCEPTS_PER_TURN * (1 + sockets::LISTENERS_MAX);
/// Reads of one connection before it is another's turn.
const READS_PER_TURN: usize = 16;
/// How often people are told at most that somebody speaks another version.
const VERSION_TOLD_EVERY: Duration = Duration::from_secs(60);

/// What is not a connection among the things waited for.
const BELL_TOKEN: u64 = 0;
const UNIX_TOKEN: u64 = 1;
const STRANGERS_TOKEN: u64 = 2;
const TCP_TOKENS: u64 = 3;
const FIRST_CONNECTION: u64 = TCP_TOKENS + sockets::LISTENERS_MAX as u64;

/// How others reach the control thread.
pub(crate) struct Control {
    bell: Doorbell,
    /// What the thread waits on. It is there before the thread is, which could tell nobody that the system had
    /// none left.
    epoll: OwnedFd,
    /// What it waits on for strangers, itself waited on, so that however many of them speak they take one event of
    /// a turn.
    strangers: OwnedFd,
    orders: Mutex<Orders>,
}

#[derive(Default)]
struct Orders {
    dialled: Vec<(Attempt, Result<Dialled, DialError>)>,
    slow: Vec<(Arc<Link>, Slow)>,
    /// Links whose lanes were compared with the others anew, and what is best now.
    surveyed: Vec<(Arc<Link>, Result<Dialled, DialError>)>,
    introduced: Vec<(WorkerId, Incarnation)>,
    regions_changed: bool,
    links_lost: bool,
    closed: bool,
}

impl Control {
    pub(crate) fn new() -> io::Result<Self> {
        let (bell, epoll) = (Doorbell::new()?, epoll::create(epoll::CreateFlags::CLOEXEC)?);
        // Edge-triggered: see `Doorbell`.
        epoll::add(&epoll, bell.fd(), EventData::new_u64(BELL_TOKEN), EventFlags::IN | EventFlags::ET)?;
        let strangers = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &strangers, EventData::new_u64(STRANGERS_TOKEN), EventFlags::IN)?;
        Ok(Self { bell, epoll, strangers, orders: Mutex::default() })
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes it look at everything that others may have changed.
    pub(crate) fn wake(&self) {
        self.bell.wake();
    }

    pub(crate) fn close(&self) {
        self.orders().closed = true;
        self.wake();
    }

    pub(crate) fn regions_changed(&self) {
        self.orders().regions_changed = true;
        self.wake();
    }

    /// A link is gone; its connection is closed.
    pub(crate) fn link_lost(&self) {
        self.orders().links_lost = true;
        self.wake();
    }

    /// A life of a peer is known; connections of earlier ones are closed.
    pub(crate) fn introduced(&self, id: WorkerId, incarnation: Incarnation) {
        self.orders().introduced.push((id, incarnation));
        self.wake();
    }

    /// A link has become slow.
    pub(crate) fn slow(&self, link: Arc<Link>, slow: Slow) {
        self.orders().slow.push((link, slow));
        self.wake();
    }

    fn surveyed(&self, link: Arc<Link>, result: Result<Dialled, DialError>) {
        self.orders().surveyed.push((link, result));
        self.wake();
    }

    fn dialled(&self, attempt: Attempt, result: Result<Dialled, DialError>) {
        self.orders().dialled.push((attempt, result));
        self.wake();
    }
}

/// A connection of either direction.
struct Connection {
    channel: Channel,
    direction: Direction,
}

enum Direction {
    /// The other end connected to this agent.
    Incoming(Serving),
    /// This agent connected the other end.
    Outgoing(Arc<Link>),
}

struct ControlLoop<'a> {
    agent: &'a Arc<AgentShared>,
    listeners: Listeners,
    epoll: &'a OwnedFd,
    strangers_epoll: &'a OwnedFd,
    connections: HashMap<u64, Connection>,
    /// Which connection is a link's.
    links: HashMap<WorkerId, u64>,
    next: u64,
    /// Those of the connections whose other ends have not proven themselves.
    strangers: Strangers,
    /// Peers that may be tried again at a time.
    later: BTreeMap<(Instant, WorkerId), Attempt>,
    dials: Dials,
    accepting: Accepting,
    /// Links whose lanes are compared with the faster ones again at a time, the earliest first: all wait as long.
    looks: VecDeque<(Instant, Weak<Link>)>,
    /// When people were told last that somebody speaks another version.
    version_told: Option<Instant>,
}

/// The thread's body. Returns after [`Control::close`], or when it cannot go on, with every connection closed.
pub(crate) fn run(agent: &Arc<AgentShared>, listeners: Listeners) -> io::Result<()> {
    let mut control = ControlLoop::new(agent, listeners)?;
    agent.watch(|| control.run());
    agent.finish(|| control.end());
    Ok(())
}

impl<'a> ControlLoop<'a> {
    fn new(agent: &'a Arc<AgentShared>, listeners: Listeners) -> io::Result<Self> {
        let (epoll, strangers_epoll) = (&agent.control.epoll, &agent.control.strangers);
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let unix = listeners.unix.as_ref().map(|unix| (unix.as_fd(), UNIX_TOKEN));
        let tcp = listeners.tcp.iter().map(AsFd::as_fd).zip(TCP_TOKENS..);
        for (listener, token) in unix.into_iter().chain(tcp) {
            epoll::add(epoll, listener, EventData::new_u64(token), EventFlags::IN)?;
        }
        Ok(Self {
            agent,
            accepting: Accepting::new(&agent.config, &listeners)?,
            listeners,
            epoll,
            strangers_epoll,
            connections: HashMap::new(),
            links: HashMap::new(),
            next: FIRST_CONNECTION,
            strangers: Strangers::new(descriptors),
            later: BTreeMap::new(),
            dials: Dials::default(),
            looks: VecDeque::new(),
            version_told: None,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            self.agent.control.bell.answer();
            let orders = std::mem::take(&mut *self.agent.control.orders());
            if orders.closed {
                return Ok(());
            }
            self.carry_out(orders);
            let untold = self.agent.tell_again();
            let timeout = self
                .deadline(untold)
                .map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
            events.clear();
            let wait = |sleep| {
                let timeout = if sleep { timeout.as_ref() } else { Some(&Timespec::default()) };
                epoll::wait(self.epoll, rustix::buffer::spare_capacity(&mut events), timeout)
            };
            match threads::during(Doing::WaitsForPeers, || self.agent.control.bell.sleep(wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    BELL_TOKEN => {}
                    STRANGERS_TOKEN => self.hear_strangers()?,
                    listener if listener < FIRST_CONNECTION => self.accept(listener),
                    connection => self.ready(connection, event.flags),
                }
            }
            self.pass_deadlines();
        }
    }

    /// Does what others asked for.
    fn carry_out(&mut self, orders: Orders) {
        for (attempt, result) in orders.dialled {
            self.dials.end(attempt.again);
            self.dialled(&attempt, result);
        }
        for (link, result) in orders.surveyed {
            self.dials.end(false);
            self.surveyed(&link, result);
        }
        for (link, slow) in orders.slow {
            self.survey(link, slow);
        }
        if orders.links_lost || !orders.introduced.is_empty() {
            let is_old = |connection: &Connection| match &connection.direction {
                Direction::Outgoing(link) => link.is_gone(),
                Direction::Incoming(serving) => orders.introduced.iter().any(|&(id, life)| serving.is_before(id, life)),
            };
            let old = self.connections.iter().filter(|(_, connection)| is_old(connection)).map(|(&number, _)| number);
            old.collect::<Vec<_>>().into_iter().for_each(|number| self.close(number));
        }
        if orders.regions_changed {
            let served: Vec<_> = self.connections.keys().copied().collect();
            served.into_iter().for_each(|number| self.show_regions(number));
        }
        for (attempt, not_before) in self.agent.peers.take_wanted() {
            match not_before.filter(|&at| at > now()) {
                Some(at) => drop(self.later.insert((at, attempt.peer.id), attempt)),
                None => self.dials.wait(attempt),
            }
        }
        self.dial();
        for peer in self.agent.peers.take_writable() {
            if let Some(&number) = self.links.get(&peer) {
                self.flush(number);
            }
        }
    }

    fn dial(&mut self) {
        while let Some(attempt) = self.dials.next() {
            // What is known may be newer than what was asked for.
            let Some(attempt) = self.agent.peers.connecting(&attempt) else { continue };
            self.dials.begin(attempt.again);
            let (agent, tried) = (self.agent.clone(), attempt.clone());
            let spawned = self.agent.spawn("dial", move || {
                threads::does(Doing::Dials);
                let result = dial::dial(&agent, &tried.peer, None);
                agent.control.dialled(tried, result);
                Ok(())
            });
            if let Err(error) = spawned {
                self.agent.control.dialled(attempt, Err(DialError::Thread(error)));
            }
        }
    }

    fn dialled(&mut self, attempt: &Attempt, result: Result<Dialled, DialError>) {
        let peer = &attempt.peer;
        let reason = match result {
            Ok(Dialled { link, status, channel }) => {
                let connected = self.agent.peers.connected(attempt, &link, status.clone());
                if connected.is_some()
                    && let Err(error) = self.watch(channel, Direction::Outgoing(link.clone()))
                {
                    self.agent.lose(&link, &format!("its connection cannot be watched: {error}"));
                } else if let Some(again) = connected {
                    if again {
                        Counts::add(&self.agent.counts.reconnected);
                    }
                    let number = self.next - 1;
                    self.links.insert(peer.id, number);
                    tracing::debug!(worker = self.agent.config.name, peer = peer.name, lane = %status.lane, tls = status.tls, encoding = %status.encoding, "connected");
                    self.agent.tell(AgentEvent::Connected { peer: peer.id, status });
                    self.look_later(&link);
                    self.heed(number);
                } else {
                    self.agent.discard(&link);
                }
                return;
            }
            Err(error) => error.to_string(),
        };
        if self.agent.peers.failed(attempt, now()) {
            Counts::add(&self.agent.counts.lost);
            tracing::debug!(worker = self.agent.config.name, peer = peer.name, reason, "not connected");
            self.agent.tell(AgentEvent::Lost { peer: peer.id, reason });
        }
    }

    /// Waits for a connection from now on.
    fn watch(&mut self, channel: Channel, direction: Direction) -> io::Result<()> {
        epoll::add(self.epoll, channel.socket(), EventData::new_u64(self.next), EventFlags::IN)?;
        self.connections.insert(self.next, Connection { channel, direction });
        self.next += 1;
        Ok(())
    }

    /// Hears some of the strangers that speak; the others stay ready for the next turn.
    fn hear_strangers(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(STRANGERS_PER_TURN);
        let now = Some(&Timespec::default());
        match epoll::wait(self.strangers_epoll, rustix::buffer::spare_capacity(&mut events), now) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        events.iter().for_each(|event: &epoll::Event| self.ready(event.data.u64(), event.flags));
        Ok(())
    }

    /// Something can be read from, or written to, a connection.
    fn ready(&mut self, number: u64, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.flush(number);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.read(number);
        }
    }

    fn read(&mut self, number: u64) {
        for _ in 0..READS_PER_TURN {
            let has_room = self.connections.len() - self.strangers.len() < CONNECTIONS_MAX;
            let Some(connection) = self.connections.get_mut(&number) else { return };
            let outcome = match connection.channel.fill() {
                // TLS may have something to say that nobody asked it to.
                Ok(false) => return self.flush(number),
                Ok(true) => match &mut connection.direction {
                    Direction::Incoming(serving) => serving.handle(self.agent, &mut connection.channel, has_room),
                    Direction::Outgoing(link) => handle(link, &mut connection.channel).map(|()| serve::Next::Stay),
                },
                Err(error) => Err(error),
            };
            match outcome {
                Ok(next) => self.follow(number, next),
                Err(error) => return self.fail(number, &error),
            }
        }
    }

    /// Handles what a peer said while it was being connected: its socket tells of no more than what comes from now on.
    fn heed(&mut self, number: u64) {
        let Some(Connection { channel, direction: Direction::Outgoing(link), .. }) = self.connections.get_mut(&number)
        else {
            return;
        };
        if let Err(error) = handle(link, channel) {
            self.fail(number, &error);
        }
    }

    fn follow(&mut self, number: u64, next: serve::Next) {
        match next {
            serve::Next::Stay => self.flush(number),
            serve::Next::Greeted => {
                self.strangers.greet(number);
                self.flush(number);
            }
            serve::Next::Admitted => {
                self.strangers.remove(number);
                let Some(Connection { channel, .. }) = self.connections.get_mut(&number) else { return };
                match channel.change_watch(self.strangers_epoll, self.epoll, number) {
                    Ok(()) => self.flush(number),
                    Err(error) => self.fail(number, &error),
                }
            }
            serve::Next::Lane { purpose, peer, incarnation } => {
                self.strangers.remove(number);
                let Some(Connection { mut channel, .. }) = self.connections.remove(&number) else { return };
                let deleted = epoll::delete(self.strangers_epoll, channel.socket());
                if deleted.is_err() || !matches!(channel.flush(), Ok(true)) {
                    return;
                }
                if purpose == Purpose::Queues {
                    return self.serve_queues(channel, peer, incarnation);
                }
                match (&self.agent.streams, channel.into_socket()) {
                    (Some(streams), Some(socket)) => streams.lane_queue().serve(peer, incarnation, socket),
                    _ => self.agent.counts.refused(Refusal::Protocol),
                }
            }
        }
    }

    /// A peer wants to read over the lane `rdma`. That this end cannot is no fault of the peer's.
    fn serve_queues(&self, mut channel: Channel, peer: WorkerId, incarnation: Incarnation) {
        match self.agent.usable_verbs() {
            Ok(verbs) => verbs.lane_queue().serve(peer, incarnation, channel),
            Err(error) => turn_away(&mut channel, &error.to_string()),
        }
    }

    /// Sends what waits at a connection, and at its link for room there, now and whenever it takes more.
    fn flush(&mut self, number: u64) {
        let epoll = if self.strangers.contains(number) { self.strangers_epoll } else { self.epoll };
        loop {
            let Some(connection) = self.connections.get_mut(&number) else { return };
            if let Direction::Outgoing(link) = &connection.direction {
                while connection.channel.unsent() < UNSENT_MAX
                    && let Some(message) = self.agent.peers.take_message(link)
                {
                    connection.channel.push(kind::MESSAGE, &message, None);
                }
            }
            let was_full = connection.channel.unsent() >= UNSENT_MAX;
            if let Err(error) = connection.channel.flush_on(epoll, number) {
                return self.fail(number, &error);
            }
            // Messages may have waited for the room that there is now, of which no event would tell.
            if !was_full || connection.channel.unsent() >= UNSENT_MAX {
                return;
            }
        }
    }

    fn show_regions(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if let Direction::Incoming(serving) = &mut connection.direction {
            match serving.show_regions(self.agent, &mut connection.channel) {
                Ok(()) => self.flush(number),
                Err(error) => self.fail(number, &error),
            }
        }
    }

    /// A connection is of no use any more.
    fn fail(&mut self, number: u64, error: &ChannelError) {
        let name = &self.agent.config.name;
        let Some(connection) = self.connections.get_mut(&number) else { return };
        error.count(&self.agent.counts);
        match &connection.direction {
            Direction::Outgoing(link) => {
                Counts::add(&self.agent.counts.lost);
                let link = link.clone();
                self.agent.lose(&link, &error.to_string());
            }
            Direction::Incoming(_) => {
                if error.refusal().is_none() && !matches!(error, ChannelError::NotAdmitted(_)) {
                    return self.close(number);
                }
                let reason = error.to_string();
                let is_due = |told: Instant| now().duration_since(told) >= VERSION_TOLD_EVERY;
                let is_version = matches!(error, ChannelError::Wire(WireError::Versions { .. }));
                if is_version && self.version_told.is_none_or(is_due) {
                    self.version_told = Some(now());
                    tracing::warn!(worker = name, reason, "refused a connection");
                } else {
                    tracing::debug!(worker = name, reason, "refused a connection");
                }
                let told = if connection.channel.is_trusted() { &reason } else { REFUSAL };
                turn_away(&mut connection.channel, told);
            }
        }
        self.close(number);
    }

    fn close(&mut self, number: u64) {
        self.strangers.remove(number);
        let Some(Connection { channel, direction }) = self.connections.remove(&number) else { return };
        if channel.is_wary() {
            self.accepting.throw_away(channel);
        }
        if let Direction::Outgoing(link) = direction
            && self.links.get(&link.peer) == Some(&number)
        {
            self.links.remove(&link.peer);
        }
    }

    /// Returns how long to wait at most.
    fn deadline(&self, untold: bool) -> Option<Duration> {
        let strangers = self.strangers.deadline();
        let later = self.later.keys().next().map(|&(at, _)| at);
        let others = self.accepting.deadline().into_iter().chain(self.looks.front().map(|&(at, _)| at));
        let earliest =
            strangers.into_iter().chain(later).chain(others).min().map(|at| at.saturating_duration_since(now()));
        earliest.into_iter().chain(untold.then_some(OFFER_AGAIN_AFTER)).min()
    }

    fn pass_deadlines(&mut self) {
        for _ in 0..STRANGERS_PER_TURN {
            let Some(number) = self.strangers.late(now()) else { break };
            self.fail(number, &AdmissionError::Silent.into());
        }
        while let Some(entry) = self.later.first_entry()
            && entry.key().0 <= now()
        {
            self.dials.wait(entry.remove());
        }
        self.dial();
        self.look_again();
        self.resume_accepting();
    }

    /// Everything that was open ends; who is connecting has its answer thrown away.
    fn end(&mut self) {
        let numbers: Vec<_> = self.connections.keys().copied().collect();
        for number in numbers {
            if let Some(Connection { direction: Direction::Outgoing(link), .. }) = self.connections.get(&number) {
                link.leave();
            }
            self.close(number);
        }
    }
}

/// Tells the other end why it is not served.
pub(crate) fn turn_away(channel: &mut Channel, reason: &str) {
    channel.push(kind::REFUSED, reason.as_bytes(), None);
    // It is told if it listens; nobody waits for it.
    let _ = channel.flush();
}

/// Frames of a peer that this agent connected to.
fn handle(link: &Link, channel: &mut Channel) -> Result<(), ChannelError> {
    while let Some(frame) = channel.next(HELLO_BYTES_MAX)? {
        match frame.kind {
            kind::REGION => connect::add_region(link, &frame, channel)?,
            kind::WITHDRAWN => connect::withdraw_region(link, &frame)?,
            other => return Err(WireError::OutOfPlace(other).into()),
        }
    }
    Ok(())
}
