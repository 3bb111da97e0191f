//! Who connects to this agent: from a stranger to a peer that is served.

use super::channel::{Channel, ChannelError};
use super::hello::{self, Challenge, HELLO_BYTES_MAX, Hello, Purpose, Region, kind};
use crate::counts::{Counts, Refusal};
use crate::event::AgentEvent;
use crate::memory::RegionId;
use crate::metadata::ImportError;
use crate::peers::MESSAGE_BYTES_MAX;
use crate::station::Station;
use domain::{Incarnation, WorkerId};
use rustix::net::sockopt;
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Connections whose other end is not known yet. One more is closed.
pub(super) const STRANGERS_MAX: usize = 1024;
/// How long a stranger has to say who it is.
pub(super) const STRANGER_MAX: Duration = Duration::from_secs(5);

/// What the agent knows of who connected.
pub(super) struct Serving(Stage);

enum Stage {
    Stranger,
    /// It said hello and was challenged.
    Challenged {
        hello: Box<Hello>,
        encoded: Vec<u8>,
        challenge: Vec<u8>,
    },
    Peer {
        peer: WorkerId,
        incarnation: Incarnation,
        regions_shown: BTreeSet<RegionId>,
    },
}

/// What becomes of the connection.
pub(super) enum Next {
    Stay,
    /// It is a peer now.
    Known,
    /// It is a peer's, for a lane: not this thread's business.
    Lane {
        purpose: Purpose,
        peer: WorkerId,
        incarnation: Incarnation,
    },
}

/// It does not speak as it should.
fn refuse(reason: impl Into<String>) -> ChannelError {
    ChannelError::Refused(Refusal::Protocol, reason.into())
}

/// It is somebody else than it should be.
fn turn_away(reason: impl Into<String>) -> ChannelError {
    ChannelError::Refused(Refusal::Identity, reason.into())
}

impl Serving {
    pub(super) fn new() -> Self {
        Self(Stage::Stranger)
    }

    /// Whether it is an earlier life of the peer.
    pub(super) fn is_before(&self, id: WorkerId, life: Incarnation) -> bool {
        matches!(self.0, Stage::Peer { peer, incarnation, .. } if peer == id && incarnation < life)
    }

    /// Handles what came.
    pub(super) fn handle(&mut self, station: &Station, channel: &mut Channel) -> Result<Next, ChannelError> {
        let mut next = Next::Stay;
        loop {
            let body_max = if matches!(self.0, Stage::Peer { .. }) { MESSAGE_BYTES_MAX } else { HELLO_BYTES_MAX };
            let Some(frame) = channel.next(body_max)? else { return Ok(next) };
            match (&mut self.0, frame.kind) {
                (Stage::Stranger, kind::HELLO) => self.0 = challenge(station, channel, frame.body)?,
                (Stage::Challenged { hello, encoded, challenge }, kind::PROOF) => {
                    hello::check_proof(&station.config.secret, encoded, challenge, &frame.body).map_err(turn_away)?;
                    let (peer, incarnation) = (hello.from.id, hello.from.incarnation);
                    let purpose = hello.purpose;
                    station.introduce(hello.from.clone());
                    self.0 = Stage::Peer { peer, incarnation, regions_shown: BTreeSet::new() };
                    if purpose != Purpose::Control {
                        channel.push(kind::READY, &[], None);
                        return Ok(Next::Lane { purpose, peer, incarnation });
                    }
                    self.show_regions(station, channel)?;
                    if channel.is_unix()
                        && let Some(file) = station.progress.show()
                    {
                        channel.push(kind::PROGRESS, &[], Some(to_send(file)?));
                    }
                    channel.push(kind::READY, &[], None);
                    next = Next::Known;
                }
                (Stage::Peer { peer, .. }, kind::MESSAGE) => {
                    let message = AgentEvent::Message { from: *peer, bytes: frame.body };
                    if !station.deliver(message) {
                        Counts::add(&station.counts.dropped_messages);
                    }
                }
                (_, other) => return Err(refuse(format!("a frame of kind {other} out of place"))),
            }
        }
    }

    /// Tells a peer of the regions that it does not know yet, and of those that are no more. An error: no descriptor is left.
    pub(super) fn show_regions(&mut self, station: &Station, channel: &mut Channel) -> Result<(), ChannelError> {
        let Stage::Peer { regions_shown, .. } = &mut self.0 else { return Ok(()) };
        let news = station.regions_news(regions_shown);
        for id in news.withdrawn {
            channel.push(kind::WITHDRAWN, &id.0.to_le_bytes(), None);
        }
        for (id, memory) in news.new {
            let file = memory.file().filter(|_| channel.is_unix());
            let region = Region { id, len: memory.len() as u64, offset: file.map(|(_, offset)| offset) };
            let file = file.map(|(file, _)| to_send(file)).transpose()?;
            channel.push(kind::REGION, &region.encode(), file);
        }
        Ok(())
    }
}

/// A descriptor for a frame that may have to wait.
fn to_send(file: BorrowedFd<'_>) -> Result<OwnedFd, ChannelError> {
    file.try_clone_to_owned().map_err(ChannelError::Failed)
}

/// Looks at a hello, and answers it.
fn challenge(station: &Station, channel: &mut Channel, encoded: Vec<u8>) -> Result<Stage, ChannelError> {
    let config = &station.config;
    let hello = Hello::decode(&encoded).map_err(refuse)?;
    let own = (config.id, config.incarnation);
    if hello.fingerprint != config.fingerprint {
        let (theirs, ours) = (hello.fingerprint, config.fingerprint);
        return Err(ChannelError::Refused(Refusal::Layout, ImportError::Layout { theirs, ours }.to_string()));
    }
    if hello.to != own {
        let ((id, life), (meant, meant_life)) = (own, hello.to);
        return Err(turn_away(format!("this is worker {id} in its life {life}, not {meant} in its life {meant_life}")));
    }
    if station.peers.incarnation(hello.from.id).is_some_and(|known| known > hello.from.incarnation) {
        return Err(turn_away("a later life of that worker is known"));
    }
    // Without a secret, at least no other user of the host.
    if config.secret.is_empty() && channel.is_unix() {
        let peer = sockopt::socket_peercred(channel.socket()).map_err(|error| ChannelError::Failed(error.into()))?;
        if peer.uid != rustix::process::getuid() {
            return Err(turn_away("it is another user's process, and the cluster has no secret"));
        }
    }
    let nonce = crate::random::bytes().map_err(|error| ChannelError::Failed(error.into()))?;
    let challenge = Challenge { from: own, nonce }.encode();
    channel.push(kind::CHALLENGE, &hello::answer(&config.secret, &encoded, &challenge), None);
    Ok(Stage::Challenged { hello: Box::new(hello), encoded, challenge })
}
