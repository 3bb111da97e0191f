//! What the lane's thread does for transfers: it posts their reads on the rails, in turns, and accounts for each one.

use super::completions::Completed;
use super::engine::Engine;
use super::plan::{Extent, Next, READ_BYTES_MAX, ReadPlan};
use super::reader::{EndedRead, ReaderConnection, Stage, whose};
use super::recovery::TRIAL;
use super::verbs::VerbsError;
use super::wire::kind;
use crate::agent::event::TransferError;
use crate::clock::now;
use crate::lanes::lane_queue::{Open, Posted};
use crate::lanes::rails::RailFault;
use crate::transfer::Work;
use crate::transfer::prepared::PlanGuard;
use crate::transfer::timeline::Moment;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A transfer that is posted and not ended.
pub(super) struct Active {
    open: Open,
    pub(super) connection: u64,
    plan: PlanGuard<ReadPlan>,
    /// Since when reads of it are under way.
    busy: Option<Instant>,
    /// Reads of it that are under way.
    pub(super) under_way: usize,
    missing: u64,
    /// Why it is given up. It ends when no read of it is under way.
    pub(super) given_up: Option<TransferError>,
}

impl Active {
    /// A read of it is over. `again`: if it did not bring its bytes, they are read once more. Whether the transfer
    /// is over.
    fn account(&mut self, extent: Extent, arrived: bool, again: bool) -> bool {
        self.under_way -= 1;
        if arrived {
            self.missing -= u64::from(extent.len);
            self.open.delivered(extent.len.into());
            let run = &mut self.plan.runs[extent.run as usize];
            run.missing -= extent.len as usize;
            if run.missing == 0 {
                self.open.note(Moment::Read, run.gate, run.bytes);
            }
        } else if again {
            self.plan.put_back(extent);
        } else {
            self.given_up.get_or_insert(TransferError::PeerGone);
        }
        if self.under_way > 0 {
            return false;
        }
        let busy = self.busy.take();
        self.open.add_wire(busy.map_or(Duration::ZERO, |busy| now().duration_since(busy)));
        self.missing == 0 || self.given_up.is_some()
    }
}

impl Engine<'_> {
    pub(super) fn post(&mut self, posted: Posted) {
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
    pub(super) fn pump(&mut self, connection: u64) {
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
            let ReaderConnection { rails, policy, .. } = reader;
            let has_room = |place: usize| rails[place].as_ref().is_some_and(|rail| rail.has_room());
            let Some(place) = policy.pick(READ_BYTES_MAX as u64, has_room) else { break };
            let Some(rail) = &mut rails[place] else { break };
            let (plan, open) = (&mut active.plan, &mut active.open);
            // SAFETY: the destination is inside memory that the rail has registered, is the caller's own, and is
            // lent to this transfer until it ends, which it does not before each of its reads is accounted for.
            let posted = unsafe {
                rail.post(number, |read| {
                    if plan.peek(word) != Next::Open {
                        return None;
                    }
                    let extent = plan.take()?;
                    let run = &plan.runs[extent.run as usize];
                    if extent.is_first {
                        open.note(Moment::Begun, run.gate, run.bytes);
                    }
                    active.under_way += 1;
                    Some((extent, plan.read(&extent, place, read)))
                })
            };
            let now = now();
            active.open.begin(now);
            active.busy.get_or_insert(now);
            match posted {
                Ok(bytes) => policy.ask(place, bytes, true, now),
                Err(error) => {
                    failure = Some((place, error));
                    break;
                }
            }
        }
        if wanted > reader.watched {
            reader.watched = wanted;
            reader.channel.push(kind::WATCH, &wanted.to_le_bytes(), None);
            self.flush_reader(connection);
        }
        if let Some((place, error)) = failure {
            self.put_aside(connection, place, RailFault::Failed, &format!("a read cannot be posted: {error}"));
        }
    }

    /// Takes the completions that a port announces.
    pub(super) fn complete(&mut self, port: usize) {
        if let Err(error) = self.verbs.ports[port].completions.arm_told() {
            self.port_is_deaf(port, &error);
        }
        self.take(port);
    }

    /// Takes all completions of a port, of whatever links.
    pub(super) fn take(&mut self, port: usize) {
        let (mut taken, mut touched) = (std::mem::take(&mut self.taken), std::mem::take(&mut self.touched));
        taken.clear();
        if let Err(error) = self.verbs.ports[port].completions.take(&mut taken) {
            self.port_is_deaf(port, &error);
        }
        for completed in &taken {
            let (connection, place) = whose(completed.id);
            self.take_one(connection, place, completed);
            if !touched.contains(&connection) {
                touched.push(connection);
            }
        }
        for connection in touched.drain(..) {
            self.pump(connection);
            self.close_if_idle(connection);
        }
        (self.taken, self.touched) = (taken, touched);
    }

    fn take_one(&mut self, connection: u64, place: usize, completed: &Completed) {
        let Some(reader) = self.readers.get_mut(&connection) else { return };
        // What an earlier queue pair completed was accounted for when that was destroyed.
        let own = reader.rails.get_mut(place).and_then(Option::as_mut).filter(|rail| rail.is_told_by(completed.id));
        let Some(rail) = own else { return };
        let mut ended = std::mem::take(&mut self.ended);
        rail.completed(completed, &mut ended);
        let (stage, port) = (rail.stage, rail.port);
        let brought = ended.iter().filter(|read| read.arrived).map(|read| u64::from(read.extent.len)).sum();
        if brought > 0 && stage == Stage::Used {
            reader.policy.delivered(place, brought, now());
        }
        self.progressed |= !ended.is_empty();
        self.account(connection, place, &mut ended);
        self.ended = ended;
        if completed.status != 0 {
            let reason = self.verbs.ports[port].domain.context.library.describe(completed.status);
            self.rail_failed(connection, place, stage, &reason);
        }
    }

    /// Ends the rails of a port whose completions cannot be taken: nothing is known any more of what is read there.
    fn port_is_deaf(&mut self, port: usize, error: &VerbsError) {
        let reason = format!("its completions cannot be taken: {error}");
        for connection in self.readers.keys().copied().collect::<Vec<_>>() {
            let places = self.readers.get(&connection).map_or(0, |reader| reader.rails.len());
            for place in 0..places {
                let own = self.readers.get(&connection).and_then(|reader| reader.rails[place].as_ref());
                if let Some(stage) = own.filter(|own| own.port == port).map(|own| own.stage) {
                    self.rail_failed(connection, place, stage, &reason);
                }
            }
        }
    }

    /// Accounts for reads of a rail that are over.
    pub(super) fn account(&mut self, connection: u64, place: usize, ended: &mut Vec<EndedRead>) {
        for EndedRead { transfer, extent, arrived } in ended.drain(..) {
            if transfer == TRIAL {
                self.trial_read(connection, place, arrived, u64::from(extent.len));
                continue;
            }
            let Some(active) = self.actives.get_mut(&transfer) else { continue };
            let reader = self.readers.get_mut(&connection).filter(|reader| reader.ended.is_none());
            let again = reader.is_some() && active.given_up.is_none();
            if active.account(extent, arrived, again) {
                self.finish(transfer);
            } else if let Some(reader) =
                reader.filter(|reader| !arrived && again && !reader.waiting.contains(&transfer))
            {
                reader.waiting.push_back(transfer);
            }
        }
    }

    /// A transfer is not read on. It ends when what is under way is over.
    pub(super) fn give_up(&mut self, number: u64, error: TransferError) {
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
    pub(super) fn finish(&mut self, number: u64) {
        let Some(active) = self.actives.remove(&number) else { return };
        if let Some(id) = active.open.id() {
            self.numbers.remove(&id);
        }
        let result = match active.given_up.filter(|_| active.missing > 0 || active.open.bytes == 0) {
            Some(error) => Err(error),
            None => Ok(()),
        };
        let rails = active.plan.rails();
        active.open.end(self.agent, active.plan, rails, result);
    }

    /// Ends transfers of which nothing is under way any more.
    pub(super) fn end_transfers(&mut self, which: impl Fn(&Active) -> bool) {
        let own = self.actives.iter().filter(|(_, active)| which(active)).map(|(&transfer, _)| transfer);
        for transfer in own.collect::<Vec<_>>() {
            if let Some(active) = self.actives.get_mut(&transfer) {
                active.given_up.get_or_insert(TransferError::Cancelled);
            }
            self.finish(transfer);
        }
    }
}
