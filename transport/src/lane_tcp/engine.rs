//! The lane's thread: it reads what owners send, sends what readers ask for, and ends transfers. What becomes of connections
//! that fail or slow is in `recovery`.

use super::owner::{OwnerConnection, Turn};
use super::plan::Begun;
use super::reader::{Active, Actives, ReaderConnection, Received};
use super::{Order, Orders, Streams};
use crate::counts::{Counts, Refusal};
use crate::desk::{Posted, now};
use crate::event::{TransferError, TransferId};
use crate::link::{Link, Way};
use crate::rails::RailFault;
use crate::station::Station;
use crate::transfer::Work;
use crate::wake::{Wake, timespec};
use domain::{Incarnation, WorkerId};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::Timespec;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// How long the thread looks for what comes next before it sleeps, where something is to be expected.
const SPIN: Duration = Duration::from_micros(50);
/// Answers in a row to transfers that are not under way. There are no more to those that have just ended than could be asked for.
const UNKNOWN_MAX: usize = 1 << 16;
/// Where bytes go whose transfer ended.
const WASTE_BYTES: usize = 64 << 10;

/// What is not a connection among the things waited for.
const BELL: u64 = 0;
const FIRST_CONNECTION: u64 = 1;

enum Connection {
    Reader(ReaderConnection),
    Owner(OwnerConnection),
}

/// A link that this agent reads over.
pub(super) struct Reach {
    pub(super) link: Arc<Link>,
    /// The connection of each rail that is used.
    pub(super) connections: Vec<Option<u64>>,
}

pub(super) struct Engine<'a> {
    pub(super) station: &'a Arc<Station>,
    streams: &'a Streams,
    wake: Arc<dyn Wake>,
    epoll: OwnedFd,
    connections: HashMap<u64, Connection>,
    next: u64,
    /// By the address of the link.
    pub(super) links: HashMap<usize, Reach>,
    /// Whether some link has several rails, or one that is put aside.
    pub(super) attends: bool,
    pub(super) actives: Actives,
    /// What each caller's transfer is called on the wire.
    numbers: HashMap<TransferId, u64>,
    /// Connections with something to send that may be sent now.
    sendable: VecDeque<u64>,
    /// Connections with requests that wait for their gates.
    gated: BTreeSet<u64>,
    waste: Vec<u8>,
    /// Carried out; kept for its room.
    orders: Orders,
    closed: bool,
    /// Whether a peer was served since the thread last waited for more.
    served: bool,
    ended: Vec<(u64, Result<(), TransferError>)>,
}

/// The thread's body. Returns after [`Streams::close`], with every open transfer ended as cancelled.
pub(crate) fn run(station: &Arc<Station>) {
    let Some(streams) = &station.streams else { return };
    let mut engine = match Engine::new(station, streams) {
        Ok(engine) => engine,
        Err(error) => return tracing::error!(worker = station.config.name, %error, "the lane tcp did not start"),
    };
    if let Err(error) = engine.run() {
        tracing::error!(worker = station.config.name, %error, "the lane tcp ended");
    }
    engine.end();
}

impl<'a> Engine<'a> {
    fn new(station: &'a Arc<Station>, streams: &'a Streams) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Edge-triggered: see `Doorbell`.
        epoll::add(&epoll, streams.bell().fd(), EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
        let posted_max = station.config.posted_max;
        Ok(Self {
            station,
            streams,
            wake: streams.bell().clone(),
            epoll,
            connections: HashMap::new(),
            next: FIRST_CONNECTION,
            links: HashMap::new(),
            attends: false,
            actives: HashMap::with_capacity(posted_max),
            numbers: HashMap::with_capacity(posted_max),
            sendable: VecDeque::new(),
            gated: BTreeSet::new(),
            waste: vec![0; WASTE_BYTES],
            orders: Orders::new(posted_max),
            closed: false,
            served: false,
            ended: Vec::new(),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            self.streams.bell().answer();
            self.carry_out();
            if self.closed {
                return Ok(());
            }
            self.attend_rails();
            self.open_gates();
            self.send();
            events.clear();
            self.wait(&mut events)?;
            for event in &events {
                match event.data.u64() {
                    BELL => {}
                    number => self.ready(number, event.flags),
                }
            }
        }
    }

    /// Waits for something to do: not at all where there is something, a moment without sleeping where bytes or requests may
    /// come soon.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let poll = |events: &mut Vec<epoll::Event>, timeout: Option<&Timespec>| match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(events),
            timeout,
        ) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error),
        };
        let at_once = Timespec::default();
        if poll(events, Some(&at_once))? || !self.sendable.is_empty() {
            return Ok(());
        }
        // Whoever was served asks for more, or an answer is under way.
        if std::mem::take(&mut self.served) || self.actives.values().any(|active| !active.plan.is_gated()) {
            let begin = now();
            while now().duration_since(begin) < SPIN {
                if self.streams.bell().is_rung() || poll(events, Some(&at_once))? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
        }
        for connection in self.connections.values_mut() {
            if let Connection::Reader(reader) = connection {
                reader.wake_late();
            }
        }
        let timeout = self.rails_deadline().map(|at| timespec(at.saturating_duration_since(now())));
        self.streams.bell().sleep(|sleep| poll(events, if sleep { timeout.as_ref() } else { Some(&at_once) }))?;
        Ok(())
    }

    /// Does what others asked for.
    fn carry_out(&mut self) {
        let mut orders = std::mem::replace(&mut self.orders, Orders::new(0));
        self.streams.take(&mut orders);
        self.closed |= orders.closed;
        for order in orders.own.drain(..) {
            match order {
                Order::Adopt(link) => {
                    self.adopt(&link);
                    // It may have left while it waited here.
                    orders.links_changed |= link.is_gone();
                }
                Order::Rejoin(link, rail, joined) => self.rejoin(&link, rail, joined),
            }
        }
        for (peer, incarnation, socket) in orders.served.drain(..) {
            self.watch(Connection::Owner(OwnerConnection::new(socket, peer, incarnation)));
        }
        for posted in orders.posted.drain(..) {
            self.post(posted);
        }
        for id in orders.cancelled.drain(..) {
            if let Some(&number) = self.numbers.get(&id) {
                self.finish(number, Err(TransferError::Cancelled));
            }
        }
        if orders.links_changed || !orders.introduced.is_empty() {
            self.reap(&orders.introduced);
            orders.links_changed = false;
            orders.introduced.clear();
        }
        self.orders = orders;
    }

    /// The connections of this link are this thread's.
    fn adopt(&mut self, link: &Arc<Link>) {
        let Way::Tcp(way) = &link.way else { return };
        let connections = (0..way.askers().len()).map(|rail| self.listen(link, rail)).collect();
        self.links.insert(Arc::as_ptr(link) as usize, Reach { link: link.clone(), connections });
        self.count_rails();
    }

    /// Listens to what comes over a rail. `None`: it is not connected.
    pub(super) fn listen(&mut self, link: &Arc<Link>, rail: usize) -> Option<u64> {
        self.watch(Connection::Reader(ReaderConnection::new(link.clone(), rail)?))
    }

    fn watch(&mut self, connection: Connection) -> Option<u64> {
        let number = self.next;
        let socket = match &connection {
            Connection::Reader(reader) => reader.socket(),
            Connection::Owner(owner) => owner.socket(),
        };
        if let Err(error) = epoll::add(&self.epoll, socket, EventData::new_u64(number), EventFlags::IN) {
            tracing::warn!(worker = self.station.config.name, %error, "a connection cannot be watched");
            return None;
        }
        self.connections.insert(number, connection);
        self.next += 1;
        Some(number)
    }

    fn post(&mut self, posted: Posted) {
        let Posted { open, work } = posted;
        let Work::Stream(plan) = work else { return };
        let (number, begun) = (plan.number, plan.begun);
        if let Some(id) = open.id() {
            self.numbers.insert(id, number);
        }
        let known = self.links.contains_key(&(Arc::as_ptr(&open.link) as usize)) && !open.link.is_gone();
        let empty = plan.missing == 0;
        self.actives.insert(number, Active { open, plan });
        if !known {
            return self.finish(number, Err(TransferError::PeerGone));
        }
        if empty {
            return self.finish(number, Ok(()));
        }
        self.ask(number, begun);
        if self.actives.len() == 1
            && let Some(active) = self.actives.get(&number).filter(|active| !active.plan.is_gated())
        {
            // Nothing else is under way, so the time until its first bytes come would be spent looking out for them.
            active.plan.expect();
        }
    }

    /// Asks for what of a transfer was not asked for yet, or was over a connection that is not there any more.
    pub(super) fn ask(&mut self, number: u64, begun: Begun) {
        let Some(active) = self.actives.get_mut(&number) else { return };
        let Way::Tcp(way) = &active.open.link.way else { return };
        if way.is_unasked(&mut active.plan) || begun != Begun::All {
            // What does not go, or cannot, is seen by the flush.
            let _ = way.ask(&mut active.plan);
            let link = Arc::as_ptr(&active.open.link) as usize;
            self.flush_all(link);
        }
    }

    /// Sends requests over all connections of a link.
    fn flush_all(&mut self, link: usize) {
        let connections = self.links.get(&link).map(|reach| reach.connections.clone()).unwrap_or_default();
        connections.into_iter().flatten().for_each(|connection| self.flush(connection));
    }

    /// Takes a transfer to its one end.
    fn finish(&mut self, number: u64, result: Result<(), TransferError>) {
        let Some(active) = self.actives.remove(&number) else { return };
        if let Some(id) = active.open.id() {
            self.numbers.remove(&id);
        }
        if result == Err(TransferError::Corrupted) {
            Counts::add(&self.station.counts.corrupted);
            tracing::warn!(
                worker = self.station.config.name,
                peer = active.open.link.name,
                "bytes that were read do not match their checksum"
            );
        }
        if result.is_err() {
            if let Way::Tcp(way) = &active.open.link.way {
                way.give_up(&active.plan);
            }
            let link = Arc::as_ptr(&active.open.link) as usize;
            for connection in self.links.get(&link).iter().flat_map(|reach| reach.connections.iter().flatten()) {
                if let Some(Connection::Reader(reader)) = self.connections.get_mut(connection) {
                    reader.give_up(&active.plan);
                }
            }
            self.flush_all(link);
        }
        let rails = active.plan.rails();
        active.open.end(self.station, active.plan, rails, result);
    }

    /// Sends requests over a connection, now and whenever it takes more.
    pub(super) fn flush(&mut self, number: u64) {
        let Some(Connection::Reader(reader)) = self.connections.get_mut(&number) else { return };
        match reader.flush() {
            Ok(done) if done != reader.waits_to_write => {}
            Ok(done) => {
                reader.waits_to_write = !done;
                let flags = if done { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
                // It is there, so this works; if it did not, the peer's silence would end the connection.
                let _ = epoll::modify(&self.epoll, reader.socket(), EventData::new_u64(number), flags);
            }
            Err(error) => self.lose(number, &error.to_string()),
        }
    }

    /// A reader's connection is of no use any more.
    fn lose(&mut self, number: u64, reason: &str) {
        if let Some(Connection::Reader(reader)) = self.connections.get(&number) {
            let (link, rail) = (Arc::as_ptr(&reader.link) as usize, reader.rail);
            self.put_aside(link, rail, RailFault::Failed, reason);
        }
    }

    /// Ends a reader's connection for both ends.
    pub(super) fn end_reader(&mut self, number: u64) {
        if let Some(Connection::Reader(reader)) = self.connections.remove(&number) {
            // Transfers that nobody posted hold the link, and whoever posts may hold the socket, which must not be heard of.
            let _ = epoll::delete(&self.epoll, reader.socket());
            reader.close();
        }
    }

    /// Closes the connections of links that are gone and of earlier lives, and ends the transfers over them.
    fn reap(&mut self, introduced: &[(WorkerId, Incarnation)]) {
        self.connections.retain(|_, connection| match connection {
            Connection::Reader(_) => true,
            Connection::Owner(owner) => !introduced.iter().any(|&(id, life)| owner.is_before(id, life)),
        });
        let gone = self.links.extract_if(|_, reach| reach.link.is_gone()).flat_map(|(_, reach)| reach.connections);
        gone.flatten().collect::<Vec<_>>().into_iter().for_each(|connection| self.end_reader(connection));
        self.count_rails();
        let gone = self.actives.iter().filter(|(_, active)| active.open.link.is_gone()).map(|(&number, _)| number);
        for number in gone.collect::<Vec<_>>() {
            self.finish(number, Err(TransferError::PeerGone));
        }
        let connections = &self.connections;
        self.gated.retain(|number| connections.contains_key(number));
    }

    /// Lets requests through whose gates opened.
    fn open_gates(&mut self) {
        if self.gated.is_empty() {
            return;
        }
        let progress = self.station.progress.watch(&self.wake);
        let (connections, sendable) = (&mut self.connections, &mut self.sendable);
        self.gated.retain(|number| {
            let Some(Connection::Owner(owner)) = connections.get_mut(number) else { return false };
            if owner.open(progress) && !sendable.contains(number) {
                sendable.push_back(*number);
            }
            owner.waits()
        });
    }

    /// Gives each connection that has something to send its turn.
    fn send(&mut self) {
        for _ in 0..self.sendable.len() {
            let Some(number) = self.sendable.pop_front() else { break };
            let Some(Connection::Owner(owner)) = self.connections.get_mut(&number) else { continue };
            self.served = true;
            match owner.turn() {
                Ok(Turn::Idle) => self.wait_to_write(number, false),
                Ok(Turn::More) => self.sendable.push_back(number),
                Ok(Turn::Blocked) => self.wait_to_write(number, true),
                Err(error) => self.close(number, &error.to_string()),
            }
        }
    }

    /// Whether to wait until a connection takes more.
    fn wait_to_write(&mut self, number: u64, wait: bool) {
        if let Some(Connection::Owner(owner)) = self.connections.get_mut(&number)
            && owner.waits_to_write != wait
        {
            owner.waits_to_write = wait;
            let flags = if wait { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            // See `flush`.
            let _ = epoll::modify(&self.epoll, owner.socket(), EventData::new_u64(number), flags);
        }
    }

    /// Something can be read from, or written to, a connection.
    fn ready(&mut self, number: u64, flags: EventFlags) {
        match self.connections.get_mut(&number) {
            None => {}
            Some(Connection::Owner(owner)) => {
                self.served = true;
                let mut has_work = flags.contains(EventFlags::OUT);
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                    match owner.receive(self.station) {
                        Ok(work) => has_work |= work,
                        Err(error) => {
                            error.count(&self.station.counts);
                            return self.close(number, &error.to_string());
                        }
                    }
                    if owner.waits() {
                        self.gated.insert(number);
                    }
                }
                if has_work && !self.sendable.contains(&number) {
                    self.sendable.push_back(number);
                }
            }
            Some(Connection::Reader(_)) => self.read(number),
        }
    }

    /// Takes what came over a connection that this agent reads over.
    fn read(&mut self, number: u64) {
        for _ in 0..UNKNOWN_MAX {
            let Some(Connection::Reader(reader)) = self.connections.get_mut(&number) else { return };
            let mut ended = std::mem::take(&mut self.ended);
            let received = reader.receive(&mut self.actives, &mut self.waste, &mut ended);
            for (transfer, result) in ended.drain(..) {
                self.finish(transfer, result);
            }
            self.ended = ended;
            match received {
                Ok(Received::All) => return self.flush(number),
                // It was asked for before it was ordered. The answer may be over: nothing else would tell of it.
                Ok(Received::Unknown) => self.carry_out(),
                Err(error) => {
                    error.count(&self.station.counts);
                    return self.lose(number, &error.to_string());
                }
            }
        }
        self.station.counts.refused(Refusal::Answer);
        self.lose(number, &format!("{UNKNOWN_MAX} answers in a row to what nobody waits for"));
    }

    /// A connection that a peer reads over is of no use any more.
    fn close(&mut self, number: u64, reason: &str) {
        tracing::debug!(worker = self.station.config.name, reason, "closed a connection that is read over");
        self.connections.remove(&number);
        self.gated.remove(&number);
    }

    /// Ends what is open.
    fn end(&mut self) {
        for number in self.actives.keys().copied().collect::<Vec<_>>() {
            self.finish(number, Err(TransferError::Cancelled));
        }
    }
}
