//! What the lane has open, and what is done with it: requests are sent and answered, answers are read, transfers
//! end. `thread` and `driver` decide which thread does it, and when; `recovery` has what follows where connections
//! fail or slow down.

use super::owner::{OwnerConnection, Turn, Waker};
use super::plan::Begun;
use super::reader::{Active, Actives, ReaderConnection, Received};
use super::{Order, Orders, Streams};
use crate::agent::counts::{Counts, Refusal};
use crate::agent::event::{TransferError, TransferId};
use crate::agent::link::{Link, Way};
use crate::agent::shared::AgentShared;
use crate::clock::now;
use crate::lanes::lane_queue::Posted;
use crate::lanes::rails::RailFault;
use crate::transfer::Work;
use crate::wake::{Wake, timespec};
use domain::{Incarnation, WorkerId};
use parking_lot::MutexGuard;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::Timespec;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::Arc;

/// Connections of both directions. Beyond so many, one more that a peer would read over is closed.
const CONNECTIONS_MAX: usize = 16 << 10;
/// Answers in a row to transfers that are not under way. There are no more to those that have just ended than
/// could be asked for.
const UNKNOWN_MAX: usize = 1 << 16;
/// Where bytes go whose transfer ended.
const WASTE_BYTES: usize = 64 << 10;

/// What is not a connection among the things waited for.
pub(super) const BELL: u64 = 0;
const FIRST_CONNECTION: u64 = 1;

enum Connection {
    Reader(ReaderConnection),
    Owner(OwnerConnection),
}

/// A link that this agent reads over.
pub(super) struct OpenLink {
    pub(super) link: Arc<Link>,
    /// The connection of each rail that is used.
    pub(super) connections: Vec<Option<u64>>,
}

/// What the lane has open.
pub(super) struct State {
    wake: Arc<dyn Wake>,
    /// What copiers call.
    waker: Waker,
    connections: HashMap<u64, Connection>,
    next: u64,
    /// By the address of the link.
    pub(super) links: HashMap<usize, OpenLink>,
    /// Whether some link has several rails, or one that is put aside.
    pub(super) attends: bool,
    pub(super) actives: Actives,
    /// What each caller's transfer is called on the wire.
    numbers: HashMap<TransferId, u64>,
    /// Connections with something to send that may be sent now.
    sendable: VecDeque<u64>,
    /// Connections with requests that wait for their gates.
    gated: BTreeSet<u64>,
    /// Connections whose next bytes come from a device, or whose last ones go there.
    staged: BTreeSet<u64>,
    /// The progress word up to which gates were opened. What waits since then waits for a later one.
    opened: u64,
    waste: Vec<u8>,
    /// Carried out; kept for its room.
    orders: Orders,
    closed: bool,
    /// Whether a peer was served since the thread last waited for more.
    served: bool,
    ended: Vec<(u64, Result<(), TransferError>)>,
    /// The same, of transfers that end in the next round.
    settled: Vec<(u64, Result<(), TransferError>)>,
}

/// What is to be expected after a round.
pub(super) enum Outlook {
    /// The lane is closed.
    End,
    /// There is more to do.
    More,
    /// Something may come soon.
    Soon,
    Nothing,
}

/// The lane, in the hands of the one thread that works with it now.
pub(super) struct Engine<'a> {
    pub(super) agent: &'a Arc<AgentShared>,
    pub(super) streams: &'a Streams,
    pub(super) state: MutexGuard<'a, State>,
}

impl State {
    pub(super) fn new(wake: Arc<dyn Wake>, posted_max: usize) -> Self {
        let bell = wake.clone();
        Self {
            wake,
            waker: Arc::new(move || bell.wake()),
            connections: HashMap::new(),
            next: FIRST_CONNECTION,
            links: HashMap::new(),
            attends: false,
            actives: HashMap::with_capacity(posted_max),
            numbers: HashMap::with_capacity(posted_max),
            sendable: VecDeque::new(),
            gated: BTreeSet::new(),
            staged: BTreeSet::new(),
            opened: 0,
            waste: vec![0; WASTE_BYTES],
            orders: Orders::new(posted_max),
            closed: false,
            served: false,
            ended: Vec::new(),
            settled: Vec::new(),
        }
    }
}

impl<'a> Engine<'a> {
    /// Waits until no other thread works with the lane.
    pub(super) fn enter(agent: &'a Arc<AgentShared>, streams: &'a Streams) -> Self {
        Self { agent, streams, state: streams.state.lock() }
    }

    /// Returns the same without waiting. `None`: another thread works with it.
    pub(super) fn try_enter(agent: &'a Arc<AgentShared>, streams: &'a Streams) -> Option<Self> {
        Some(Self { agent, streams, state: streams.state.try_lock()? })
    }

    /// Lets the thread work with the lane, if it waits to.
    pub(super) fn give_way(&mut self) {
        MutexGuard::bump(&mut self.state);
    }

    /// Does what can be done now. What happened to connections is told before: [`Engine::ready`].
    pub(super) fn round(&mut self) -> Outlook {
        self.streams.lane_queue().bell().answer();
        self.carry_out();
        if self.state.closed {
            return Outlook::End;
        }
        self.attend_rails();
        self.open_gates();
        self.settle();
        self.send();
        // A reader that was served asks for more, or an answer is under way that no caller looks out for.
        let served = std::mem::take(&mut self.state.served);
        if !self.state.sendable.is_empty() || !self.state.settled.is_empty() {
            Outlook::More
        } else if served
            || !self.streams.is_driven() && self.state.actives.values().any(|active| !active.plan.is_gated())
        {
            Outlook::Soon
        } else {
            Outlook::Nothing
        }
    }

    /// The thread is about to sleep. For how long it may.
    pub(super) fn lie_down(&mut self) -> Option<Timespec> {
        for connection in self.state.connections.values_mut() {
            if let Connection::Reader(reader) = connection {
                reader.wake_late();
            }
        }
        self.rails_deadline().map(|at| timespec(at.saturating_duration_since(now())))
    }

    /// Takes the connection of `link` out of the hands of the thread, if what is under way is one read over it,
    /// whose bytes come without waiting for a gate.
    pub(super) fn take_over(&mut self, link: &Arc<Link>) -> Option<u64> {
        // It may have been posted just now.
        self.carry_out();
        let mut actives = self.state.actives.values();
        let (active, None) = (actives.next()?, actives.next()) else { return None };
        if !Arc::ptr_eq(&active.open.link, link) || active.plan.is_gated() {
            return None;
        }
        // Several rails have to be judged while they are read over.
        let [Some(connection)] = self.state.links.get(&(Arc::as_ptr(link) as usize))?.connections[..] else {
            return None;
        };
        self.set_driven(connection, true);
        Some(connection)
    }

    /// The thread listens to a connection again.
    pub(super) fn hand_back(&mut self, connection: u64) {
        self.set_driven(connection, false);
    }

    fn set_driven(&mut self, number: u64, driven: bool) {
        if let Some(Connection::Reader(reader)) = self.state.connections.get_mut(&number) {
            reader.is_driven = driven;
            self.listen_anew(number);
        }
    }

    /// Does what others asked for.
    fn carry_out(&mut self) {
        let mut orders = std::mem::replace(&mut self.state.orders, Orders::new(0));
        self.streams.lane_queue().take(&mut orders);
        self.state.closed |= orders.closed;
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
            self.admit(OwnerConnection::new(socket, peer, incarnation));
        }
        for posted in orders.posted.drain(..) {
            self.post(posted);
        }
        for id in orders.cancelled.drain(..) {
            if let Some(&number) = self.state.numbers.get(&id) {
                self.finish(number, Err(TransferError::Cancelled));
            }
        }
        if orders.links_changed || !orders.introduced.is_empty() {
            self.reap(&orders.introduced);
            orders.links_changed = false;
            orders.introduced.clear();
        }
        self.state.orders = orders;
    }

    /// A peer reads over this connection from now on.
    fn admit(&mut self, owner: OwnerConnection) {
        if self.state.connections.len() >= CONNECTIONS_MAX {
            return self.agent.counts.refused(Refusal::Crowd);
        }
        if let Err(error) = self.watch(Connection::Owner(owner)) {
            tracing::warn!(worker = self.agent.config.name, %error, "a connection cannot be watched");
        }
    }

    /// The connections of this link are this thread's.
    fn adopt(&mut self, link: &Arc<Link>) {
        let Way::Tcp(way) = &link.way else { return };
        let rails = way.askers().len();
        let open = OpenLink { link: link.clone(), connections: vec![None; rails] };
        self.state.links.insert(Arc::as_ptr(link) as usize, open);
        for rail in 0..rails {
            // One that cannot be listened to is put aside.
            self.listen(link, rail);
        }
        self.count_rails();
    }

    /// Listens to what comes over a rail. `false`: it is not connected, or cannot be listened to and is put aside.
    pub(super) fn listen(&mut self, link: &Arc<Link>, rail: usize) -> bool {
        let Some(reader) = ReaderConnection::new(link.clone(), rail, self.state.waker.clone()) else { return false };
        let key = Arc::as_ptr(link) as usize;
        match self.watch(Connection::Reader(reader)) {
            Ok(number) => {
                if let Some(open) = self.state.links.get_mut(&key) {
                    open.connections[rail] = Some(number);
                }
                true
            }
            Err(error) => {
                self.put_aside(key, rail, RailFault::Failed, &format!("its connection cannot be watched: {error}"));
                false
            }
        }
    }

    /// Errors: the system cannot watch it.
    fn watch(&mut self, connection: Connection) -> io::Result<u64> {
        let number = self.state.next;
        let socket = match &connection {
            Connection::Reader(reader) => reader.socket(),
            Connection::Owner(owner) => owner.socket(),
        };
        epoll::add(self.streams.epoll(), socket, EventData::new_u64(number), EventFlags::IN)?;
        self.state.connections.insert(number, connection);
        self.state.next += 1;
        Ok(number)
    }

    fn post(&mut self, posted: Posted) {
        let Posted { open, work } = posted;
        let Work::Stream(plan) = work else { return };
        let (number, begun) = (plan.number, plan.begun);
        if let Some(id) = open.id() {
            self.state.numbers.insert(id, number);
        }
        let known = self.state.links.contains_key(&(Arc::as_ptr(&open.link) as usize)) && !open.link.is_gone();
        let empty = plan.missing == 0;
        self.state.actives.insert(number, Active { open, plan });
        if !known {
            return self.finish(number, Err(TransferError::PeerGone));
        }
        if empty {
            return self.finish(number, Ok(()));
        }
        self.ask(number, begun);
        if self.state.actives.len() == 1
            && let Some(active) = self.state.actives.get(&number).filter(|active| !active.plan.is_gated())
        {
            // Nothing else is under way, so the time until its first bytes come would be spent looking out for them.
            active.plan.expect();
        }
    }

    /// Asks for what of a transfer was not asked for yet, or was over a connection that is not there any more.
    pub(super) fn ask(&mut self, number: u64, begun: Begun) {
        let Some(active) = self.state.actives.get_mut(&number) else { return };
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
        let connections = self.state.links.get(&link).map(|open| open.connections.clone()).unwrap_or_default();
        connections.into_iter().flatten().for_each(|connection| self.flush(connection));
    }

    /// Takes a transfer to its one end.
    fn finish(&mut self, number: u64, result: Result<(), TransferError>) {
        if self.state.actives.get(&number).is_some_and(|active| active.plan.scattering > 0) {
            self.settle_link_of(number);
        }
        let Some(active) = self.state.actives.remove(&number) else { return };
        if let Some(id) = active.open.id() {
            self.state.numbers.remove(&id);
        }
        if result == Err(TransferError::Corrupted) {
            Counts::add(&self.agent.counts.corrupted);
            tracing::warn!(
                worker = self.agent.config.name,
                peer = active.open.link.name,
                "bytes that were read do not match their checksum"
            );
        }
        if result.is_err() {
            if let Way::Tcp(way) = &active.open.link.way {
                way.give_up(&active.plan);
            }
            let link = Arc::as_ptr(&active.open.link) as usize;
            let State { links, connections, .. } = &mut *self.state;
            for connection in links.get(&link).iter().flat_map(|open| open.connections.iter().flatten()) {
                if let Some(Connection::Reader(reader)) = connections.get_mut(connection) {
                    reader.give_up(&active.plan);
                }
            }
            self.flush_all(link);
        }
        let rails = active.plan.rails();
        active.open.end(self.agent, active.plan, rails, result);
    }

    /// Nothing of a transfer is on its way to its destination any more: it ends.
    fn settle_link_of(&mut self, number: u64) {
        let State { links, connections, actives, .. } = &mut *self.state;
        let Some(link) = actives.get(&number).map(|active| Arc::as_ptr(&active.open.link) as usize) else { return };
        // Other transfers whose last bytes are there end by what is read next, as do those that are not settled here.
        let mut ended = Vec::new();
        for connection in links.get(&link).iter().flat_map(|open| open.connections.iter().flatten()) {
            if let Some(Connection::Reader(reader)) = connections.get_mut(connection) {
                reader.settle_all(actives, &mut ended);
            }
        }
        self.state.settled.extend(ended.into_iter().filter(|&(transfer, _)| transfer != number));
    }

    /// Takes note of what has come from devices, and got there.
    fn settle(&mut self) {
        let mut ended = std::mem::take(&mut self.state.settled);
        let State { connections, actives, sendable, staged, .. } = &mut *self.state;
        staged.retain(|number| match connections.get_mut(number) {
            Some(Connection::Owner(owner)) => {
                let gathers = owner.gathers();
                if !gathers && !sendable.contains(number) {
                    sendable.push_back(*number);
                }
                gathers
            }
            Some(Connection::Reader(reader)) => {
                reader.settle(actives, &mut ended);
                reader.scatters()
            }
            None => false,
        });
        for (transfer, result) in ended {
            self.finish(transfer, result);
        }
    }

    /// Sends requests over a connection, now and whenever it takes more.
    pub(super) fn flush(&mut self, number: u64) {
        let Some(Connection::Reader(reader)) = self.state.connections.get_mut(&number) else { return };
        match reader.flush() {
            Ok(done) if done != reader.waits_to_write => {}
            Ok(done) => {
                reader.waits_to_write = !done;
                self.listen_anew(number);
            }
            Err(error) => self.lose(number, &error.to_string()),
        }
    }

    /// A reader's connection is of no use any more.
    fn lose(&mut self, number: u64, reason: &str) {
        if let Some(Connection::Reader(reader)) = self.state.connections.get(&number) {
            let (link, rail) = (Arc::as_ptr(&reader.link) as usize, reader.rail);
            self.put_aside(link, rail, RailFault::Failed, reason);
        }
    }

    /// Ends a reader's connection for both ends.
    pub(super) fn end_reader(&mut self, number: u64) {
        if let Some(Connection::Reader(mut reader)) = self.state.connections.remove(&number) {
            let State { actives, settled, .. } = &mut *self.state;
            reader.settle_all(actives, settled);
            // Transfers that are not posted hold the link, and a thread that posts may hold the socket, of which no
            // event may come any more.
            let _ = epoll::delete(self.streams.epoll(), reader.socket());
            reader.close();
        }
    }

    /// Closes the connections of links that are gone and of earlier lives, and ends the transfers over them.
    fn reap(&mut self, introduced: &[(WorkerId, Incarnation)]) {
        self.state.connections.retain(|_, connection| match connection {
            Connection::Reader(_) => true,
            Connection::Owner(owner) => !introduced.iter().any(|&(id, life)| owner.is_before(id, life)),
        });
        let gone = self.state.links.extract_if(|_, open| open.link.is_gone()).flat_map(|(_, open)| open.connections);
        gone.flatten().collect::<Vec<_>>().into_iter().for_each(|connection| self.end_reader(connection));
        self.count_rails();
        let gone =
            self.state.actives.iter().filter(|(_, active)| active.open.link.is_gone()).map(|(&number, _)| number);
        for number in gone.collect::<Vec<_>>() {
            self.finish(number, Err(TransferError::PeerGone));
        }
        let State { connections, gated, .. } = &mut *self.state;
        gated.retain(|number| connections.contains_key(number));
    }

    /// Lets requests through whose gates opened.
    fn open_gates(&mut self) {
        if self.state.gated.is_empty() {
            return;
        }
        let progress = self.agent.progress.watch(&self.state.wake);
        if std::mem::replace(&mut self.state.opened, progress) == progress {
            return;
        }
        let State { connections, sendable, gated, .. } = &mut *self.state;
        gated.retain(|number| {
            let Some(Connection::Owner(owner)) = connections.get_mut(number) else { return false };
            if owner.open(progress) && !sendable.contains(number) {
                sendable.push_back(*number);
            }
            owner.waits()
        });
    }

    /// Gives each connection that has something to send its turn.
    fn send(&mut self) {
        for _ in 0..self.state.sendable.len() {
            let Some(number) = self.state.sendable.pop_front() else { break };
            let State { connections, served, waker, .. } = &mut *self.state;
            let Some(Connection::Owner(owner)) = connections.get_mut(&number) else { continue };
            *served = true;
            match owner.turn(waker) {
                Ok(Turn::Gathers) => {
                    self.state.staged.insert(number);
                    self.wait_to_write(number, false);
                }
                Ok(Turn::Idle) => self.wait_to_write(number, false),
                Ok(Turn::More) => self.state.sendable.push_back(number),
                Ok(Turn::Blocked) => self.wait_to_write(number, true),
                Err(error) => self.close(number, &error.to_string()),
            }
        }
    }

    /// Whether to wait until a connection takes more.
    fn wait_to_write(&mut self, number: u64, wait: bool) {
        if let Some(Connection::Owner(owner)) = self.state.connections.get_mut(&number)
            && owner.waits_to_write != wait
        {
            owner.waits_to_write = wait;
            self.listen_anew(number);
        }
    }

    /// What the thread waits for of a connection has changed.
    fn listen_anew(&self, number: u64) {
        let (socket, reads, writes) = match self.state.connections.get(&number) {
            Some(Connection::Reader(reader)) => (reader.socket(), !reader.is_driven, reader.waits_to_write),
            Some(Connection::Owner(owner)) => (owner.socket(), true, owner.waits_to_write),
            None => return,
        };
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, reads);
        flags.set(EventFlags::OUT, writes);
        // It is there, so this works; if it did not, the peer's silence would end the connection.
        let _ = epoll::modify(self.streams.epoll(), socket, EventData::new_u64(number), flags);
    }

    /// Something can be read from, or written to, a connection.
    pub(super) fn ready(&mut self, number: u64, flags: EventFlags) {
        let State { connections, served, gated, sendable, .. } = &mut *self.state;
        match connections.get_mut(&number) {
            None => {}
            Some(Connection::Owner(owner)) => {
                *served = true;
                let mut has_work = flags.contains(EventFlags::OUT);
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                    match owner.receive(self.agent) {
                        Ok(work) => has_work |= work,
                        Err(error) => {
                            error.count(&self.agent.counts);
                            return self.close(number, &error.to_string());
                        }
                    }
                    if owner.waits() {
                        gated.insert(number);
                    }
                }
                if has_work && !sendable.contains(&number) {
                    sendable.push_back(number);
                }
            }
            Some(Connection::Reader(reader)) => {
                if let Way::Tcp(way) = &reader.link.way {
                    way.set_driven(false);
                }
                self.read(number);
            }
        }
    }

    /// Takes what came over a connection that this agent reads over. Whether something did.
    pub(super) fn read(&mut self, number: u64) -> bool {
        for _ in 0..UNKNOWN_MAX {
            let State { connections, actives, waste, ended, staged, .. } = &mut *self.state;
            let Some(Connection::Reader(reader)) = connections.get_mut(&number) else { return false };
            let mut ended = std::mem::take(ended);
            let received = reader.receive(actives, waste, &mut ended);
            if reader.scatters() {
                staged.insert(number);
            }
            for (transfer, result) in ended.drain(..) {
                self.finish(transfer, result);
            }
            self.state.ended = ended;
            match received {
                Ok(Received::All | Received::Nothing) => {
                    self.flush(number);
                    return received.is_ok_and(|received| received == Received::All);
                }
                // It was asked for before it was ordered. The answer may be over: nothing else would tell of it.
                Ok(Received::Unknown) => self.carry_out(),
                Err(error) => {
                    error.count(&self.agent.counts);
                    self.lose(number, &error.to_string());
                    return false;
                }
            }
        }
        self.agent.counts.refused(Refusal::Answer);
        self.lose(number, &format!("{UNKNOWN_MAX} answers in a row to what nobody waits for"));
        false
    }

    /// A connection that a peer reads over is of no use any more.
    fn close(&mut self, number: u64, reason: &str) {
        tracing::debug!(worker = self.agent.config.name, reason, "closed a connection that is read over");
        self.state.connections.remove(&number);
        self.state.gated.remove(&number);
    }

    /// Ends what is open, and closes the connections.
    pub(super) fn end(&mut self) {
        // What a panic kept from being carried out. The queue takes nothing more.
        self.carry_out();
        for number in self.state.actives.keys().copied().collect::<Vec<_>>() {
            self.finish(number, Err(TransferError::Cancelled));
        }
        self.state.links.clear();
        self.state.connections.clear();
    }
}
