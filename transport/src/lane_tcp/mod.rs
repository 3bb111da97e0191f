//! The lane `tcp`: the reader asks, the owner streams, the reader's kernel writes straight to where the bytes belong.
//!
//! One thread of the agent does it for all peers, in both directions: no socket ever makes it wait for another. Connections
//! are made, and proven to be a peer's, by `control`.

mod asker;
mod owner;
mod plan;
mod reader;
mod wire;

pub(crate) use asker::Asker;
pub(crate) use plan::StreamPlan;

use crate::counts::{Counts, Refusal};
use crate::event::{TransferError, TransferId, TransferReport};
use crate::link::{Link, Way};
use crate::station::Station;
use crate::transfer::{Transfer, Work};
use crate::wake::{Doorbell, Wake};
use domain::{Incarnation, WorkerId};
use owner::{OwnerConnection, Turn};
use reader::{Active, Actives, ReaderConnection, Received, now};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::Timespec;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the thread looks for what comes next before it sleeps, where something is to be expected.
const SPIN: Duration = Duration::from_micros(50);
/// Where bytes go whose transfer ended.
const WASTE_BYTES: usize = 64 << 10;

/// What is not a connection among the things waited for.
const BELL: u64 = 0;
const FIRST_CONNECTION: u64 = 1;

/// How others reach the thread.
pub(crate) struct Streams {
    bell: Arc<Doorbell>,
    orders: Mutex<Orders>,
}

#[derive(Default)]
struct Orders {
    posted: VecDeque<Posted>,
    cancelled: Vec<TransferId>,
    adopted: Vec<Arc<Link>>,
    served: Vec<(WorkerId, Incarnation, OwnedFd)>,
    introduced: Vec<(WorkerId, Incarnation)>,
    links_changed: bool,
    closed: bool,
}

struct Posted {
    /// `None`: it is not a caller's.
    id: Option<TransferId>,
    transfer: Transfer,
    at: Instant,
    asker: Option<SyncSender<Result<TransferReport, TransferError>>>,
    begun: Begun,
}

/// What of a posted transfer was asked for by who posted it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    Nothing,
    /// All of it, but some requests wait for room in their sockets.
    Some,
    All,
}

impl Posted {
    fn is_gated(&self) -> bool {
        matches!(&self.transfer.work, Work::Stream(plan) if plan.is_gated())
    }

    /// Asks for all bytes, if that allocates nothing.
    fn ask(&self) -> Begun {
        let (Way::Tcp { askers, .. }, Work::Stream(plan)) = (&self.transfer.link.way, &self.transfer.work) else {
            return Begun::Nothing;
        };
        if plan.missing == 0 || self.transfer.link.is_gone() || !askers.iter().all(|asker| asker.has_room(plan)) {
            return Begun::Nothing;
        }
        // Each connection has a share of its own, whatever becomes of the others'.
        let unfinished = askers.iter().filter(|asker| asker.ask(plan) != Ok(true)).count();
        if unfinished == 0 { Begun::All } else { Begun::Some }
    }
}

impl Streams {
    pub(crate) fn new(posted_max: usize) -> io::Result<Self> {
        let orders = Orders::new(posted_max);
        Ok(Self { bell: Arc::new(Doorbell::new()?), orders: Mutex::new(orders) })
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut self.orders());
        self.bell.wake();
    }

    pub(crate) fn post(&self, id: TransferId, transfer: Transfer) {
        let posted = Posted { id: Some(id), transfer, at: now(), asker: None, begun: Begun::Nothing };
        self.begin(posted);
    }

    /// Asks for the bytes of a transfer, if the sockets take it now. The thread is woken for what they do not take, and to
    /// look out for bytes that come soon; for those behind a gate, their arrival wakes it.
    fn begin(&self, mut posted: Posted) {
        // The thread looks among the orders for what is answered, so it must not look before this one is there.
        let mut orders = self.orders();
        posted.begun = posted.ask();
        let rests = posted.begun == Begun::All && posted.is_gated();
        orders.posted.push_back(posted);
        drop(orders);
        if !rests {
            self.bell.wake();
        }
    }

    /// Reads and waits for the end, for `at_most`. Errors: why not, in words.
    pub(crate) fn read(&self, transfer: Transfer, at_most: Duration) -> Result<TransferReport, String> {
        let (asker, answer) = sync_channel(1);
        self.begin(Posted { id: None, transfer, at: now(), asker: Some(asker), begun: Begun::Nothing });
        let answer = answer.recv_timeout(at_most).map_err(|_| format!("a read takes longer than {at_most:?}"))?;
        answer.map_err(|error| error.to_string())
    }

    pub(crate) fn cancel(&self, id: TransferId) {
        // Never refused; see `Mover::cancel`.
        self.order(|orders| orders.cancelled.push(id));
    }

    /// The connections of this link are this lane's.
    pub(crate) fn adopt(&self, link: Arc<Link>) {
        self.order(|orders| orders.adopted.push(link));
    }

    /// A peer reads over this connection. Non-blocking.
    pub(crate) fn serve(&self, peer: WorkerId, incarnation: Incarnation, socket: OwnedFd) {
        self.order(|orders| orders.served.push((peer, incarnation, socket)));
    }

    /// A life of a peer is known; connections of earlier ones are closed.
    pub(crate) fn introduced(&self, id: WorkerId, incarnation: Incarnation) {
        self.order(|orders| orders.introduced.push((id, incarnation)));
    }

    /// Some link is gone.
    pub(crate) fn links_changed(&self) {
        self.order(|orders| orders.links_changed = true);
    }

    pub(crate) fn close(&self) {
        self.order(|orders| orders.closed = true);
    }
}

impl Orders {
    fn new(posted_max: usize) -> Self {
        Self {
            posted: VecDeque::with_capacity(posted_max),
            cancelled: Vec::with_capacity(posted_max),
            ..Self::default()
        }
    }
}

enum Connection {
    Reader(ReaderConnection),
    Owner(OwnerConnection),
}

struct Engine<'a> {
    station: &'a Station,
    streams: &'a Streams,
    wake: Arc<dyn Wake>,
    epoll: OwnedFd,
    connections: HashMap<u64, Connection>,
    next: u64,
    /// The connections of a link, by its address.
    of_link: HashMap<usize, Vec<u64>>,
    actives: Actives,
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
pub(crate) fn run(station: &Station) {
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
    fn new(station: &'a Station, streams: &'a Streams) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Edge-triggered: see `Doorbell`.
        epoll::add(&epoll, streams.bell.fd(), EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
        let posted_max = station.config.posted_max;
        Ok(Self {
            station,
            streams,
            wake: streams.bell.clone(),
            epoll,
            connections: HashMap::new(),
            next: FIRST_CONNECTION,
            of_link: HashMap::new(),
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
            self.streams.bell.answer();
            self.carry_out();
            if self.closed {
                return Ok(());
            }
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
                if self.streams.bell.is_rung() || poll(events, Some(&at_once))? {
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
        self.streams.bell.sleep(|sleep| poll(events, if sleep { None } else { Some(&at_once) }))?;
        Ok(())
    }

    /// Does what others asked for.
    fn carry_out(&mut self) {
        let mut orders = std::mem::take(&mut self.orders);
        std::mem::swap(&mut orders, &mut *self.streams.orders());
        self.closed |= orders.closed;
        for link in orders.adopted.drain(..) {
            let Way::Tcp { askers, .. } = &link.way else { continue };
            let of_link = askers
                .iter()
                .filter_map(|asker| self.watch(Connection::Reader(ReaderConnection::new(asker.clone(), link.clone()))));
            let of_link = of_link.collect();
            self.of_link.insert(Arc::as_ptr(&link) as usize, of_link);
            // It may have left while it waited here.
            orders.links_changed |= link.is_gone();
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
        let Posted { id, transfer, at, asker, begun } = posted;
        let bytes = transfer.bytes();
        let Transfer { link, work, .. } = transfer;
        let Work::Stream(plan) = work else { return };
        let number = plan.number;
        let connections = self.of_link.get(&(Arc::as_ptr(&link) as usize)).cloned();
        let active = Active { id, link, bytes, plan, at, begun: None, wire: Duration::ZERO, asker };
        if let Some(id) = id {
            self.numbers.insert(id, number);
        }
        let (gone, empty) = (active.link.is_gone(), active.plan.missing == 0);
        self.actives.insert(number, active);
        let Some(connections) = connections.filter(|_| !gone) else {
            return self.finish(number, Err(TransferError::PeerGone));
        };
        if empty {
            return self.finish(number, Ok(()));
        }
        for connection in connections {
            if let (Some(Connection::Reader(reader)), Some(active), Begun::Nothing) =
                (self.connections.get(&connection), self.actives.get(&number), begun)
            {
                // What does not go, or cannot, is seen by the flush.
                let _ = reader.ask(&active.plan);
            }
            if begun != Begun::All {
                self.flush(connection);
            }
        }
        if self.actives.len() == 1
            && let Some(active) = self.actives.get(&number).filter(|active| !active.plan.is_gated())
        {
            // Nothing else is under way, so the time until its first bytes come would be spent looking out for them.
            active.plan.expect();
        }
    }

    /// Takes a transfer to its one end.
    fn finish(&mut self, number: u64, result: Result<(), TransferError>) {
        let Some(active) = self.actives.remove(&number) else { return };
        if let Some(id) = active.id {
            self.numbers.remove(&id);
        }
        if result == Err(TransferError::Corrupted) {
            Counts::add(&self.station.counts.corrupted);
            tracing::warn!(
                worker = self.station.config.name,
                peer = active.link.name,
                "bytes that were read do not match their checksum"
            );
        }
        if result.is_err() {
            for connection in self.of_link.get(&(Arc::as_ptr(&active.link) as usize)).cloned().unwrap_or_default() {
                if let Some(Connection::Reader(reader)) = self.connections.get_mut(&connection) {
                    reader.give_up(&active.plan);
                }
                self.flush(connection);
            }
        }
        let result = result.map(|()| active.report());
        active.plan.end(result);
        match (active.id, active.asker) {
            (Some(id), _) => {
                if let Ok(report) = &result {
                    self.station.read(&active.link, report);
                }
                self.station.end_with(id, result);
            }
            // Who asked may have stopped waiting.
            (None, Some(asker)) => drop(asker.try_send(result)),
            (None, None) => {}
        }
    }

    /// Sends requests over a connection, now and whenever it takes more.
    fn flush(&mut self, number: u64) {
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

    /// A reader's connection is of no use any more, so its link is not.
    fn lose(&self, number: u64, reason: &str) {
        if let Some(Connection::Reader(reader)) = self.connections.get(&number) {
            let link = reader.link.clone();
            self.station.lose(&link, reason);
        }
    }

    /// Closes the connections of links that are gone and of earlier lives, and ends the transfers over them.
    fn reap(&mut self, introduced: &[(WorkerId, Incarnation)]) {
        let epoll = &self.epoll;
        self.connections.retain(|_, connection| match connection {
            Connection::Reader(reader) if reader.link.is_gone() => {
                // Transfers that nobody posted hold the link, and with it the socket, which must not be heard of again.
                let _ = epoll::delete(epoll, reader.socket());
                reader.close();
                false
            }
            Connection::Reader(_) => true,
            Connection::Owner(owner) => !introduced.iter().any(|&(id, life)| owner.is_before(id, life)),
        });
        let gone = self.actives.iter().filter(|(_, active)| active.link.is_gone()).map(|(&number, _)| number);
        for number in gone.collect::<Vec<_>>() {
            self.finish(number, Err(TransferError::PeerGone));
        }
        let connections = &self.connections;
        self.of_link.retain(|_, of_link| of_link.iter().any(|number| connections.contains_key(number)));
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
                        Err((refused, reason)) => {
                            if refused {
                                self.station.counts.refused(Refusal::Request);
                            }
                            return self.close(number, &reason);
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
            Some(Connection::Reader(reader)) => {
                let mut ended = std::mem::take(&mut self.ended);
                let received = reader.receive(&mut self.actives, &mut self.waste, &mut ended);
                for (transfer, result) in ended.drain(..) {
                    self.finish(transfer, result);
                }
                self.ended = ended;
                match received {
                    Ok(Received::All) => self.flush(number),
                    // It was asked for before it was ordered; the answer is read on in the next round.
                    Ok(Received::Unknown) => self.carry_out(),
                    Err(reason) => self.lose(number, &reason),
                }
            }
        }
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
