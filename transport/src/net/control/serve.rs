//! The serving end of a connection: a stranger that says hello, proves itself, and is served as a peer.

use super::admission_error::AdmissionError;
use super::channel::{Channel, ChannelError};
use super::hello::{self, Exported, Identity, Introduction, Proof, Purpose, Region, RegionPlace, Transcript, kind};
use super::sockets::prepare_tcp;
use crate::agent::counts::Counts;
use crate::agent::event::AgentEvent;
use crate::agent::peers::MESSAGE_BYTES_MAX;
use crate::agent::shared::AgentShared;
use crate::lanes::Lane;
use crate::net::HELLO_BYTES_MAX;
use crate::regions::RegionId;
use crate::wire_error::WireError;
use domain::{Incarnation, Secret, Secrets, WorkerId};
use kv_memory::{DeviceFile, Place};
use rustix::net::sockopt;
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};

/// An incoming connection, as far as its other end is known.
pub(super) struct Serving(Stage);

enum Stage {
    /// It has said nothing.
    Silent,
    /// It knocked, by this secret, and was challenged.
    Greeted { transcript: Transcript, secret: Secret },
    Peer {
        peer: WorkerId,
        incarnation: Incarnation,
        regions_shown: BTreeSet<RegionId>,
        /// Whether it maps memory of devices; else it maps files.
        maps_devices: bool,
    },
}

/// What becomes of the connection.
pub(super) enum Next {
    Stay,
    /// It knocked. It has not proven itself yet.
    Greeted,
    /// It is a peer now.
    Admitted,
    /// It is a peer's, for a lane: not this thread's business.
    Lane {
        purpose: Purpose,
        peer: WorkerId,
        incarnation: Incarnation,
    },
}

impl Serving {
    pub(super) fn new() -> Self {
        Self(Stage::Silent)
    }

    /// Returns whether it is an earlier life of the peer.
    pub(super) fn is_before(&self, id: WorkerId, life: Incarnation) -> bool {
        matches!(self.0, Stage::Peer { peer, incarnation, .. } if peer == id && incarnation < life)
    }

    /// Handles what came. `has_room`: one more peer may be served.
    pub(super) fn handle(
        &mut self,
        agent: &AgentShared,
        channel: &mut Channel,
        has_room: bool,
    ) -> Result<Next, ChannelError> {
        let mut next = Next::Stay;
        loop {
            let body_max = if matches!(self.0, Stage::Peer { .. }) { MESSAGE_BYTES_MAX } else { HELLO_BYTES_MAX };
            let Some(frame) = channel.next(body_max)? else { return Ok(next) };
            match (&mut self.0, frame.kind) {
                (Stage::Silent, kind::HELLO) => {
                    self.0 = greet(agent, channel, &frame.body)?;
                    next = Next::Greeted;
                }
                (Stage::Greeted { transcript, secret }, kind::PROOF) => {
                    let introduction = admit(agent, channel, transcript, secret, &frame.body, has_room)?;
                    let (peer, incarnation) = (introduction.from.id, introduction.from.incarnation);
                    let purpose = introduction.purpose;
                    agent.introduce(introduction.from);
                    let maps_devices = purpose == Purpose::Devices;
                    self.0 = Stage::Peer { peer, incarnation, regions_shown: BTreeSet::new(), maps_devices };
                    if let Purpose::Bytes | Purpose::Queues = purpose {
                        channel.push(kind::READY, &[], None);
                        return Ok(Next::Lane { purpose, peer, incarnation });
                    }
                    self.show_regions(agent, channel)?;
                    if channel.is_unix()
                        && let Some(file) = agent.progress.show()
                    {
                        channel.push(kind::PROGRESS, &[], Some(to_send(file)?));
                    }
                    channel.push(kind::READY, &[], None);
                    next = Next::Admitted;
                }
                (Stage::Peer { peer, .. }, kind::MESSAGE) => {
                    let message = AgentEvent::Message { from: *peer, bytes: frame.body };
                    if !agent.deliver(message) {
                        Counts::add(&agent.counts.dropped_messages);
                    }
                }
                (_, other) => return Err(WireError::OutOfPlace(other).into()),
            }
        }
    }

    /// Tells a peer of the regions that it does not know yet, and of those that are no more. An error: no
    /// descriptor is left.
    pub(super) fn show_regions(&mut self, agent: &AgentShared, channel: &mut Channel) -> Result<(), ChannelError> {
        let Stage::Peer { regions_shown, maps_devices, .. } = &mut self.0 else { return Ok(()) };
        let maps = |devices: bool| channel.is_unix() && *maps_devices == devices;
        let (maps_devices, maps_files) = (maps(true), maps(false));
        let news = agent.regions_news(regions_shown);
        for id in news.withdrawn {
            channel.push(kind::WITHDRAWN, &id.0.to_le_bytes(), None);
        }
        for (id, memory) in news.new {
            let (file, place) = match memory.place() {
                Place::Device(device) => match device.exports.file.filter(|_| maps_devices) {
                    Some(DeviceFile { file, bytes, offset }) => {
                        let exported = Exported { kind: device.kind.number(), offset, bytes };
                        (Some(to_send(file)?), RegionPlace::Exported(device.id, exported))
                    }
                    None => (None, RegionPlace::Device(device.id)),
                },
                Place::Host(_) => match memory.file().filter(|_| maps_files) {
                    Some((file, offset)) => (Some(to_send(file)?), RegionPlace::File(offset)),
                    None => (None, RegionPlace::Host),
                },
            };
            let region = Region { id, len: memory.len() as u64, place };
            channel.push(kind::REGION, &region.encode(), file);
        }
        Ok(())
    }
}

/// A descriptor for a frame that may have to wait.
fn to_send(file: BorrowedFd<'_>) -> Result<OwnedFd, ChannelError> {
    file.try_clone_to_owned().map_err(ChannelError::Failed)
}

/// Checks a hello, and answers it with a challenge, which tells nothing of this agent.
fn greet(agent: &AgentShared, channel: &mut Channel, message: &[u8]) -> Result<Stage, ChannelError> {
    let secrets = &agent.config.secrets;
    let nonce = crate::random::bytes().map_err(|error| ChannelError::Failed(error.into()))?;
    let challenge = hello::opening(nonce);
    if let Err(error) = hello::check_opening(hello::content(message), hello::VERSIONS) {
        if let WireError::Versions { .. } = error {
            // Of any version, the other end tells by it what this one speaks.
            channel.push(kind::CHALLENGE, &challenge, None);
        }
        return Err(error.into());
    }
    // Without a secret, at least no other user of the host.
    if secrets.is_empty() && channel.is_unix() {
        let peer = sockopt::socket_peercred(channel.socket()).map_err(|error| ChannelError::Failed(error.into()))?;
        if peer.uid != rustix::process::getuid() {
            return Err(AdmissionError::OtherUser.into());
        }
    }
    let mut transcript = Transcript::over(channel.binding().map_err(ChannelError::Failed)?);
    let (_, secret) = transcript.check(secrets, Proof::Knock, message).ok_or(AdmissionError::OtherSecret)?;
    transcript.add(&challenge);
    channel.push(kind::CHALLENGE, &challenge, None);
    Ok(Stage::Greeted { transcript, secret })
}

/// Checks the proof of who connected, and only then who it is and whom it means; says who this agent is.
fn admit(
    agent: &AgentShared,
    channel: &mut Channel,
    transcript: &mut Transcript,
    secret: &Secret,
    message: &[u8],
    has_room: bool,
) -> Result<Introduction, ChannelError> {
    let proven = transcript.check(&Secrets::from(secret.clone()), Proof::Dialer, message);
    let (content, _) = proven.ok_or(AdmissionError::OtherSecret)?;
    channel.trust();
    if !channel.is_unix() {
        prepare_tcp(channel.socket()).map_err(ChannelError::Failed)?;
    }
    if !has_room {
        return Err(AdmissionError::Full.into());
    }
    let introduction = Introduction::decode(content)?;
    let own = Identity { who: (agent.config.id, agent.config.incarnation), fingerprint: agent.config.fingerprint };
    if introduction.fingerprint != own.fingerprint {
        let (theirs, ours) = (introduction.fingerprint, own.fingerprint);
        return Err(AdmissionError::Layout { theirs, ours }.into());
    }
    if introduction.to != own.who {
        return Err(AdmissionError::OtherWorker { own: own.who, meant: introduction.to }.into());
    }
    let from = &introduction.from;
    if agent.peers.incarnation(from.id).is_some_and(|known| known > from.incarnation) {
        return Err(AdmissionError::EarlierLife.into());
    }
    if let Some(lane) = over_unix(introduction.purpose).filter(|_| channel.is_unix())
        && !agent.config.lanes.contains(&lane)
    {
        return Err(AdmissionError::Forbidden(lane).into());
    }
    channel.push(kind::IDENTITY, &transcript.prove(secret, Proof::Listener, &own.encode()), None);
    Ok(introduction)
}

/// Returns the lane that uses the Unix socket for this purpose. `None`: no lane does.
fn over_unix(purpose: Purpose) -> Option<Lane> {
    match purpose {
        Purpose::Control => Some(Lane::Shm),
        Purpose::Devices => Some(Lane::Nvlink),
        Purpose::Bytes | Purpose::Queues => None,
    }
}
