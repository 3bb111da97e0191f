//! The lane's thread: it serves the connections of both ends. What it does for transfers is in `transfers`, for
//! rails that fail in `recovery`.
//!
//! It shares with the thread of `tcp` what both do alike: the queue of orders and the policy for rails. The loops are
//! two. This one alone takes completions and reads its transfers itself; that one alone streams to its readers, opens
//! gates for them, and may be driven by a caller that waits.

use super::completions::{Completed, Room};
use super::error::DeviceError;
use super::owner::OwnerConnection;
use super::owner_state::FRAME_BYTES_MAX;
use super::port::Port;
use super::reader::{EndedRead, ReaderConnection};
use super::transfers::Active;
use super::wire::{ExchangeError, RemadeRail};
use super::{Order, Verbs};
use crate::agent::counts::Refusal;
use crate::agent::event::{TransferError, TransferId};
use crate::agent::shared::AgentShared;
use crate::clock::now;
use crate::lanes::lane_queue::Orders;
use crate::lanes::rails::RailFault;
use crate::net::control::{Channel, ChannelError, turn_away};
use crate::wake::{Doorbell, Wake, timespec};
use domain::{Incarnation, WorkerId};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::Timespec;
use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use threads::Doing;

/// Connections that peers read over. One more is closed.
const OWNERS_MAX: usize = 4096;
/// What is waited for.
const BELL: u64 = 0;
/// A port's completions: so much and its place.
const PORT: u64 = 1 << 8;
/// The connection of an owner, or of a reader: so much and its number.
const OWNER: u64 = 1 << 62;
const READER: u64 = 1 << 63;

pub(super) struct Engine<'a> {
    pub(super) agent: &'a AgentShared,
    pub(super) verbs: &'a Verbs,
    wake: Arc<dyn Wake>,
    epoll: &'a OwnedFd,
    pub(super) readers: HashMap<u64, ReaderConnection>,
    owners: HashMap<u64, OwnerConnection<Verbs>>,
    next_owner: u64,
    pub(super) actives: HashMap<u64, Active>,
    /// What each caller's transfer is called among the active ones.
    pub(super) numbers: HashMap<TransferId, u64>,
    /// Carried out; kept for its room.
    orders: Orders<Order, Channel>,
    closed: bool,
    /// Ports on which queue pairs were destroyed, and the room for completions that these had.
    pub(super) given_up: Vec<(usize, Room)>,
    /// Whether a read ended since this was last asked.
    pub(super) progressed: bool,
    // Kept for their room.
    pub(super) touched: Vec<u64>,
    pub(super) taken: Vec<Completed>,
    pub(super) ended: Vec<EndedRead>,
}

/// The thread's body. Returns after [`crate::lanes::lane_queue::LaneQueue::close`], with every open transfer ended
/// as cancelled, or when it cannot go on, with every one failed.
pub(crate) fn run(agent: &AgentShared) -> io::Result<()> {
    let Ok(verbs) = &agent.verbs else { return Ok(()) };
    let mut engine = Engine::new(agent, verbs);
    agent.watch(|| engine.run());
    agent.finish(|| engine.end());
    Ok(())
}

/// Returns what tells the thread of orders and of completions.
pub(super) fn listen(bell: &Doorbell, ports: &[Port]) -> io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    // Edge-triggered: see `Doorbell`.
    epoll::add(&epoll, bell.fd(), EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
    for (place, port) in ports.iter().enumerate() {
        epoll::add(&epoll, port.fd(), EventData::new_u64(PORT + place as u64), EventFlags::IN)?;
    }
    Ok(epoll)
}

impl<'a> Engine<'a> {
    fn new(agent: &'a AgentShared, verbs: &'a Verbs) -> Self {
        let posted_max = agent.config.posted_max;
        Self {
            agent,
            verbs,
            wake: verbs.lane_queue.bell().clone(),
            epoll: &verbs.epoll,
            readers: HashMap::new(),
            owners: HashMap::new(),
            next_owner: 0,
            actives: HashMap::with_capacity(posted_max),
            numbers: HashMap::with_capacity(posted_max),
            orders: Orders::new(posted_max),
            closed: false,
            given_up: Vec::new(),
            progressed: false,
            touched: Vec::new(),
            taken: Vec::new(),
            ended: Vec::new(),
        }
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            self.verbs.lane_queue.bell().answer();
            self.carry_out();
            if self.closed {
                return Ok(());
            }
            self.tell_progress();
            self.attend_rails();
            self.give_back_room();
            events.clear();
            self.wait(&mut events)?;
            for event in &events {
                match event.data.u64() {
                    BELL => {}
                    reader if reader & READER != 0 => self.hear(reader & !READER, event.flags),
                    owner if owner & OWNER != 0 => self.serve(owner & !OWNER, event.flags),
                    port => self.complete((port - PORT) as usize),
                }
            }
        }
    }

    /// Waits for something to do; while reads are under way, for as long as is configured without sleeping.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let at_once = Timespec::default();
        let for_long = self.verbs.config.poll;
        if !for_long.is_zero() && self.actives.values().any(|active| active.under_way > 0) {
            let begin = now();
            self.progressed = false;
            while now().duration_since(begin) < for_long {
                poll(self.epoll, events, Some(&at_once))?;
                (0..self.verbs.ports.len()).for_each(|port| self.take(port));
                if self.progressed || self.verbs.lane_queue.bell().is_rung() || !events.is_empty() {
                    return Ok(());
                }
            }
        }
        let timeout = self.deadline().map(|at| timespec(at.saturating_duration_since(now())));
        let epoll = self.epoll;
        let sleep = |sleep| poll(epoll, events, if sleep { timeout.as_ref() } else { Some(&at_once) });
        threads::during(Doing::WaitsForReads, || self.verbs.lane_queue.bell().sleep(sleep))
    }

    /// Does what others asked for.
    fn carry_out(&mut self) {
        let mut orders = std::mem::replace(&mut self.orders, Orders::new(0));
        self.verbs.lane_queue.take(&mut orders);
        self.closed |= orders.closed;
        let mut regions_changed = false;
        for order in orders.own.drain(..) {
            match order {
                Order::Adopt(number, reader, lacks) => orders.links_changed |= !self.adopt(number, *reader, lacks),
                Order::ShowRegions => regions_changed = true,
            }
        }
        for (peer, incarnation, channel) in orders.served.drain(..) {
            self.admit(OwnerConnection::new(channel, peer, incarnation));
        }
        for posted in orders.posted.drain(..) {
            self.post(posted);
        }
        for id in orders.cancelled.drain(..) {
            if let Some(&number) = self.numbers.get(&id) {
                self.give_up(number, TransferError::Cancelled);
            }
        }
        if orders.links_changed || !orders.introduced.is_empty() {
            self.reap(&orders.introduced);
            orders.links_changed = false;
            orders.introduced.clear();
        }
        if regions_changed {
            let verbs = self.verbs;
            self.owners.values_mut().for_each(|owner| owner.show_regions(verbs));
            let numbers: Vec<u64> = self.owners.keys().copied().collect();
            numbers.into_iter().for_each(|number| self.flush_owner(number));
        }
        self.orders = orders;
    }

    /// A link is this thread's from now on. `lacks`: the rails that it has not got, and why. `false`: it is gone
    /// already.
    fn adopt(&mut self, number: u64, reader: ReaderConnection, lacks: Vec<(usize, DeviceError)>) -> bool {
        if let Err(error) = self.watch(reader.socket(), READER | number) {
            self.agent.lose(&reader.link, &format!("its connection cannot be watched: {error}"));
        }
        // It may have left while it waited.
        let stays = !reader.link.is_gone();
        for (place, error) in lacks {
            let name = &self.verbs.ports[place].name;
            self.agent.rail_put_aside(&reader.link, name, RailFault::Failed, &error.to_string());
        }
        self.readers.insert(number, reader);
        // What the owner said behind its last word of the beginning may have been read with that.
        self.hear(number, EventFlags::IN);
        self.try_new(number);
        self.count_rails();
        stays
    }

    fn watch(&self, socket: BorrowedFd<'_>, token: u64) -> rustix::io::Result<()> {
        epoll::add(self.epoll, socket, EventData::new_u64(token), EventFlags::IN)
    }

    // -- connections of readers

    /// An owner said something, or takes more.
    fn hear(&mut self, number: u64, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.flush_reader(number);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return;
        }
        let Some(reader) = self.readers.get_mut(&number).filter(|reader| reader.ended.is_none()) else { return };
        let mut answers = Vec::new();
        match heard(reader, &mut answers) {
            Ok(()) => {
                answers.into_iter().for_each(|answer| self.answered(number, answer));
                self.pump(number);
            }
            Err(error) => {
                error.count(&self.agent.counts);
                self.lose(number, &error.to_string());
            }
        }
    }

    pub(super) fn flush_reader(&mut self, number: u64) {
        let Some(reader) = self.readers.get_mut(&number).filter(|reader| reader.ended.is_none()) else { return };
        if let Err(error) = reader.channel.flush_on(self.epoll, READER | number) {
            self.lose(number, &error.to_string());
        }
    }

    /// A link is of no use any more.
    pub(super) fn lose(&mut self, number: u64, reason: &str) {
        let Some(reader) = self.readers.get(&number) else { return };
        let link = reader.link.clone();
        self.agent.lose(&link, reason);
        self.end_reader(number);
    }

    /// Ends the queue pairs of a link that is gone, and its transfers with what is under way.
    fn end_reader(&mut self, number: u64) {
        let Some(reader) = self.readers.get_mut(&number).filter(|reader| reader.ended.is_none()) else { return };
        reader.fail(now());
        self.count_rails();
        let Some(reader) = self.readers.get(&number) else { return };
        // It is not listened to any more; the owner sees that when the connection is closed, with the queue pairs.
        let _ = epoll::delete(self.epoll, reader.socket());
        let own = self.actives.iter().filter(|(_, active)| active.connection == number).map(|(&transfer, _)| transfer);
        for transfer in own.collect::<Vec<_>>() {
            self.give_up(transfer, TransferError::PeerGone);
        }
        self.close_if_idle(number);
    }

    /// Destroys queue pairs that were ended, of a link or of a rail, once nothing is under way.
    pub(super) fn close_if_idle(&mut self, number: u64) {
        if self.readers.get(&number).is_some_and(|reader| reader.ended.is_some() && reader.is_idle()) {
            self.destroy_reader(number);
        }
        self.destroy_idle(number);
    }

    // -- connections of owners

    fn admit(&mut self, mut owner: OwnerConnection<Verbs>) {
        let number = self.next_owner;
        if self.owners.len() == OWNERS_MAX {
            self.agent.counts.refused(Refusal::Crowd);
            return turn_away(&mut owner.channel, "too many peers read from it");
        }
        if let Err(error) = self.watch(owner.socket(), OWNER | number) {
            return tracing::warn!(worker = self.agent.config.name, %error, "a connection cannot be watched");
        }
        self.next_owner += 1;
        self.owners.insert(number, owner);
    }

    /// A reader said something, or takes more.
    fn serve(&mut self, number: u64, flags: EventFlags) {
        let Some(owner) = self.owners.get_mut(&number) else { return };
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR)
            && let Err(error) = owner.receive(self.agent, self.verbs)
        {
            if let Some(why) = error.refusal() {
                self.agent.counts.refused(why);
                turn_away(&mut owner.channel, &error.to_string());
            }
            return self.close_owner(number, &error.to_string());
        }
        self.flush_owner(number);
    }

    fn flush_owner(&mut self, number: u64) {
        let Some(owner) = self.owners.get_mut(&number) else { return };
        if let Err(error) = owner.channel.flush_on(self.epoll, OWNER | number) {
            self.close_owner(number, &error.to_string());
        }
    }

    fn close_owner(&mut self, number: u64, reason: &str) {
        if let Some(owner) = self.owners.remove(&number) {
            if owner.was_refused() {
                self.agent.counts.refused(Refusal::Key);
            }
            let (worker, peer) = (&self.agent.config.name, owner.peer);
            tracing::debug!(worker, %peer, reason, "closed a connection that is read over");
        }
    }

    /// Tells the readers that wait for it how far this worker's engine is.
    fn tell_progress(&mut self) {
        if !self.owners.values().any(OwnerConnection::watches) {
            return;
        }
        let word = self.agent.progress.watch(&self.wake);
        let told: Vec<u64> =
            self.owners.iter().filter(|(_, owner)| owner.watches()).map(|(&number, _)| number).collect();
        for number in told {
            let Some(owner) = self.owners.get_mut(&number) else { continue };
            let epoll = self.epoll;
            let outcome = owner.tell(word, |channel| channel.flush_on(epoll, OWNER | number));
            if let Err(error) = outcome {
                self.close_owner(number, &error.to_string());
            }
        }
    }

    /// Ends links that are gone, and closes connections of earlier lives.
    fn reap(&mut self, introduced: &[(WorkerId, Incarnation)]) {
        self.owners.retain(|_, owner| !introduced.iter().any(|&(id, life)| owner.is_before(id, life)));
        let gone = self.readers.iter().filter(|(_, reader)| reader.link.is_gone()).map(|(&number, _)| number);
        for number in gone.collect::<Vec<_>>() {
            self.end_reader(number);
        }
    }

    /// Destroys all queue pairs, and ends what is open.
    fn end(&mut self) {
        self.readers.clear();
        self.owners.clear();
        // What a panic kept from being carried out. The queue takes nothing more, and no link is here to read over.
        self.carry_out();
        self.readers.clear();
        self.owners.clear();
        self.end_transfers(|_| true);
    }
}

/// Looks for events, for as long as `timeout`.
fn poll(epoll: &OwnedFd, events: &mut Vec<epoll::Event>, timeout: Option<&Timespec>) -> io::Result<()> {
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), timeout) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Handles what an owner said. `answers` gets what it says of rails.
fn heard(reader: &mut ReaderConnection, answers: &mut Vec<RemadeRail>) -> Result<(), ChannelError> {
    let refuse = |error: ExchangeError| ChannelError::Refused(Refusal::Protocol, error.to_string());
    reader.channel.fill()?;
    while let Some(frame) = reader.channel.next(FRAME_BYTES_MAX)? {
        answers.extend(reader.way.owner.hear(&frame).map_err(refuse)?);
    }
    Ok(())
}
