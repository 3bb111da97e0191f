//! The machines at both ends of a connection by which the lane `rdma` is agreed on, as a fuzzer feeds them: what
//! the other end says, in pieces, to devices that are not there.

use super::owner::OwnerConnection;
use super::owner_state::{FRAME_BYTES_MAX, OwnerState, answer};
use super::pretended::Pretended;
use super::wire::{
    Attempt, ExchangeError, GidKind, KeyedRegion, PORTS_MAX, PortAddress, QUEUES_MAX, Queues, RailQueues, RemadeRail,
    kind,
};
use crate::agent::config::AgentConfig;
use crate::agent::shared::AgentShared;
use crate::fields::read_region;
use crate::fuzzing::input::{How, frame, pair, said};
use crate::net::control::{Channel, Frame};
use crate::net::socket::Socket;
use crate::regions::RegionId;
use domain::{Incarnation, WorkerId};
use kv_memory::SealedMemory;
use std::sync::Arc;

/// Rails of the owner; and what a reader offers, where that is fed.
const RAILS: usize = 2;
/// What agents have whose configuration does not say it.
const LAYOUT: u64 = 0;

/// What one end has heard of the other so far.
#[derive(Default)]
struct Heard {
    /// Once the queue pairs were told.
    owner: Option<OwnerState>,
    /// Whether all was told that comes before the link is used.
    ready: bool,
    /// Answers for rails.
    answers: usize,
}

impl Heard {
    /// Takes a frame, as the reader's end does.
    fn take(&mut self, frame: &Frame, rails: usize) -> Result<(), ExchangeError> {
        let Some(owner) = &self.owner else {
            let queues = answer(frame, LAYOUT, rails)?;
            assert_eq!(queues.rails.len(), rails);
            self.owner = Some(OwnerState::new(rails));
            return Ok(());
        };
        let before = owner.word();
        if self.ready {
            self.answers += usize::from(owner.hear(frame)?.is_some());
        } else {
            self.ready = owner.begin(frame)?;
        }
        assert!(owner.word() >= before, "a word never falls");
        match frame.kind {
            kind::REGION => {
                let region = KeyedRegion::decode(&frame.body, rails).expect("it was taken");
                assert!(region.keys.len() == rails && region.address.checked_add(region.len).is_some());
                assert_eq!(owner.region(region.id), Some(region));
            }
            kind::WITHDRAWN => {
                let id = read_region(&frame.body).expect("it was taken");
                assert_eq!(owner.region(id), None);
            }
            _ => {}
        }
        Ok(())
    }
}

/// A reader speaks to the machine that serves it: whatever it asks, it gets no more queue pairs than it may
/// have, and a reader understands every answer: of rails, so many.
pub(crate) fn owner(input: &[u8]) -> usize {
    let Some((how, asked)) = How::of(input) else { return 0 };
    let config = AgentConfig::in_process(WorkerId(0), Incarnation(1), "owner".to_owned(), 1);
    let agent = AgentShared::without_threads(config, None, Box::new(|_| true));
    let memory = Arc::new(SealedMemory::new("fuzz", 4096).expect("memory"));
    let mut devices = Pretended::new(RAILS);
    [RegionId(0), RegionId(1)].into_iter().for_each(|id| devices.register(id, memory.clone()));
    let (ours, theirs) = pair();
    let mut owner = OwnerConnection::new(Channel::new(Socket::plain(ours), false), WorkerId(1), Incarnation(1));
    let speaks = theirs.try_clone().expect("there are descriptors");
    let mut reader = Channel::new(Socket::plain(theirs), false);
    let (mut heard, mut rails) = (Heard::default(), None);
    for (word, part) in (1..).zip(asked.chunks(how.piece)) {
        said(&speaks, part);
        let outcome = owner.receive(&agent, &devices);
        owner.tell(word, |channel| channel.flush().map(drop)).expect("the other end takes all");
        if how.checksums {
            // Regions come and go meanwhile.
            devices.deregister(RegionId(word as u32 % 2));
            owner.show_regions(&devices);
            devices.register(RegionId(word as u32 % 2), memory.clone());
            owner.show_regions(&devices);
        }
        assert!(devices.pairs() <= PORTS_MAX * QUEUES_MAX, "{} queue pairs", devices.pairs());
        assert!(owner.channel.flush().is_ok_and(|all| all), "the other end takes all");
        while reader.fill().expect("nobody closed it") {}
        while let Some(frame) = reader.next(FRAME_BYTES_MAX).expect("it answers as it should") {
            // As many rails as were offered.
            let rails =
                *rails.get_or_insert_with(|| Queues::decode(&frame.body).map_or(0, |queues| queues.rails.len()));
            heard.take(&frame, rails).expect("it answers as it should");
        }
        if let Some(owner) = &heard.owner {
            assert!(heard.ready && owner.word() <= word, "what a reader begins with comes at once");
        }
        if outcome.is_err() {
            break;
        }
    }
    drop(owner);
    assert_eq!(devices.pairs(), 0, "queue pairs live as long as the connection");
    heard.answers
}

/// An owner speaks to the machine that reads over the link. How many answers for rails it took; `None`: it refused
/// something.
pub(crate) fn reader(input: &[u8]) -> Option<usize> {
    let (how, told) = How::of(input)?;
    let (ours, theirs) = pair();
    let mut channel = Channel::new(Socket::plain(ours), false);
    let mut heard = Heard::default();
    for part in told.chunks(how.piece) {
        said(&theirs, part);
        while channel.fill().expect("nobody closed it") {}
        while let Some(frame) = channel.next(FRAME_BYTES_MAX).ok()? {
            heard.take(&frame, RAILS).ok()?;
        }
    }
    Some(heard.answers)
}

fn rail() -> RailQueues {
    let address = PortAddress { kind: GidKind::RoceV2, gid: [7; 16], lid: 3, mtu: 5, reads: 16, reads_of_peers: 12 };
    RailQueues { address, queues: vec![(17, 0), (18, 0xFF_FFFF)] }
}

/// For each of the rails.
fn queues(count: usize) -> Vec<u8> {
    frame(kind::QUEUES, &Queues { fingerprint: LAYOUT, rails: vec![rail(); count] }.encode())
}

fn anew(rail_of: u8, number: u32) -> Vec<u8> {
    frame(kind::RAIL, &RemadeRail { which: Attempt { rail: rail_of, number }, queues: rail() }.encode())
}

/// Returns what a reader says on good days, and on some others.
pub(crate) fn owner_seeds() -> Vec<Vec<u8>> {
    let watch = |word: u64| frame(kind::WATCH, &word.to_le_bytes());
    vec![
        How::PLAIN.before(&[queues(RAILS), watch(9), anew(1, 1), anew(0, 2), watch(3)].concat()),
        How::CHECKED.before(&[queues(1), anew(0, 1), watch(u64::MAX), anew(0, 2)].concat()),
        // There is no such rail.
        How::PLAIN.before(&[queues(1), anew(1, 1)].concat()),
        How::PLAIN.before(&[watch(1), queues(RAILS)].concat()),
    ]
}

/// Returns what an owner says on good days, and on some others.
pub(crate) fn reader_seeds() -> Vec<Vec<u8>> {
    let region = |id, keys: usize| {
        let region = KeyedRegion { id: RegionId(id), len: 1 << 40, address: 1 << 46, keys: vec![5; keys] };
        frame(kind::REGION, &region.encode())
    };
    let withdrawn = |id: u32| frame(kind::WITHDRAWN, &id.to_le_bytes());
    let word = |word: u64| frame(kind::WORD, &word.to_le_bytes());
    let ready = frame(kind::READY, &[]);
    let begin = [queues(RAILS), region(1, RAILS), region(2, RAILS), withdrawn(1), ready.clone()].concat();
    vec![
        How::PLAIN.before(&[begin.clone(), word(7), region(1, RAILS), anew(1, 1), word(3), withdrawn(2)].concat()),
        // A region a second time, one with too few keys, and queue pairs for another number of rails.
        How::PLAIN.before(&[begin.clone(), region(2, RAILS)].concat()),
        How::PLAIN.before(&[begin, region(3, 1)].concat()),
        How::PLAIN.before(&[queues(1), ready].concat()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_on_good_days_is_understood() {
        let answers: Vec<_> = owner_seeds().iter().map(|seed| owner(seed)).collect();
        assert_eq!(answers, [2, 2, 0, 0]);
        let answers: Vec<_> = reader_seeds().iter().map(|seed| reader(seed)).collect();
        assert_eq!(answers, [Some(1), None, None, None]);
    }
}
