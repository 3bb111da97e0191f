//! The owner's end of a connection that a peer reads over: its queue pairs, which do nothing by themselves, and what it is
//! told meanwhile.

use super::Verbs;
use super::queue::{Depth, QueuePair};
use super::rail::Rail;
use super::wire::{self, Queues, RailAnew, RailQueues, Region, decode_word, kind};
use crate::control::{Channel, ChannelError};
use crate::counts::Refusal;
use crate::memory::RegionId;
use crate::station::Station;
use domain::{Incarnation, WorkerId};
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

/// Bytes of a frame of a reader.
const FRAME_BYTES_MAX: usize = 4096;
/// Bytes that wait at a socket, beyond which raises of the word are not told one by one.
const UNSENT_MAX: usize = 4096;

/// A connection that a peer reads over, and its queue pairs, which live as long.
pub(super) struct OwnerConnection {
    pub(super) peer: WorkerId,
    incarnation: Incarnation,
    pub(super) channel: Channel,
    stage: Stage,
    pub(super) waits_to_write: bool,
}

enum Stage {
    /// It has not said which queue pairs it reads by.
    Expected,
    Reading {
        /// Of each of the reader's rails.
        pairs: Vec<Vec<QueuePair>>,
        /// Which of the agent's rails serves each of the reader's.
        rails: Vec<usize>,
        regions_shown: BTreeSet<RegionId>,
        /// It is told of every raise until the word has reached this.
        watched: u64,
        told: u64,
    },
}

fn refuse(reason: impl Into<String>) -> ChannelError {
    ChannelError::Refused(Refusal::Protocol, reason.into())
}

impl OwnerConnection {
    pub(super) fn new(channel: Channel, peer: WorkerId, incarnation: Incarnation) -> Self {
        Self { peer, incarnation, channel, stage: Stage::Expected, waits_to_write: false }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }

    /// Whether it is an earlier life of the peer.
    pub(super) fn is_before(&self, id: WorkerId, life: Incarnation) -> bool {
        self.peer == id && self.incarnation < life
    }

    /// Reads what came, and handles it. `false`: nothing is there now. Errors: it is to be closed.
    pub(super) fn receive(&mut self, station: &Station, verbs: &Verbs) -> Result<bool, ChannelError> {
        let more = self.channel.fill()?;
        while let Some(frame) = self.channel.next(FRAME_BYTES_MAX)? {
            match (&mut self.stage, frame.kind) {
                (Stage::Expected, kind::QUEUES) => {
                    let offer = Queues::decode(&frame.body).map_err(refuse)?;
                    offer.check_fingerprint(station.config.fingerprint).map_err(refuse)?;
                    let (answer, stage) = serve(verbs, &offer).map_err(refuse)?;
                    let answer = Queues { fingerprint: station.config.fingerprint, rails: answer };
                    self.channel.push(kind::QUEUES, &answer.encode(), None);
                    self.stage = stage;
                    self.show_regions(verbs);
                    self.channel.push(kind::READY, &[], None);
                }
                (Stage::Reading { watched, .. }, kind::WATCH) => {
                    *watched = (*watched).max(decode_word(&frame.body).map_err(refuse)?);
                }
                (Stage::Reading { pairs, rails, .. }, kind::RAIL) => {
                    let RailAnew { which, queues } = RailAnew::decode(&frame.body).map_err(refuse)?;
                    let place = usize::from(which.rail);
                    let own = *rails.get(place).ok_or_else(|| refuse(format!("there is no rail {place}")))?;
                    if pairs[place].iter().any(QueuePair::has_failed) {
                        station.counts.refused(Refusal::Key);
                    }
                    // Those that failed go first: a device may have no room for both.
                    pairs[place].clear();
                    let (answer, made) = serve_rail(verbs, own, &queues);
                    pairs[place] = made;
                    self.channel.push(kind::RAIL, &RailAnew { which, queues: answer }.encode(), None);
                }
                (_, other) => return Err(refuse(format!("a frame of kind {other} out of place"))),
            }
        }
        Ok(more)
    }

    /// Tells of the regions that the reader does not know yet, and of those that are no more.
    pub(super) fn show_regions(&mut self, verbs: &Verbs) {
        let Stage::Reading { rails, regions_shown, .. } = &mut self.stage else { return };
        let regions = verbs.regions();
        for id in regions_shown.extract_if(.., |id| !regions.contains_key(id)) {
            self.channel.push(kind::WITHDRAWN, &id.0.to_le_bytes(), None);
        }
        for (id, memory) in regions {
            let keys: Option<Vec<u32>> =
                rails.iter().map(|&rail| Some(verbs.rails[rail].keys(&memory)?.remote)).collect();
            // Without keys it has been taken back since.
            if let Some(keys) = keys
                && regions_shown.insert(id)
            {
                let region = Region { id, len: memory.len() as u64, address: memory.as_ptr() as u64, keys };
                self.channel.push(kind::REGION, &region.encode(), None);
            }
        }
    }

    /// Whether a device refused what the peer asked for by one of the queue pairs.
    pub(super) fn was_refused(&self) -> bool {
        match &self.stage {
            Stage::Expected => false,
            Stage::Reading { pairs, .. } => pairs.iter().flatten().any(QueuePair::has_failed),
        }
    }

    /// Whether it waits for a word that is not raised yet.
    pub(super) fn watches(&self) -> bool {
        matches!(&self.stage, Stage::Reading { watched, told, .. } if watched > told)
    }

    /// Tells of the word, if it waits for it. Whether there is something to send.
    pub(super) fn tell(&mut self, word: u64) -> bool {
        match &mut self.stage {
            Stage::Reading { watched, told, .. } if *watched > *told && word > *told => {
                // A socket that takes no more is told of the last word when it does.
                if self.channel.unsent() < UNSENT_MAX {
                    *told = word;
                    self.channel.push(kind::WORD, &word.to_le_bytes(), None);
                }
                true
            }
            _ => false,
        }
    }
}

/// Makes a queue pair for each that is offered, on the rail that fits it best, where that can be now. Errors, in words.
fn serve(verbs: &Verbs, offer: &Queues) -> Result<(Vec<RailQueues>, Stage), String> {
    let (mut answer, mut pairs, mut rails) = (Vec::new(), Vec::new(), Vec::new());
    for rail in &offer.rails {
        let own = best_rail(verbs, &rail.address.gid, rail.address.kind, &rails)?;
        let (queues, made) = serve_rail(verbs, own, rail);
        answer.push(queues);
        pairs.push(made);
        rails.push(own);
    }
    Ok((answer, Stage::Reading { pairs, rails, regions_shown: BTreeSet::new(), watched: 0, told: 0 }))
}

/// A queue pair on rail `own` for each of the reader's; none where that cannot be now.
fn serve_rail(verbs: &Verbs, own: usize, reader: &RailQueues) -> (RailQueues, Vec<QueuePair>) {
    make_pairs(verbs, own, reader).unwrap_or_else(|reason| {
        let rail = &verbs.rails[own];
        tracing::debug!(rail = rail.name, reason, "no queue pairs can be made");
        (RailQueues { address: rail.address(), queues: Vec::new() }, Vec::new())
    })
}

/// Makes a queue pair on rail `own` for each of the reader's. Errors, in words.
fn make_pairs(verbs: &Verbs, own: usize, reader: &RailQueues) -> Result<(RailQueues, Vec<QueuePair>), String> {
    let (rail, address) = (&verbs.rails[own], &reader.address);
    let port = rail.port()?;
    let reads_of_peer = port.address.reads_of_peers.min(address.reads);
    let mut pairs = Vec::new();
    for &number in &reader.queues {
        // It sends nothing, so one entry that is never used is enough.
        let mut pair = QueuePair::new(rail, &verbs.unused[own], 1, true)?;
        pair.connect(&port, address, number, Depth { reads: 0, reads_of_peer })?;
        pairs.push(pair);
    }
    Ok((RailQueues { queues: pairs.iter().map(QueuePair::number).collect(), address: port.address }, pairs))
}

/// The rail of this agent that fits one of the peer's: of its kind, in its network as far as the addresses tell, and not
/// `taken` by another of them. Errors: none is of its kind.
fn best_rail(verbs: &Verbs, gid: &[u8; 16], kind: wire::GidKind, taken: &[usize]) -> Result<usize, String> {
    let common = |own: &[u8; 16]| {
        let own = u128::from_be_bytes(*own);
        (own ^ u128::from_be_bytes(*gid)).leading_zeros()
    };
    let addresses = verbs.rails.iter().map(Rail::address).enumerate();
    let fits = addresses.filter(|(_, address)| address.kind == kind);
    let best = fits.max_by_key(|(place, address)| {
        let uses = taken.iter().filter(|&taken| taken == place).count();
        (std::cmp::Reverse(uses), common(&address.gid), std::cmp::Reverse(*place))
    });
    best.map(|(place, _)| place).ok_or_else(|| format!("no port here speaks {kind:?}"))
}

#[cfg(test)]
mod tests {
    use super::super::wire::{GidKind, RailAddress};
    use super::*;
    use crate::config::AgentConfig;
    use crate::control::Control;
    use crate::hub::Hub;
    use crate::socket::Socket;
    use crate::station::StationParts;
    use crate::watch::Watched;
    use domain::ProgressWord;
    use domain::session::PeerAddress;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    const LAYOUT: u64 = 0xBA70;

    fn station() -> Station {
        let mut config = AgentConfig::in_process(WorkerId(0), Incarnation(1), "owner".to_owned(), 1);
        config.fingerprint = LAYOUT;
        Station::new(StationParts {
            config,
            address: PeerAddress::default(),
            hub: Hub::new(),
            progress: Watched::new(ProgressWord::new(), None).expect("nobody else watches it"),
            control: Control::new().expect("there are descriptors"),
            streams: None,
            verbs: Err("not of this test".to_owned()),
            sink: Box::new(|_| true),
        })
    }

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32 + 1).to_le_bytes(), [kind].as_slice(), body].concat()
    }

    fn offer(fingerprint: u64) -> Queues {
        let address =
            RailAddress { kind: GidKind::RoceV2, gid: [1; 16], lid: 0, mtu: 5, reads: 16, reads_of_peers: 16 };
        Queues { fingerprint, rails: vec![RailQueues { address, queues: vec![(17, 4)] }] }
    }

    /// What is refused of a peer that sends `bytes` to an owner without devices.
    #[track_caller]
    fn check(bytes: &[u8], expect: &str) {
        let (own, mut peer) = UnixStream::pair().expect("there are descriptors");
        let channel = Channel::new(Socket::plain(own.into()), false);
        let mut owner = OwnerConnection::new(channel, WorkerId(1), Incarnation(1));
        peer.write_all(bytes).expect("it is open");
        match owner.receive(&station(), &Verbs::without_devices()) {
            Err(ChannelError::Refused(Refusal::Protocol, reason)) => assert!(reason.contains(expect), "{reason}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn garbage_is_refused_before_a_device_sees_it() {
        check(&[0xFF; 64], "a frame of 4294967295 bytes");
        check(&frame(99, &[]), "a frame of kind 99 out of place");
        check(&frame(kind::WATCH, &1_u64.to_le_bytes()), "out of place");
        check(&frame(kind::QUEUES, &[]), "ends too early");
        check(&frame(kind::QUEUES, &[9; 60]), "version 2313 of the exchange");
        check(&frame(kind::QUEUES, &offer(LAYOUT + 1).encode()), "000000000000ba71, where 000000000000ba70 is meant");
        check(&frame(kind::QUEUES, &offer(LAYOUT).encode()), "no port here speaks RoceV2");
    }
}
