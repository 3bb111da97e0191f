//! What is done where rails of `rdma` fail or slow down: their queue pairs are ended, what they had not delivered is
//! read over the others, and both ends make new ones, which are tried before they are used. [`crate::lanes::rails`]
//! decides when.

use super::engine::Engine;
use super::error::DeviceError;
use super::plan::{Extent, READ_BYTES_MAX};
use super::queue::Read;
use super::reader::{ReaderConnection, ReaderRail, Stage, told_as};
use super::wire::{Attempt, RemadeRail, kind};
use crate::clock::now;
use crate::lanes::Lane;
use crate::lanes::rails::{RailFault, RailStep, Trial};
use std::time::{Duration, Instant};

/// How long the reads of a queue pair that was ended may take to complete, until it is destroyed.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// How long a rail may deliver nothing of what it is asked for, whatever the others do: longer than its device repeats
/// what is not answered. So a device that neither delivers nor gives up holds no transfer for longer.
pub(super) const MUTE_MAX: Duration = Duration::from_secs(5);
/// How long the owner may take to answer for a rail, and then the reads by which it is tried.
const TRIAL_MAX: Duration = Duration::from_secs(2);
/// Reads by which a rail is tried, all at once.
const TRIAL_READS: u64 = 16;
/// The number of no transfer: what is read to try a rail.
pub(super) const TRIAL: u64 = 0;

impl Engine<'_> {
    /// Puts rails aside, makes those anew whose pause is over, and destroys queue pairs that do not end by themselves.
    pub(super) fn attend_rails(&mut self) {
        let now = now();
        if self.deadline().is_none_or(|at| at > now) {
            return;
        }
        for connection in self.readers.keys().copied().collect::<Vec<_>>() {
            self.pass_deadlines(connection, now);
            self.take_steps(connection);
        }
    }

    /// Does what the policy for the rails of a link says.
    fn take_steps(&mut self, connection: u64) {
        let mut has_looked = false;
        while let Some(reader) = self.readers.get_mut(&connection).filter(|reader| reader.ended.is_none()) {
            let (ReaderConnection { policy, rails, .. }, now) = (reader, now());
            match policy.next_step(now, |place| rails[place].is_none()) {
                Some(RailStep::PutAside { fault: RailFault::Silent, .. }) if !has_looked => {
                    // This thread may have been stalled. What came meanwhile lies in the completion queues.
                    (0..self.verbs.ports.len()).for_each(|port| self.take(port));
                    has_looked = true;
                }
                Some(RailStep::PutAside { rail, fault, reason }) => self.put_aside(connection, rail, fault, &reason),
                Some(RailStep::Try(rail)) => {
                    if let Err(error) = self.offer(connection, rail, now) {
                        self.not_tried(connection, rail, false, &error.to_string());
                    }
                }
                Some(RailStep::GiveUp) => self.lose(connection, "none of its rails can be used"),
                None => return,
            }
        }
    }

    /// Returns when to look after rails next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let of_reader = |reader: &ReaderConnection| {
            let stages = reader.rails.iter().flatten().filter_map(|rail| stage_ends(rail.stage));
            let whole = reader.ended.map(|at| at + FLUSH_MAX);
            // Of a rail that was put aside, the queue pairs end first.
            let steps = || reader.policy.deadline(|place| reader.rails[place].is_none());
            let steps = if reader.ended.is_none() { steps() } else { None };
            stages.chain(whole).chain(steps).min()
        };
        self.readers.values().filter_map(of_reader).min()
    }

    /// Destroys queue pairs whose time is over.
    fn pass_deadlines(&mut self, connection: u64, now: Instant) {
        let Some(reader) = self.readers.get(&connection) else { return };
        if reader.ended.is_some_and(|ended| now >= ended + FLUSH_MAX) {
            self.destroy_reader(connection);
            return self.end_transfers(|active| active.connection == connection);
        }
        for place in 0..reader.rails.len() {
            let Some(reader) = self.readers.get_mut(&connection).filter(|reader| reader.ended.is_none()) else {
                return;
            };
            let Some(stage) = reader.rails[place].as_ref().map(|rail| rail.stage) else { continue };
            if stage_ends(stage).is_none_or(|at| at > now) {
                continue;
            }
            self.destroy(connection, place);
            if !matches!(stage, Stage::Ended(_)) {
                let reason = "the reads that try it, or the owner's answer, take too long";
                self.not_tried(connection, place, stage.is_first(), reason);
            }
        }
    }

    /// Destroys all queue pairs of a link that is gone.
    pub(super) fn destroy_reader(&mut self, connection: u64) {
        let Some(reader) = self.readers.remove(&connection) else { return };
        for rail in reader.rails.into_iter().flatten() {
            let port = rail.port;
            self.given_up.push((port, rail.destroy().1));
        }
    }

    /// Gives back the room of completions that queue pairs had which were destroyed, once all that they completed
    /// was taken.
    pub(super) fn give_back_room(&mut self) {
        for (port, room) in std::mem::take(&mut self.given_up) {
            self.take(port);
            drop(room);
        }
    }

    /// Destroys the queue pairs of a rail; what they did not bring is read over others.
    fn destroy(&mut self, connection: u64, place: usize) {
        let Some(reader) = self.readers.get_mut(&connection) else { return };
        let Some(rail) = reader.rails[place].take() else { return };
        let port = rail.port;
        let (mut ended, room) = rail.destroy();
        self.given_up.push((port, room));
        // The caller reports a trial that is not over.
        ended.retain(|read| read.transfer != TRIAL);
        self.account(connection, place, &mut ended);
        self.pump(connection);
    }

    /// A queue pair of a rail failed while the rail was at `stage`.
    pub(super) fn rail_failed(&mut self, connection: u64, place: usize, stage: Stage, reason: &str) {
        match stage {
            Stage::Used => self.put_aside(connection, place, RailFault::Failed, reason),
            // It fails since it was ended.
            Stage::Ended(_) => {}
            Stage::Made | Stage::Offered(..) | Stage::Tried { .. } => {
                self.destroy(connection, place);
                self.not_tried(connection, place, stage.is_first(), reason);
            }
        }
    }

    /// Stops using a rail. What it had not delivered is read over others as soon as it is certain not to come. The last
    /// one takes the link along: the peer is reached over another lane.
    pub(super) fn put_aside(&mut self, connection: u64, place: usize, fault: RailFault, reason: &str) {
        let now = now();
        let Some(reader) = self.readers.get_mut(&connection).filter(|reader| reader.ended.is_none()) else { return };
        let Some(rail) = reader.rails[place].as_mut().filter(|rail| rail.stage == Stage::Used) else { return };
        rail.fail(now);
        let (link, name) = (reader.link.clone(), self.verbs.ports[rail.port].name.clone());
        reader.policy.put_aside(place, now);
        let is_last = reader.is_hopeless();
        self.agent.rail_put_aside(&link, &name, fault, reason);
        if is_last {
            return self.lose(connection, &format!("{name}: {reason}"));
        }
        self.count_rails();
        self.destroy_if_idle(connection, place);
    }

    /// Destroys the queue pairs of a rail that were ended, once nothing is under way.
    fn destroy_if_idle(&mut self, connection: u64, place: usize) {
        let Some(reader) = self.readers.get(&connection).filter(|reader| reader.ended.is_none()) else { return };
        let idle = |rail: &ReaderRail| matches!(rail.stage, Stage::Ended(_)) && rail.is_idle();
        if reader.rails[place].as_ref().is_some_and(idle) {
            self.destroy(connection, place);
        }
    }

    /// Destroys all queue pairs of a link that were ended and have nothing under way.
    pub(super) fn destroy_idle(&mut self, connection: u64) {
        let places = self.readers.get(&connection).map_or(0, |reader| reader.rails.len());
        (0..places).for_each(|place| self.destroy_if_idle(connection, place));
    }

    /// Makes queue pairs for a rail, and asks the owner for its own.
    fn offer(&mut self, connection: u64, place: usize, now: Instant) -> Result<(), DeviceError> {
        let Some(reader) = self.readers.get_mut(&connection) else { return Ok(()) };
        reader.attempts += 1;
        let told_as = told_as(connection, place, reader.attempts);
        let mut rail = ReaderRail::new(self.verbs, place, told_as)?;
        let which = Attempt { rail: place as u8, number: reader.attempts };
        let queues = rail.offer();
        rail.stage = Stage::Offered(now, which);
        reader.rails[place] = Some(rail);
        reader.channel.push(kind::RAIL, &RemadeRail { which, queues }.encode(), None);
        self.flush_reader(connection);
        Ok(())
    }

    /// The owner answers for a rail.
    pub(super) fn answered(&mut self, connection: u64, answer: RemadeRail) {
        let RemadeRail { which, queues } = answer;
        let place = usize::from(which.rail);
        let Some(reader) = self.readers.get_mut(&connection) else { return };
        let offered = |rail: &&mut ReaderRail| matches!(rail.stage, Stage::Offered(_, own) if own == which);
        // An answer that comes too late is not waited for any more.
        let Some(rail) = reader.rails.get_mut(place).and_then(Option::as_mut).filter(offered) else { return };
        if let Err(error) = rail.connect(&queues).and_then(|()| self.try_out(connection, place)) {
            self.destroy(connection, place);
            self.not_tried(connection, place, false, &error.to_string());
        }
    }

    /// Tries the rails that a link was made with.
    pub(super) fn try_new(&mut self, connection: u64) {
        let places = self.readers.get(&connection).map_or(0, |reader| reader.rails.len());
        for place in 0..places {
            let rail = self.readers.get(&connection).and_then(|reader| reader.rails[place].as_ref());
            if rail.is_some_and(|rail| rail.stage == Stage::Made)
                && let Err(error) = self.try_out(connection, place)
            {
                self.destroy(connection, place);
                self.not_tried(connection, place, true, &error.to_string());
            }
        }
    }

    /// Reads over a rail that no transfer uses yet.
    fn try_out(&mut self, connection: u64, place: usize) -> Result<(), DeviceError> {
        let Some(reader) = self.readers.get_mut(&connection) else { return Ok(()) };
        let Some(rail) = &mut reader.rails[place] else { return Ok(()) };
        let scratch = &self.verbs.scratch;
        let keys = self.verbs.ports[rail.port].keys(scratch).ok_or(DeviceError::NoScratch)?;
        let Some(region) = reader.way.any_region().and_then(|id| reader.way.owner.region(id)) else {
            self.tried(connection, place, Trial::Works);
            return Ok(());
        };
        let len = region.len.min(READ_BYTES_MAX as u64).min(scratch.len() as u64) as u32;
        // How fast it is at first is seen when it is used; what was put aside is taken back if it does well.
        let is_first = rail.stage.is_first();
        let mut left = if is_first { 1 } else { TRIAL_READS };
        rail.stage = Stage::Tried { since: now(), missing: left * u64::from(len), is_first };
        let extent = Extent { run: 0, from: 0, to: 0, len, is_first: false };
        let read = |id| Read {
            id,
            remote_key: region.keys[place],
            remote_address: region.address,
            local_key: keys.local,
            local_address: scratch.place().address(),
            len,
        };
        while left > 0 {
            let next = |id| {
                left = left.checked_sub(1)?;
                Some((extent, read(id)))
            };
            // SAFETY: the scratch is registered, longer than a read, held as long as the devices, and nobody looks
            // at what is in it.
            if unsafe { rail.post(TRIAL, next)? } == 0 {
                return Err(DeviceError::NoRoomToTry);
            }
        }
        Ok(())
    }

    /// A read that tries a rail is over.
    pub(super) fn trial_read(&mut self, connection: u64, place: usize, arrived: bool, bytes: u64) {
        let Some(reader) = self.readers.get_mut(&connection) else { return };
        let Some(rail) = &mut reader.rails[place] else { return };
        // One that did not arrive is told of as the rail's failure.
        if let (Stage::Tried { since, missing, is_first }, true) = (&mut rail.stage, arrived) {
            *missing -= bytes;
            if *missing == 0 {
                let seconds = now().duration_since(*since).as_secs_f64().max(1e-9);
                let measured = Trial::Measured((TRIAL_READS * bytes) as f64 / seconds);
                let trial = if *is_first { Trial::Works } else { measured };
                self.tried(connection, place, trial);
            }
        }
    }

    /// Uses a rail that was tried, if it did well enough.
    fn tried(&mut self, connection: u64, place: usize, trial: Trial) {
        let Some(reader) = self.readers.get_mut(&connection) else { return };
        let link = reader.link.clone();
        if !reader.policy.tried(place, trial, now()) {
            return self.destroy(connection, place);
        }
        if let Some(rail) = &mut reader.rails[place] {
            let is_first = rail.stage.is_first();
            rail.stage = Stage::Used;
            if !is_first {
                self.agent.rail_returned(&link, &self.verbs.ports[rail.port].name);
            }
        }
        self.count_rails();
        self.pump(connection);
    }

    /// A rail could not be tried, or brought nothing. A link that has no other ends. `is_first`: it never did.
    fn not_tried(&mut self, connection: u64, place: usize, is_first: bool, reason: &str) {
        let Some(reader) = self.readers.get_mut(&connection).filter(|reader| reader.ended.is_none()) else { return };
        let rail = &self.verbs.ports[place].name;
        if is_first {
            self.agent.rail_put_aside(&reader.link, rail, RailFault::Failed, reason);
        } else {
            let peer = &reader.link.name;
            tracing::debug!(worker = self.agent.config.name, peer, rail, reason, "a rail stays aside");
        }
        reader.policy.tried(place, Trial::Failed, now());
        if reader.is_hopeless() {
            return self.lose(connection, &format!("{rail}: {reason}"));
        }
        self.count_rails();
    }

    /// Notes how many rails there are.
    pub(super) fn count_rails(&self) {
        let live = self.readers.values().filter(|reader| reader.ended.is_none());
        let rails = live.map(|reader| (reader.policy.up(), reader.rails.len()));
        let (up, all) = rails.fold((0, 0), |(up, all), (more_up, more)| (up + more_up, all + more));
        self.agent.counts.rails(Lane::Rdma, up, all - up);
    }
}

/// Returns when a rail is at `stage` for too long.
fn stage_ends(stage: Stage) -> Option<Instant> {
    match stage {
        Stage::Made | Stage::Used => None,
        Stage::Ended(at) => Some(at + FLUSH_MAX),
        Stage::Offered(at, _) | Stage::Tried { since: at, .. } => Some(at + TRIAL_MAX),
    }
}
