//! The owner's end of a connection that a peer reads over: its queue pairs, which do nothing by themselves, and
//! what it is told meanwhile.
//!
//! It knows devices through [`OwnerPorts`] alone, so that it is fed without one what peers may say. What is
//! deliberately absent: how queue pairs are made, which is in `serving`.

use super::wire::{ExchangeError, KeyedRegion, PortAddress, Queues, RailQueues, RemadeRail, decode_word, kind};
use crate::agent::counts::Refusal;
use crate::agent::shared::AgentShared;
use crate::net::control::{Channel, ChannelError};
use crate::regions::RegionId;
use crate::wire_error::WireError;
use domain::{Incarnation, WorkerId};
use kv_memory::Memory;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Bytes of a frame of a reader.
const FRAME_BYTES_MAX: usize = 4096;
/// Bytes that wait at a socket, beyond which raises of the word are not told one by one.
const UNSENT_MAX: usize = 4096;

/// Bytes that wait at a socket, beyond which no rail is answered for: all regions there may be, and some. A reader
/// waits for its answer before it asks again.
const ANSWERS_MAX: usize = 1 << 20;

/// Stands for the key on a rail that no port here fits, over which nothing is read.
const NO_KEY: u32 = 0;

/// What the owner's end asks of the agent's devices.
pub(super) trait OwnerPorts {
    /// A queue pair that lets one peer read.
    type Pair;

    /// Returns the port that fits a peer's at `address` best, and is not `taken` by another rail of the link if that
    /// can be. Errors: none fits.
    fn best_port(&self, address: &PortAddress, taken: &[usize]) -> Result<usize, ExchangeError>;

    /// Makes a queue pair on port `port` for each of the reader's; none where that cannot be now.
    fn serve(&self, port: usize, reader: &RailQueues) -> (RailQueues, Vec<Self::Pair>);

    /// Returns whether the device refused what the peer asked for by it.
    fn has_failed(pair: &Self::Pair) -> bool;

    /// The memories that peers may read.
    fn regions(&self) -> BTreeMap<RegionId, Arc<dyn Memory>>;

    /// Returns the key by which peers read a memory on a port, if it is registered there.
    fn key(&self, port: usize, memory: &Arc<dyn Memory>) -> Option<u32>;
}

/// A connection that a peer reads over, and its queue pairs, which live as long.
pub(super) struct OwnerConnection<D: OwnerPorts> {
    pub(super) peer: WorkerId,
    incarnation: Incarnation,
    pub(super) channel: Channel,
    stage: Stage<D::Pair>,
}

enum Stage<P> {
    /// It has not said which queue pairs it reads by.
    Expected,
    Reading {
        /// Of each of the reader's rails.
        pairs: Vec<Vec<P>>,
        /// Which of the agent's ports serves each of the reader's rails. `None`: it has none of that kind.
        ports: Vec<Option<usize>>,
        regions_shown: BTreeSet<RegionId>,
        /// It is told of every raise until the word has reached this.
        watched: u64,
        told: u64,
    },
}

fn refuse(error: ExchangeError) -> ChannelError {
    ChannelError::Refused(Refusal::Protocol, error.to_string())
}

impl<D: OwnerPorts> OwnerConnection<D> {
    pub(super) fn new(channel: Channel, peer: WorkerId, incarnation: Incarnation) -> Self {
        Self { peer, incarnation, channel, stage: Stage::Expected }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }

    /// Returns whether it is an earlier life of the peer.
    pub(super) fn is_before(&self, id: WorkerId, life: Incarnation) -> bool {
        self.peer == id && self.incarnation < life
    }

    /// Reads what came, and handles it. `false`: nothing is there now. Errors: it is to be closed.
    pub(super) fn receive(&mut self, agent: &AgentShared, devices: &D) -> Result<bool, ChannelError> {
        let more = self.channel.fill()?;
        while let Some(frame) = self.channel.next(FRAME_BYTES_MAX)? {
            match (&mut self.stage, frame.kind) {
                (Stage::Expected, kind::QUEUES) => {
                    let offer = Queues::decode(&frame.body).map_err(refuse)?;
                    offer.check_fingerprint(agent.config.fingerprint).map_err(refuse)?;
                    let (answer, stage) = serve(devices, &offer).map_err(refuse)?;
                    let answer = Queues { fingerprint: agent.config.fingerprint, rails: answer };
                    self.channel.push(kind::QUEUES, &answer.encode(), None);
                    self.stage = stage;
                    self.show_regions(devices);
                    self.channel.push(kind::READY, &[], None);
                }
                (Stage::Reading { watched, .. }, kind::WATCH) => {
                    *watched = (*watched).max(decode_word(&frame.body)?);
                }
                (Stage::Reading { pairs, ports, .. }, kind::RAIL) => {
                    let RemadeRail { which, queues } = RemadeRail::decode(&frame.body).map_err(refuse)?;
                    let place = usize::from(which.rail);
                    let own = *ports.get(place).ok_or(ExchangeError::NoRail(place)).map_err(refuse)?;
                    if self.channel.unsent() > ANSWERS_MAX {
                        return Err(refuse(ExchangeError::AnswersNotTaken));
                    }
                    if pairs[place].iter().any(D::has_failed) {
                        agent.counts.refused(Refusal::Key);
                    }
                    // Those that failed go first: a device may have no room for both.
                    pairs[place].clear();
                    let (answer, made) = serve_rail(devices, own, &queues);
                    pairs[place] = made;
                    self.channel.push(kind::RAIL, &RemadeRail { which, queues: answer }.encode(), None);
                }
                (_, other) => return Err(WireError::OutOfPlace(other).into()),
            }
        }
        Ok(more)
    }

    /// Tells of the regions that the reader does not know yet, and of those that are no more.
    pub(super) fn show_regions(&mut self, devices: &D) {
        let Stage::Reading { ports, regions_shown, .. } = &mut self.stage else { return };
        let regions = devices.regions();
        for id in regions_shown.extract_if(.., |id| !regions.contains_key(id)) {
            self.channel.push(kind::WITHDRAWN, &id.0.to_le_bytes(), None);
        }
        for (id, memory) in regions {
            let key = |port: &Option<usize>| port.map_or(Some(NO_KEY), |port| devices.key(port, &memory));
            let keys: Option<Vec<u32>> = ports.iter().map(key).collect();
            // Without keys it has been taken back since.
            if let Some(keys) = keys
                && regions_shown.insert(id)
            {
                let region = KeyedRegion { id, len: memory.len() as u64, address: memory.place().address(), keys };
                self.channel.push(kind::REGION, &region.encode(), None);
            }
        }
    }

    /// Returns whether a device refused what the peer asked for by one of the queue pairs.
    pub(super) fn was_refused(&self) -> bool {
        match &self.stage {
            Stage::Expected => false,
            Stage::Reading { pairs, .. } => pairs.iter().flatten().any(D::has_failed),
        }
    }

    /// Returns whether it waits for a word that is not raised yet.
    pub(super) fn watches(&self) -> bool {
        matches!(&self.stage, Stage::Reading { watched, told, .. } if watched > told)
    }

    /// Tells of the word, if it waits for it, as soon as there is room: `flush` sends what waits, now and whenever
    /// the socket takes more.
    pub(super) fn tell(
        &mut self,
        word: u64,
        flush: impl Fn(&mut Channel) -> Result<(), ChannelError>,
    ) -> Result<(), ChannelError> {
        while let Stage::Reading { watched, told, .. } = &mut self.stage
            && *watched > *told
            && word > *told
        {
            let is_full = self.channel.unsent() >= UNSENT_MAX;
            if !is_full {
                *told = word;
                self.channel.push(kind::WORD, &word.to_le_bytes(), None);
            }
            flush(&mut self.channel)?;
            if self.channel.unsent() >= UNSENT_MAX {
                // It is told of the last word when its socket takes more, which is waited for.
                break;
            }
        }
        Ok(())
    }
}

/// Makes a queue pair for each that is offered, on the port that fits it best, where that can be now. Errors: no
/// port fits any.
fn serve<D: OwnerPorts>(devices: &D, offer: &Queues) -> Result<(Vec<RailQueues>, Stage<D::Pair>), ExchangeError> {
    let (mut answer, mut pairs, mut ports) = (Vec::new(), Vec::new(), Vec::new());
    let mut reason = None;
    for rail in &offer.rails {
        let taken: Vec<usize> = ports.iter().copied().flatten().collect();
        let own = devices.best_port(&rail.address, &taken).map_err(|none| reason = Some(none)).ok();
        let (queues, made) = serve_rail(devices, own, rail);
        answer.push(queues);
        pairs.push(made);
        ports.push(own);
    }
    if let Some(reason) = reason.filter(|_| ports.iter().all(Option::is_none)) {
        return Err(reason);
    }
    Ok((answer, Stage::Reading { pairs, ports, regions_shown: BTreeSet::new(), watched: 0, told: 0 }))
}

/// Makes queue pairs on port `own` for those of a rail of the reader's; none where no port fits that.
fn serve_rail<D: OwnerPorts>(devices: &D, own: Option<usize>, reader: &RailQueues) -> (RailQueues, Vec<D::Pair>) {
    let none = || (RailQueues { address: reader.address.clone(), queues: Vec::new() }, Vec::new());
    own.map_or_else(none, |own| devices.serve(own, reader))
}

#[cfg(test)]
mod tests {
    use super::super::pretended::Pretended;
    use super::super::wire::{Attempt, GidKind};
    use super::*;
    use crate::agent::config::AgentConfig;
    use crate::net::socket::Socket;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    const LAYOUT: u64 = 0xBA70;

    fn agent() -> AgentShared {
        let mut config = AgentConfig::in_process(WorkerId(0), Incarnation(1), "owner".to_owned(), 1);
        config.fingerprint = LAYOUT;
        AgentShared::without_threads(config, None, Box::new(|_| true))
    }

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32 + 1).to_le_bytes(), [kind].as_slice(), body].concat()
    }

    fn offer(fingerprint: u64) -> Queues {
        let address =
            PortAddress { kind: GidKind::RoceV2, gid: [1; 16], lid: 0, mtu: 5, reads: 16, reads_of_peers: 16 };
        Queues { fingerprint, rails: vec![RailQueues { address, queues: vec![(17, 4)] }] }
    }

    fn ends() -> (OwnerConnection<Pretended>, UnixStream) {
        let (own, peer) = UnixStream::pair().expect("there are descriptors");
        let channel = Channel::new(Socket::plain(own.into()), false);
        (OwnerConnection::new(channel, WorkerId(1), Incarnation(1)), peer)
    }

    /// What is refused of a peer that sends `bytes` to an owner without devices.
    #[track_caller]
    fn check(bytes: &[u8], expect: &str) {
        let (mut owner, mut peer) = ends();
        peer.write_all(bytes).expect("it is open");
        match owner.receive(&agent(), &Pretended::new(0)) {
            Err(error @ (ChannelError::Wire(_) | ChannelError::Refused(Refusal::Protocol, _))) => {
                assert!(error.to_string().contains(expect), "{error}");
            }
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
        check(&frame(kind::QUEUES, &offer(LAYOUT).encode()), "there is no rail");
    }

    #[test]
    fn a_rail_of_a_kind_that_is_not_here_takes_no_other_along() {
        let (mut owner, mut peer) = ends();
        let mut offer = offer(LAYOUT);
        let mut other = offer.rails[0].clone();
        other.address.kind = GidKind::InfiniBand;
        offer.rails.insert(0, other.clone());
        peer.write_all(&frame(kind::QUEUES, &offer.encode())).expect("it is open");
        owner.receive(&agent(), &Pretended::new(1)).expect("one fits");
        assert!(owner.channel.flush().is_ok_and(|all| all));
        offer.rails[0].queues.clear();
        let mut answer = vec![0; frame(kind::QUEUES, &offer.encode()).len()];
        peer.read_exact(&mut answer).expect("it is answered");
        assert_eq!(Queues::decode(&answer[5..]), Ok(offer.clone()));
        // Nothing fits any.
        offer.rails = vec![other];
        check(&frame(kind::QUEUES, &offer.encode()), "there is no rail");
    }

    /// The socket takes at once all that waited at it, though nothing would have told that it takes more.
    #[test]
    fn the_last_word_is_told_once_there_is_room() {
        let ((mut owner, mut peer), devices) = (ends(), Pretended::new(1));
        peer.write_all(&frame(kind::QUEUES, &offer(LAYOUT).encode())).expect("it is open");
        peer.write_all(&frame(kind::WATCH, &u64::MAX.to_le_bytes())).expect("it is open");
        while !owner.watches() {
            owner.receive(&agent(), &devices).expect("it is well asked");
        }
        rustix::io::ioctl_fionbio(owner.socket(), true).expect("it is a socket");
        // Each of these small frames takes far more of it than its bytes.
        rustix::net::sockopt::set_socket_send_buffer_size(owner.socket(), 1 << 20).expect("it is a socket");
        let mut word = 0;
        let tell = |owner: &mut OwnerConnection<_>, word| {
            owner.tell(word, |channel| channel.flush().map(drop)).expect("it is open");
        };
        while owner.channel.unsent() < UNSENT_MAX {
            word += 1;
            tell(&mut owner, word);
        }
        // Room for what waits, and for more.
        peer.set_nonblocking(true).expect("it is a socket");
        let mut taken = Vec::new();
        let _ = peer.read_to_end(&mut taken);
        word += 1;
        tell(&mut owner, word);
        assert_eq!(owner.channel.unsent(), 0);
        let _ = peer.read_to_end(&mut taken);
        assert!(taken.ends_with(&frame(kind::WORD, &word.to_le_bytes())), "the last word was not told");
    }

    #[test]
    fn who_takes_no_answers_gets_no_more_of_them() {
        let ((mut owner, mut peer), agent, devices) = (ends(), agent(), Pretended::new(1));
        let offer = offer(LAYOUT);
        peer.write_all(&frame(kind::QUEUES, &offer.encode())).expect("it is open");
        assert!(owner.receive(&agent, &devices).is_ok());
        let which = Attempt { rail: 0, number: 1 };
        let again = frame(kind::RAIL, &RemadeRail { which, queues: offer.rails[0].clone() }.encode());
        let (mut asked, mut answered) = (0, 0);
        let refused = loop {
            peer.write_all(&again).expect("it is open");
            asked += again.len();
            let outcome = owner.receive(&agent, &devices);
            assert_eq!(devices.pairs(), 1, "those that there were are gone");
            if let Err(error) = outcome {
                break error;
            }
            answered += 1;
            assert!(asked < 4 * ANSWERS_MAX, "{answered} answers wait");
        };
        assert!(refused.to_string().contains("takes none of the answers"), "{refused}");
    }
}
