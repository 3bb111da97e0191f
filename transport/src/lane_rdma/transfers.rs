//! What the lane's thread does for transfers: it posts their reads on the rails, in turns, and accounts for each one.

use super::RAIL_SHIFT;
use super::engine::Engine;
use super::plan::{Next, Part, READ_BYTES_MAX, ReadPlan};
use super::queue::take_events;
use super::reader::{EndedRead, ReaderConnection, Stage};
use super::recovery::TRIAL;
use super::wire::kind;
use crate::desk::{Open, Posted, now};
use crate::event::{TransferError, TransferId};
use crate::prepared::Lent;
use crate::rails::RailFault;
use crate::timeline::{Moment, note};
use crate::transfer::Work;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A transfer that is posted and not ended.
pub(super) struct Active {
    open: Open,
    pub(super) connection: u64,
    plan: Lent<ReadPlan>,
    /// Since when reads of it are under way.
    busy: Option<Instant>,
    /// Reads of it that are under way.
    pub(super) under_way: usize,
    missing: u64,
    /// Why it is given up. It ends when no read of it is under way.
    pub(super) given_up: Option<TransferError>,
}

impl Active {
    /// A read of it is over. `again`: if it did not bring its bytes, they are read once more. Whether the transfer is over.
    fn account(&mut self, part: Part, arrived: bool, again: bool) -> bool {
        self.under_way -= 1;
        if arrived {
            self.missing -= u64::from(part.len);
            self.open.brought(part.len.into());
            let run = &mut self.plan.runs[part.run as usize];
            run.missing -= part.len as usize;
            if run.missing == 0 {
                let (id, gate, bytes) = (self.open.id().unwrap_or(TransferId(0)), run.gate, run.bytes);
                note(Moment::Read, id, &self.open.link, || (gate, bytes));
            }
        } else if again {
            self.plan.put_back(part);
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
            let ReaderConnection { rails, choice, .. } = reader;
            let has_room = |place: usize| rails[place].as_ref().is_some_and(|rail| rail.has_room());
            let Some(place) = choice.pick(READ_BYTES_MAX as u64, has_room) else { break };
            let Some(rail) = &mut rails[place] else { break };
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
                    active.under_way += 1;
                    Some((part, plan.read(&part, place, read)))
                })
            };
            let now = now();
            active.open.begin(now);
            active.busy.get_or_insert(now);
            match posted {
                Ok(bytes) => choice.ask(place, bytes, true, now),
                Err(reason) => {
                    failure = Some((place, reason));
                    break;
                }
            }
        }
        if wanted > reader.watched {
            reader.watched = wanted;
            reader.channel.push(kind::WATCH, &wanted.to_le_bytes(), None);
            self.flush_reader(connection);
        }
        if let Some((place, reason)) = failure {
            self.put_aside(connection, place, RailFault::Failed, &format!("a read cannot be posted: {reason}"));
        }
    }

    /// Takes the completions of which a rail tells.
    pub(super) fn complete(&mut self, rail: usize) {
        let mut told = std::mem::take(&mut self.told);
        take_events(&self.verbs.rails[rail], &mut told);
        for number in told.drain(..) {
            let number = number >> RAIL_SHIFT;
            if let Some(reader) = self.readers.get(&number) {
                let mut own = reader.rails.iter().flatten().filter(|own| own.rail == rail);
                if let Err(reason) = own.try_for_each(|own| own.arm()) {
                    self.lose(number, &format!("completions are not told: {reason}"));
                }
            }
            self.take_all(number);
        }
        self.told = told;
    }

    /// Takes all completions of a link.
    pub(super) fn take_all(&mut self, connection: u64) {
        let mut ended = std::mem::take(&mut self.ended);
        let places = self.readers.get(&connection).map_or(0, |reader| reader.rails.len());
        for place in 0..places {
            let Some(reader) = self.readers.get_mut(&connection) else { break };
            let Some(rail) = &mut reader.rails[place] else { continue };
            let failure = rail.take(&mut self.taken, &mut ended).err();
            let stage = rail.stage;
            let brought = ended.iter().filter(|read| read.arrived).map(|read| u64::from(read.part.len)).sum();
            if brought > 0 && stage == Stage::Used {
                reader.choice.brought(place, brought, now());
            }
            self.progressed |= !ended.is_empty();
            self.account(connection, place, &mut ended);
            if let Some(reason) = failure {
                self.rail_failed(connection, place, stage, &reason);
            }
        }
        self.ended = ended;
        self.pump(connection);
        self.close_if_idle(connection);
    }

    /// Accounts for reads of a rail that are over.
    pub(super) fn account(&mut self, connection: u64, place: usize, ended: &mut Vec<EndedRead>) {
        for EndedRead { transfer, part, arrived } in ended.drain(..) {
            if transfer == TRIAL {
                self.trial_read(connection, place, arrived, u64::from(part.len));
                continue;
            }
            let Some(active) = self.actives.get_mut(&transfer) else { continue };
            let reader = self.readers.get_mut(&connection).filter(|reader| reader.ended.is_none());
            let again = reader.is_some() && active.given_up.is_none();
            if active.account(part, arrived, again) {
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
        active.open.end(self.station, active.plan, rails, result);
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
