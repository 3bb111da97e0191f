//! The reading end of a link: its queue pairs, and which reads they have.
//!
//! Every read that was posted is accounted for until its completion was taken or its queue pair is gone, whatever became of
//! its transfer: only then is the destination quiesced.

use super::plan::Part;
use super::queue::{Completed, Completions, Depth, QueuePair, Read};
use super::rail::Port;
use super::wire::{Attempt, Queues, RailQueues};
use super::{RdmaWay, Verbs};
use crate::control::Channel;
use crate::link::Link;
use crate::rails::Rails;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

/// Reads that are posted to a queue pair at once. The device has fewer of them under way, and begins the next by itself.
const QUEUE_READS_MAX: usize = 64;
/// Reads posted with one doorbell.
const CHAIN_MAX: usize = 16;
/// Bytes that one rail is asked for at once: twice what a fast one has on the wire. Many senders do not drown a reader, and
/// what was cancelled is soon over.
const RAIL_BYTES_MAX: usize = 4 << 20;

/// A queue pair's completion is named by its place among those of its rail, above its number among the reads.
const PLACE_SHIFT: u32 = 48;

/// A read that is posted.
struct PostedRead {
    transfer: u64,
    part: Part,
}

/// A read that is over. `arrived`: with its bytes.
pub(super) struct EndedRead {
    pub(super) transfer: u64,
    pub(super) part: Part,
    pub(super) arrived: bool,
}

struct Queue {
    pair: QueuePair,
    /// In their order. The first one's number is `first`.
    posted: VecDeque<PostedRead>,
    first: u64,
}

/// The queue pairs of a link on one rail.
pub(super) struct LinkRail {
    /// Which of the agent's.
    pub(super) rail: usize,
    pub(super) stage: Stage,
    /// The rail's, as it was when they were made.
    port: Port,
    // Before their completions: fields drop in order.
    queues: Vec<Queue>,
    completions: Completions,
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
    /// Whether it is not known yet if anything can be read over the rail.
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
    pub(super) rails: Vec<Option<LinkRail>>,
    /// Which of them are used.
    pub(super) choice: Rails,
    /// Attempts to make a rail anew.
    pub(super) attempts: u32,
    /// Transfers with something left to post.
    pub(super) waiting: VecDeque<u64>,
    /// Up to which word the owner tells of it.
    pub(super) watched: u64,
    /// When its queue pairs were ended.
    pub(super) ended: Option<Instant>,
}

impl LinkRail {
    /// Queue pairs on rail `rail` of `verbs`, to be connected; `number` is how its completions are told. Errors, in words.
    pub(super) fn new(verbs: &Verbs, rail: usize, number: u64) -> Result<Self, String> {
        let count = verbs.queues();
        let rail_at = &verbs.rails[rail];
        let port = rail_at.port()?;
        let completions = Completions::new(rail_at, (count * QUEUE_READS_MAX) as u32, number)?;
        let queue = |_| {
            let pair = QueuePair::new(rail_at, &completions, QUEUE_READS_MAX as u32, false)?;
            Ok(Queue { pair, posted: VecDeque::with_capacity(QUEUE_READS_MAX), first: 0 })
        };
        let queues = (0..count).map(queue).collect::<Result<_, String>>()?;
        Ok(Self { rail, stage: Stage::Made, port, completions, queues, bytes: 0 })
    }

    /// What the owner is told of it.
    pub(super) fn offer(&self) -> RailQueues {
        let queues = self.queues.iter().map(|queue| queue.pair.number()).collect();
        RailQueues { address: self.port.address.clone(), queues }
    }

    /// Connects the queue pairs to those of the owner. Errors, in words.
    pub(super) fn connect(&mut self, owner: &RailQueues) -> Result<(), String> {
        if owner.queues.is_empty() {
            return Err("the owner has no queue pairs for it now".to_owned());
        }
        if owner.queues.len() != self.queues.len() {
            return Err(format!("{} queue pairs answer {}", owner.queues.len(), self.queues.len()));
        }
        let reads = self.port.address.reads.min(owner.address.reads_of_peers);
        if reads == 0 {
            return Err("its device serves no reads".to_owned());
        }
        for (queue, &number) in self.queues.iter_mut().zip(&owner.queues) {
            queue.pair.connect(&self.port, &owner.address, number, Depth { reads, reads_of_peer: 0 })?;
        }
        self.completions.arm()
    }

    fn room(&self) -> Option<usize> {
        if self.bytes >= RAIL_BYTES_MAX {
            return None;
        }
        let least = self.queues.iter().enumerate().min_by_key(|(_, queue)| queue.posted.len());
        least.filter(|(_, queue)| queue.posted.len() < QUEUE_READS_MAX).map(|(place, _)| place)
    }

    /// Whether another read of a transfer may be posted.
    pub(super) fn has_room(&self) -> bool {
        self.stage == Stage::Used && self.room().is_some()
    }

    /// Posts what `next` gives, as a chain on the queue pair with the fewest reads; their bytes. Errors, in words: the queue
    /// pair is of no use any more.
    ///
    /// # Safety
    /// As for [`QueuePair::read`].
    pub(super) unsafe fn post(
        &mut self,
        transfer: u64,
        mut next: impl FnMut(u64) -> Option<(Part, Read)>,
    ) -> Result<u64, String> {
        let Some(place) = self.room() else { return Ok(0) };
        let queue = &mut self.queues[place];
        let room = CHAIN_MAX.min(QUEUE_READS_MAX - queue.posted.len());
        let mut chain = [const { None::<Read> }; CHAIN_MAX];
        let (mut count, before) = (0, self.bytes);
        while count < room && self.bytes < RAIL_BYTES_MAX {
            let id = ((place as u64) << PLACE_SHIFT) | (queue.first + queue.posted.len() as u64);
            let Some((part, read)) = next(id) else { break };
            self.bytes += part.len as usize;
            chain[count] = Some(read);
            count += 1;
            // Noted before it is posted: where posting fails, nobody can tell which reads are under way.
            queue.posted.push_back(PostedRead { transfer, part });
        }
        // SAFETY: the caller says so.
        unsafe { queue.pair.read(chain[..count].iter().flatten())? };
        Ok((self.bytes - before) as u64)
    }

    /// Takes completions, and the reads that they end. Errors, in words: a queue pair has failed, and its other reads with
    /// it, whose completions may come later.
    pub(super) fn take(&mut self, taken: &mut Vec<Completed>, ended: &mut Vec<EndedRead>) -> Result<(), String> {
        taken.clear();
        self.completions.take(taken)?;
        let mut failure = None;
        for completed in taken.iter() {
            let place = (completed.id >> PLACE_SHIFT) as usize;
            let number = completed.id & ((1 << PLACE_SHIFT) - 1);
            let Some(queue) = self.queues.get_mut(place) else { continue };
            // Reads complete in their order, and only some of them say so.
            while queue.first <= number
                && let Some(PostedRead { transfer, part }) = queue.posted.pop_front()
            {
                let arrived = completed.status == 0 || queue.first < number;
                queue.first += 1;
                self.bytes -= part.len as usize;
                ended.push(EndedRead { transfer, part, arrived });
            }
            if completed.status != 0 && failure.is_none() {
                failure = Some(super::queue::describe(completed.status));
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// From now on completions are told, until the next one.
    pub(super) fn arm(&self) -> Result<(), String> {
        self.completions.arm()
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

    /// The reads that end with the queue pairs, which are destroyed.
    pub(super) fn destroy(self) -> impl Iterator<Item = EndedRead> {
        let Self { queues, completions, .. } = self;
        let mut posted = Vec::new();
        for Queue { pair, posted: own, .. } in queues {
            drop(pair);
            posted.extend(own);
        }
        drop(completions);
        posted.into_iter().map(|PostedRead { transfer, part }| EndedRead { transfer, part, arrived: false })
    }
}

impl ReaderConnection {
    /// What is offered to the owner.
    pub(super) fn offer(rails: &[Result<LinkRail, String>], verbs: &Verbs, fingerprint: u64) -> Queues {
        let none = |rail: usize| RailQueues { address: verbs.rails[rail].address(), queues: Vec::new() };
        let offer = |(place, rail): (usize, &Result<LinkRail, _>)| rail.as_ref().map_or(none(place), LinkRail::offer);
        let rails = rails.iter().enumerate().map(offer).collect();
        Queues { fingerprint, rails }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }

    /// Whether nothing that was posted is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.rails.iter().flatten().all(LinkRail::is_idle)
    }

    /// Whether no rail is used, or may prove to be of use.
    pub(super) fn is_hopeless(&self) -> bool {
        self.choice.up() == 0 && !self.rails.iter().flatten().any(|rail| rail.stage.is_first())
    }

    /// Ends its queue pairs.
    pub(super) fn fail(&mut self, now: Instant) {
        self.rails.iter_mut().flatten().for_each(|rail| rail.fail(now));
        self.waiting.clear();
        self.ended = Some(now);
    }
}
