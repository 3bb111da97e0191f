//! The lane's thread: it posts reads, takes their completions, and serves the connections of both ends.

use super::owner::OwnerConnection;
use super::plan::{Next, ReadPlan};
use super::queue::{Completed, take_events};
use super::reader::{EndedRead, ReaderConnection};
use super::wire::{decode_word, kind};
use super::{FRAME_BYTES_MAX, Order, RAIL_SHIFT, Verbs};
use crate::control::{Channel, ChannelError, turn_away};
use crate::counts::Refusal;
use crate::desk::{Open, Orders, Posted, now};
use crate::event::{TransferError, TransferId};
use crate::prepared::Lent;
use crate::station::Station;
use crate::timeline::{Moment, note};
use crate::transfer::Work;
use crate::wake::Wake;
use domain::{Incarnation, WorkerId};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::Timespec;
use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections that peers read over. One more is closed.
const OWNERS_MAX: usize = 4096;
/// How long the reads of a queue pair that was ended may take to complete, until it is destroyed.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// What is waited for.
const BELL: u64 = 0;
/// A rail's completions: so much and its place.
const RAIL: u64 = 1 << 8;
/// The connection of an owner, or of a reader: so much and its number.
const OWNER: u64 = 1 << 62;
const READER: u64 = 1 << 63;

/// A transfer that is posted and not ended.
struct Active {
    open: Open,
    connection: u64,
    plan: Lent<ReadPlan>,
    /// Since when reads of it are under way.
    busy: Option<Instant>,
    /// Reads of it that are under way.
    under_way: usize,
    missing: u64,
    /// Why it is given up. It ends when no read of it is under way.
    given_up: Option<TransferError>,
}

struct Engine<'a> {
    station: &'a Station,
    verbs: &'a Verbs,
    wake: Arc<dyn Wake>,
    epoll: OwnedFd,
    readers: HashMap<u64, ReaderConnection>,
    owners: HashMap<u64, OwnerConnection>,
    next_owner: u64,
    actives: HashMap<u64, Active>,
    /// What each caller's transfer is called among the active ones.
    numbers: HashMap<TransferId, u64>,
    /// Carried out; kept for its room.
    orders: Orders<Order, Channel>,
    closed: bool,
    /// Whether a read ended since this was last asked.
    progressed: bool,
    // Kept for their room.
    told: Vec<u64>,
    taken: Vec<Completed>,
    ended: Vec<EndedRead>,
}

/// The thread's body. Returns after [`Verbs::close`], with every open transfer ended as cancelled.
pub(crate) fn run(station: &Station) {
    let Ok(verbs) = &station.verbs else { return };
    let mut engine = match Engine::new(station, verbs) {
        Ok(engine) => engine,
        Err(error) => return tracing::error!(worker = station.config.name, %error, "the lane rdma did not start"),
    };
    if let Err(error) = engine.run() {
        tracing::error!(worker = station.config.name, %error, "the lane rdma ended");
    }
    engine.end();
}

impl<'a> Engine<'a> {
    fn new(station: &'a Station, verbs: &'a Verbs) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Edge-triggered: see `Doorbell`.
        epoll::add(&epoll, verbs.desk.bell().fd(), EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
        for (place, rail) in verbs.rails.iter().enumerate() {
            epoll::add(&epoll, rail.fd(), EventData::new_u64(RAIL + place as u64), EventFlags::IN)?;
        }
        let posted_max = station.config.posted_max;
        Ok(Self {
            station,
            verbs,
            wake: verbs.desk.bell().clone(),
            epoll,
            readers: HashMap::new(),
            owners: HashMap::new(),
            next_owner: 0,
            actives: HashMap::with_capacity(posted_max),
            numbers: HashMap::with_capacity(posted_max),
            orders: Orders::new(posted_max),
            closed: false,
            progressed: false,
            told: Vec::new(),
            taken: Vec::new(),
            ended: Vec::new(),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            self.verbs.desk.bell().answer();
            self.carry_out();
            if self.closed {
                return Ok(());
            }
            self.tell_progress();
            self.pass_deadlines();
            events.clear();
            self.wait(&mut events)?;
            for event in &events {
                match event.data.u64() {
                    BELL => {}
                    reader if reader & READER != 0 => self.hear(reader & !READER, event.flags),
                    owner if owner & OWNER != 0 => self.serve(owner & !OWNER, event.flags),
                    rail => self.complete((rail - RAIL) as usize),
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
                poll(&self.epoll, events, Some(&at_once))?;
                let numbers: Vec<u64> = self.readers.keys().copied().collect();
                numbers.into_iter().for_each(|number| self.take_all(number));
                if self.progressed || self.verbs.desk.bell().is_rung() || !events.is_empty() {
                    return Ok(());
                }
            }
        }
        let until = self.readers.values().filter_map(|reader| reader.ended).min().map(|ended| ended + FLUSH_MAX);
        let timeout = until.map(|until| until.saturating_duration_since(now()));
        let timeout =
            timeout.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
        let epoll = &self.epoll;
        self.verbs.desk.bell().sleep(|sleep| poll(epoll, events, if sleep { timeout.as_ref() } else { Some(&at_once) }))
    }

    /// Does what others asked for.
    fn carry_out(&mut self) {
        let mut orders = std::mem::replace(&mut self.orders, Orders::new(0));
        self.verbs.desk.take(&mut orders);
        self.closed |= orders.closed;
        let mut regions_changed = false;
        for order in orders.own.drain(..) {
            match order {
                Order::Adopt(number, reader) => orders.links_changed |= !self.adopt(number, *reader),
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

    /// A link is this thread's from now on. `false`: it is gone already.
    fn adopt(&mut self, number: u64, reader: ReaderConnection) -> bool {
        if let Err(error) = self.watch(reader.socket(), READER | number) {
            self.station.lose(&reader.link, &format!("its connection cannot be watched: {error}"));
        }
        // It may have left while it waited.
        let stays = !reader.link.is_gone();
        self.readers.insert(number, reader);
        stays
    }

    fn watch(&self, socket: BorrowedFd<'_>, token: u64) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, socket, EventData::new_u64(token), EventFlags::IN)
    }

    // -- transfers

    fn post(&mut self, posted: Posted) {
        let Posted { open, work } = posted;
        let Work::Reads(plan) = work else { return };
        let (number, bytes) = (plan.number, open.bytes);
        let is_its = |reader: &ReaderConnection| Arc::ptr_eq(&reader.link, &open.link);
        let found = self.readers.iter().find(|(_, reader)| is_its(reader)).map(|(&number, _)| number);
        let reachable = found.filter(|_| !open.link.is_gone());
        if let Some(id) = open.id() {
            self.numbers.insert(id, number);
        }
        let connection = found.unwrap_or_default();
        let active = Active { open, connection, plan, busy: None, under_way: 0, missing: bytes, given_up: None };
        self.actives.insert(number, active);
        let Some(connection) = reachable else { return self.give_up(number, TransferError::PeerGone) };
        if bytes == 0 {
            return self.finish(number);
        }
        if let Some(reader) = self.readers.get_mut(&connection) {
            reader.waiting.push_back(number);
        }
        self.pump(connection);
    }

    /// Posts what may be read and for which there is room, in turns among the transfers of a link.
    fn pump(&mut self, connection: u64) {
        let Some(reader) = self.readers.get_mut(&connection).filter(|reader| reader.ended.is_none()) else { return };
        let word = reader.way.progress();
        let (mut wanted, mut failure) = (0, None);
        // Transfers in a row that have nothing to post now.
        let mut shut = 0;
        while shut < reader.waiting.len()
            && let Some(number) = reader.waiting.pop_front()
        {
            let Some(active) = self.actives.get_mut(&number) else { continue };
            let next = active.plan.peek(word);
            if next == Next::Nothing {
                continue;
            }
            reader.waiting.push_back(number);
            if next == Next::Gated {
                shut += 1;
                wanted = wanted.max(active.plan.last_gate());
                continue;
            }
            shut = 0;
            // The rail that has the least to do is done first.
            let rails = reader.rails.iter_mut().enumerate().filter(|(_, rail)| rail.has_room());
            let Some((place, rail)) = rails.min_by_key(|(_, rail)| rail.bytes()) else { break };
            let (plan, id, link) = (&mut active.plan, active.open.id(), &active.open.link);
            // SAFETY: the destination is inside memory that the rail has registered, is the caller's own, and is lent to this
            // transfer until it ends, which it does not before each of its reads is accounted for.
            let posted = unsafe {
                rail.post(number, |read| {
                    if plan.peek(word) != Next::Open {
                        return None;
                    }
                    let part = plan.take()?;
                    let run = &plan.runs[part.run as usize];
                    if part.is_first {
                        note(Moment::Begun, id.unwrap_or(TransferId(0)), link, || (run.gate, run.bytes));
                    }
                    Some((part, plan.read(&part, place, read)))
                })
            };
            let count = match posted {
                Ok(count) => count,
                Err(reason) => {
                    failure = Some(reason);
                    break;
                }
            };
            if count > 0 && active.under_way == 0 {
                let now = now();
                active.open.begin(now);
                active.busy = Some(now);
            }
            active.under_way += count;
        }
        if wanted > reader.watched {
            reader.watched = wanted;
            reader.channel.push(kind::WATCH, &wanted.to_le_bytes(), None);
            self.flush_reader(connection);
        }
        if let Some(reason) = failure {
            self.lose(connection, &format!("a read cannot be posted: {reason}"));
        }
    }

    /// Takes the completions of which a rail tells.
    fn complete(&mut self, rail: usize) {
        let mut told = std::mem::take(&mut self.told);
        take_events(&self.verbs.rails[rail], &mut told);
        for number in told.drain(..) {
            let number = number >> RAIL_SHIFT;
            if let Some(reader) = self.readers.get(&number)
                && let Err(reason) = reader.rails.iter().filter(|own| own.rail == rail).try_for_each(|own| own.arm())
            {
                self.lose(number, &format!("completions are not told: {reason}"));
            }
            self.take_all(number);
        }
        self.told = told;
    }

    /// Takes all completions of a link.
    fn take_all(&mut self, connection: u64) {
        let mut ended = std::mem::take(&mut self.ended);
        let Some(reader) = self.readers.get_mut(&connection) else { return };
        let mut failure = None;
        for rail in &mut reader.rails {
            if let Err(reason) = rail.take(&mut self.taken, &mut ended) {
                failure.get_or_insert(format!("{}: {reason}", self.verbs.rails[rail.rail].name));
            }
        }
        // Those of a queue pair that was ended have failed for that reason.
        let failure = failure.filter(|_| reader.ended.is_none());
        self.progressed |= !ended.is_empty();
        for EndedRead { transfer, part, arrived } in ended.drain(..) {
            let Some(active) = self.actives.get_mut(&transfer) else { continue };
            active.under_way -= 1;
            if arrived {
                active.missing -= u64::from(part.len);
                let run = &mut active.plan.runs[part.run as usize];
                run.missing -= part.len as usize;
                if run.missing == 0 {
                    let (id, gate, bytes) = (active.open.id().unwrap_or(TransferId(0)), run.gate, run.bytes);
                    note(Moment::Read, id, &active.open.link, || (gate, bytes));
                }
            } else {
                active.given_up.get_or_insert(TransferError::PeerGone);
            }
            if active.under_way == 0 {
                let busy = active.busy.take();
                active.open.add_wire(busy.map_or(Duration::ZERO, |busy| now().duration_since(busy)));
                if active.missing == 0 || active.given_up.is_some() {
                    self.finish(transfer);
                }
            }
        }
        self.ended = ended;
        match failure {
            Some(reason) => self.lose(connection, &reason),
            None => {
                self.pump(connection);
                self.close_if_idle(connection);
            }
        }
    }

    /// A transfer is not read on. It ends when what is under way is over.
    fn give_up(&mut self, number: u64, error: TransferError) {
        let Some(active) = self.actives.get_mut(&number) else { return };
        active.given_up.get_or_insert(error);
        let (connection, idle) = (active.connection, active.under_way == 0);
        if let Some(reader) = self.readers.get_mut(&connection) {
            reader.waiting.retain(|&other| other != number);
        }
        if idle {
            self.finish(number);
        }
    }

    /// Takes a transfer to its one end.
    fn finish(&mut self, number: u64) {
        let Some(active) = self.actives.remove(&number) else { return };
        if let Some(id) = active.open.id() {
            self.numbers.remove(&id);
        }
        let result = match active.given_up.filter(|_| active.missing > 0 || active.open.bytes == 0) {
            Some(error) => Err(error),
            None => Ok(()),
        };
        let rails = active.plan.rails();
        active.open.end(self.station, active.plan, rails, result);
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
        match heard(reader) {
            Ok(()) => self.pump(number),
            Err(error) => {
                if let ChannelError::Refused(why, _) = &error {
                    self.station.counts.refused(*why);
                }
                self.lose(number, &error.to_string());
            }
        }
    }

    fn flush_reader(&mut self, number: u64) {
        let Some(reader) = self.readers.get_mut(&number).filter(|reader| reader.ended.is_none()) else { return };
        if let Err(error) = flush(&self.epoll, &mut reader.channel, &mut reader.waits_to_write, READER | number) {
            self.lose(number, &error.to_string());
        }
    }

    /// A link is of no use any more.
    fn lose(&mut self, number: u64, reason: &str) {
        let Some(reader) = self.readers.get(&number) else { return };
        let link = reader.link.clone();
        self.station.lose(&link, reason);
        self.end_reader(number);
    }

    /// Ends the queue pairs of a link that is gone, and its transfers with what is under way.
    fn end_reader(&mut self, number: u64) {
        let Some(reader) = self.readers.get_mut(&number).filter(|reader| reader.ended.is_none()) else { return };
        reader.fail(now());
        // It is not listened to any more; the owner sees that when the connection is closed, with the queue pairs.
        let _ = epoll::delete(&self.epoll, reader.socket());
        let own = self.actives.iter().filter(|(_, active)| active.connection == number).map(|(&transfer, _)| transfer);
        for transfer in own.collect::<Vec<_>>() {
            self.give_up(transfer, TransferError::PeerGone);
        }
        self.close_if_idle(number);
    }

    /// Destroys the queue pairs of a link that was ended, once nothing is under way.
    fn close_if_idle(&mut self, number: u64) {
        if self.readers.get(&number).is_some_and(|reader| reader.ended.is_some() && reader.is_idle()) {
            self.readers.remove(&number);
        }
    }

    /// Destroys queue pairs whose reads do not complete, which ends them as well.
    fn pass_deadlines(&mut self) {
        let now = now();
        let late = |reader: &ReaderConnection| reader.ended.is_some_and(|ended| now >= ended + FLUSH_MAX);
        let numbers: Vec<u64> =
            self.readers.iter().filter(|(_, reader)| late(reader)).map(|(&number, _)| number).collect();
        for number in numbers {
            self.readers.remove(&number);
            self.end_transfers(|active| active.connection == number);
        }
    }

    /// Ends transfers whose queue pairs are destroyed.
    fn end_transfers(&mut self, which: impl Fn(&Active) -> bool) {
        let own = self.actives.iter().filter(|(_, active)| which(active)).map(|(&transfer, _)| transfer);
        for transfer in own.collect::<Vec<_>>() {
            if let Some(active) = self.actives.get_mut(&transfer) {
                active.given_up.get_or_insert(TransferError::Cancelled);
            }
            self.finish(transfer);
        }
    }

    // -- connections of owners

    fn admit(&mut self, mut owner: OwnerConnection) {
        let number = self.next_owner;
        if self.owners.len() == OWNERS_MAX {
            self.station.counts.refused(Refusal::Crowd);
            return turn_away(&mut owner.channel, "too many peers read from it");
        }
        if let Err(error) = self.watch(owner.socket(), OWNER | number) {
            return tracing::warn!(worker = self.station.config.name, %error, "a connection cannot be watched");
        }
        self.next_owner += 1;
        self.owners.insert(number, owner);
    }

    /// A reader said something, or takes more.
    fn serve(&mut self, number: u64, flags: EventFlags) {
        let Some(owner) = self.owners.get_mut(&number) else { return };
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR)
            && let Err(error) = owner.receive(self.station, self.verbs)
        {
            if let ChannelError::Refused(why, reason) = &error {
                self.station.counts.refused(*why);
                turn_away(&mut owner.channel, reason);
            }
            return self.close_owner(number, &error.to_string());
        }
        self.flush_owner(number);
    }

    fn flush_owner(&mut self, number: u64) {
        let Some(owner) = self.owners.get_mut(&number) else { return };
        if let Err(error) = flush(&self.epoll, &mut owner.channel, &mut owner.waits_to_write, OWNER | number) {
            self.close_owner(number, &error.to_string());
        }
    }

    fn close_owner(&mut self, number: u64, reason: &str) {
        if let Some(owner) = self.owners.remove(&number) {
            let (worker, peer) = (&self.station.config.name, owner.peer);
            tracing::debug!(worker, %peer, reason, "closed a connection that is read over");
        }
    }

    /// Tells those who wait for it how far the engine is.
    fn tell_progress(&mut self) {
        if !self.owners.values().any(OwnerConnection::watches) {
            return;
        }
        let word = self.station.progress.watch(&self.wake);
        let told = self.owners.iter_mut().filter(|(_, owner)| owner.watches());
        let told: Vec<u64> = told.filter_map(|(&number, owner)| owner.tell(word).then_some(number)).collect();
        told.into_iter().for_each(|number| self.flush_owner(number));
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

/// Handles what an owner said.
fn heard(reader: &mut ReaderConnection) -> Result<(), ChannelError> {
    let refuse = |reason| ChannelError::Refused(Refusal::Protocol, reason);
    reader.channel.fill()?;
    while let Some(frame) = reader.channel.next(FRAME_BYTES_MAX)? {
        match frame.kind {
            kind::WORD => reader.way.raise(decode_word(&frame.body).map_err(refuse)?),
            kind::REGION => reader.way.add_region(&frame.body).map_err(refuse)?,
            kind::WITHDRAWN => reader.way.withdraw_region(&frame.body).map_err(refuse)?,
            other => return Err(refuse(format!("a frame of kind {other} out of place"))),
        }
    }
    Ok(())
}

/// Sends what waits at a connection, now and whenever it takes more.
fn flush(epoll: &OwnedFd, channel: &mut Channel, waits_to_write: &mut bool, token: u64) -> Result<(), ChannelError> {
    let done = channel.flush()?;
    if done == *waits_to_write {
        *waits_to_write = !done;
        let flags = if done { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
        epoll::modify(epoll, channel.socket(), EventData::new_u64(token), flags).map_err(ChannelError::Failed)?;
    }
    Ok(())
}
