//! The reading end of a link: its queue pairs, and which reads they have.
//!
//! Every read that was posted is accounted for until its completion was taken or its queue pair is gone, whatever
//! became of its transfer: only then is the destination quiesced.

use super::completions::{Completed, Room};
use super::error::DeviceError;
use super::plan::Extent;
use super::port::PortState;
use super::queue::{CHAIN_MAX, Depth, QueuePair, Read};
use super::verbs::VerbsError;
use super::wire::{Attempt, PORTS_MAX, QUEUES_MAX, Queues, RailQueues};
use super::{RdmaWay, Verbs};
use crate::agent::link::Link;
use crate::lanes::rails::Rails;
use crate::net::control::Channel;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

/// Reads that are posted to a queue pair at once. The device has fewer of them under way, and begins the next by
/// itself.
const QUEUE_READS_MAX: usize = 64;
/// Bytes that one rail is asked for at once: twice what a fast one has on the wire. Many senders do not drown a
/// reader, and what was cancelled is soon over.
const RAIL_BYTES_MAX: usize = 4 << 20;

/// A read is named by its number in its queue pair, below that one's place among those of its rail, below what
/// these are told by. Numbers begin anew far beyond what is posted at once.
const PLACE_SHIFT: u32 = u16::BITS;
const TOLD_AS_SHIFT: u32 = PLACE_SHIFT + 3;
/// A rail's queue pairs are told by how often it was made, above its place in the link, below the number of that.
const ATTEMPT_SHIFT: u32 = 3;
const LINK_SHIFT: u32 = ATTEMPT_SHIFT + 6;
const _: () = assert!(QUEUES_MAX <= 1 << (TOLD_AS_SHIFT - PLACE_SHIFT) && PORTS_MAX <= 1 << ATTEMPT_SHIFT);

/// As what the completions of a link's rail are told, of those that it was made with by so many attempts. What is
/// left of an earlier one is not taken for its own.
pub(super) fn told_as(link: u64, place: usize, attempts: u32) -> u64 {
    let attempt = u64::from(attempts) & ((1 << (LINK_SHIFT - ATTEMPT_SHIFT)) - 1);
    (link << LINK_SHIFT) | (attempt << ATTEMPT_SHIFT) | place as u64
}

/// The link and the place in it whose completion has this name.
pub(super) fn whose(id: u64) -> (u64, usize) {
    let told_as = id >> TOLD_AS_SHIFT;
    (told_as >> LINK_SHIFT, (told_as & ((1 << ATTEMPT_SHIFT) - 1)) as usize)
}

/// A read that is posted.
struct PostedRead {
    transfer: u64,
    extent: Extent,
}

/// A read that is over. `arrived`: with its bytes.
pub(super) struct EndedRead {
    pub(super) transfer: u64,
    pub(super) extent: Extent,
    pub(super) arrived: bool,
}

struct Queue {
    pair: QueuePair,
    /// In their order. The first one's number is `first`.
    posted: VecDeque<PostedRead>,
    first: u16,
}

/// The reader's end of one rail of a link: its queue pairs on one port.
pub(super) struct ReaderRail {
    /// The agent's port that it begins at.
    pub(super) port: usize,
    pub(super) stage: Stage,
    /// That port, as it was when they were made.
    state: PortState,
    // Before the room for their completions: fields drop in order.
    queues: Vec<Queue>,
    room: Room,
    /// As what these are told.
    told_as: u64,
    bytes: usize,
}

/// What the queue pairs of a rail are there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// They were made, and are about to be tried.
    Made,
    /// They read what transfers want.
    Used,
    /// They were ended then, and what is under way completes soon.
    Ended(Instant),
    /// They were made then, where the link had none, and the owner was asked for its own.
    Offered(Instant, Attempt),
    /// They read since then what shows that they do, and how fast.
    Tried {
        since: Instant,
        /// Bytes that are still to come.
        missing: u64,
        /// They were made with the link.
        is_first: bool,
    },
}

impl Stage {
    /// Returns whether it is not known yet if anything can be read over the rail.
    pub(super) fn is_first(self) -> bool {
        matches!(self, Self::Made | Self::Tried { is_first: true, .. })
    }
}

/// A link's queue pairs, and the connection that they were agreed on over. The queue pairs live as long.
pub(crate) struct ReaderConnection {
    pub(super) link: Arc<Link>,
    pub(super) way: Arc<RdmaWay>,
    pub(super) channel: Channel,
    /// `None`: there are none on this rail, until it is tried again.
    pub(super) rails: Vec<Option<ReaderRail>>,
    /// Which of them are used.
    pub(super) policy: Rails,
    /// Attempts to make a rail anew.
    pub(super) attempts: u32,
    /// Transfers with something left to post.
    pub(super) waiting: VecDeque<u64>,
    /// Up to which word the owner tells of it.
    pub(super) watched: u64,
    /// When its queue pairs were ended.
    pub(super) ended: Option<Instant>,
}

impl ReaderRail {
    /// Makes queue pairs on port `port` of `verbs`, to be connected; their completions are told as `told_as`.
    pub(super) fn new(verbs: &Verbs, port: usize, told_as: u64) -> Result<Self, DeviceError> {
        let count = verbs.queues();
        let own = &verbs.ports[port];
        let state = own.state()?;
        let room = own.completions.take_room((count * QUEUE_READS_MAX) as u32)?;
        let queue = |_| {
            let pair = QueuePair::new(own, &room.queue, QUEUE_READS_MAX as u32, false)?;
            Ok(Queue { pair, posted: VecDeque::with_capacity(QUEUE_READS_MAX), first: 0 })
        };
        let queues = (0..count).map(queue).collect::<Result<_, DeviceError>>()?;
        Ok(Self { port, stage: Stage::Made, state, queues, room, told_as, bytes: 0 })
    }

    /// Returns what the owner is told of it.
    pub(super) fn offer(&self) -> RailQueues {
        let queues = self.queues.iter().map(|queue| queue.pair.number()).collect();
        RailQueues { address: self.state.address.clone(), queues }
    }

    /// Connects the queue pairs to those of the owner.
    pub(super) fn connect(&mut self, owner: &RailQueues) -> Result<(), DeviceError> {
        if owner.queues.is_empty() {
            return Err(DeviceError::NoOwnerPairs);
        }
        if owner.queues.len() != self.queues.len() {
            return Err(DeviceError::Pairs { answered: owner.queues.len(), offered: self.queues.len() });
        }
        let reads = self.state.address.reads.min(owner.address.reads_of_peers);
        if reads == 0 {
            return Err(DeviceError::NoReads);
        }
        for (queue, &number) in self.queues.iter_mut().zip(&owner.queues) {
            queue.pair.connect(&self.state, &owner.address, number, Depth { reads, reads_of_peer: 0 })?;
        }
        Ok(())
    }

    fn free_place(&self) -> Option<usize> {
        if self.bytes >= RAIL_BYTES_MAX {
            return None;
        }
        let least = self.queues.iter().enumerate().min_by_key(|(_, queue)| queue.posted.len());
        least.filter(|(_, queue)| queue.posted.len() < QUEUE_READS_MAX).map(|(place, _)| place)
    }

    /// Returns whether another read of a transfer may be posted.
    pub(super) fn has_room(&self) -> bool {
        self.stage == Stage::Used && self.free_place().is_some()
    }

    /// Posts what `next` gives, as a chain on the queue pair with the fewest reads; their bytes. Errors: the
    /// queue pair is of no use any more.
    ///
    /// # Safety
    /// As for [`QueuePair::read`].
    pub(super) unsafe fn post(
        &mut self,
        transfer: u64,
        mut next: impl FnMut(u64) -> Option<(Extent, Read)>,
    ) -> Result<u64, VerbsError> {
        let Some(place) = self.free_place() else { return Ok(0) };
        let queue = &mut self.queues[place];
        let room = CHAIN_MAX.min(QUEUE_READS_MAX - queue.posted.len());
        let mut chain = [Read::default(); CHAIN_MAX];
        let (mut count, before) = (0, self.bytes);
        while count < room && self.bytes < RAIL_BYTES_MAX {
            let number = queue.first.wrapping_add(queue.posted.len() as u16);
            let id = (self.told_as << TOLD_AS_SHIFT) | ((place as u64) << PLACE_SHIFT) | u64::from(number);
            let Some((extent, read)) = next(id) else { break };
            self.bytes += extent.len as usize;
            chain[count] = read;
            count += 1;
            // Noted before it is posted: where posting fails, it is not known which reads are under way.
            queue.posted.push_back(PostedRead { transfer, extent });
        }
        // SAFETY: the caller says so.
        unsafe { queue.pair.read(&chain[..count])? };
        Ok((self.bytes - before) as u64)
    }

    /// Returns whether a completion of this name is of these queue pairs, and of none that were here before.
    pub(super) fn is_told_by(&self, id: u64) -> bool {
        id >> TOLD_AS_SHIFT == self.told_as
    }

    /// Takes the reads that a completion ends.
    pub(super) fn completed(&mut self, completed: &Completed, ended: &mut Vec<EndedRead>) {
        let place = (completed.id >> PLACE_SHIFT) as usize & (QUEUES_MAX - 1);
        let Some(queue) = self.queues.get_mut(place) else { return };
        // Reads complete in their order, and only some of them say so.
        let before = usize::from((completed.id as u16).wrapping_sub(queue.first));
        if before >= queue.posted.len() {
            return;
        }
        for (at, PostedRead { transfer, extent }) in queue.posted.drain(..=before).enumerate() {
            let arrived = completed.status == 0 || at < before;
            self.bytes -= extent.len as usize;
            ended.push(EndedRead { transfer, extent, arrived });
        }
        queue.first = queue.first.wrapping_add(before as u16 + 1);
    }

    /// Ends the queue pairs; the reads that are posted complete soon.
    pub(super) fn fail(&mut self, now: Instant) {
        for queue in &mut self.queues {
            // One that cannot be ended is destroyed when patience does.
            let _ = queue.pair.fail();
        }
        self.stage = Stage::Ended(now);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queues.iter().all(|queue| queue.posted.is_empty())
    }

    /// The reads that end with the queue pairs, which are destroyed; and the room that their completions had,
    /// which may still be there.
    pub(super) fn destroy(self) -> (Vec<EndedRead>, Room) {
        let mut posted = Vec::new();
        for Queue { pair, posted: own, .. } in self.queues {
            drop(pair);
            posted.extend(own);
        }
        let ended =
            posted.into_iter().map(|PostedRead { transfer, extent }| EndedRead { transfer, extent, arrived: false });
        (ended.collect(), self.room)
    }
}

impl ReaderConnection {
    /// Returns what is offered to the owner.
    pub(super) fn offer(rails: &[Result<ReaderRail, DeviceError>], verbs: &Verbs, fingerprint: u64) -> Queues {
        let none = |rail: usize| RailQueues { address: verbs.ports[rail].address(), queues: Vec::new() };
        let offer =
            |(place, rail): (usize, &Result<ReaderRail, _>)| rail.as_ref().map_or(none(place), ReaderRail::offer);
        let rails = rails.iter().enumerate().map(offer).collect();
        Queues { fingerprint, rails }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }

    /// Returns whether nothing that was posted is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.rails.iter().flatten().all(ReaderRail::is_idle)
    }

    /// Returns whether no rail is used, or may prove to be of use.
    pub(super) fn is_hopeless(&self) -> bool {
        self.policy.up() == 0 && !self.rails.iter().flatten().any(|rail| rail.stage.is_first())
    }

    /// Ends its queue pairs.
    pub(super) fn fail(&mut self, now: Instant) {
        self.rails.iter_mut().flatten().for_each(|rail| rail.fail(now));
        self.waiting.clear();
        self.ended = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_tells_whose_it_is() {
        for (link, place, attempts) in [(1, 0, 0), (7, 7, 1), (1 << 35, 3, 63)] {
            let id = (told_as(link, place, attempts) << TOLD_AS_SHIFT) | (5 << PLACE_SHIFT) | 0xFFFF;
            assert_eq!(whose(id), (link, place));
        }
        let told: Vec<u64> = (0..64).map(|attempts| told_as(3, 1, attempts)).collect();
        assert!(told.iter().enumerate().all(|(at, one)| !told[..at].contains(one)));
    }
}
