//! Connecting to a peer: every lane that works, of which the best is kept. Runs on a thread of its own and may block.

use super::channel::Channel;
use super::connect::{self, ConnectedLink, Patience};
use super::connect_error::{ConnectError, DialError};
use super::sockets::ANSWER_MAX;
use crate::agent::known_peer::KnownPeer;
use crate::agent::link::Link;
use crate::agent::shared::AgentShared;
use crate::lanes::{Lane, LaneStatus, PassedOver, WhyPassed};
use crate::speed::ranking;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Where a peer is reached already, how long each step of reaching it over another lane may take, for the sake of
/// comparing.
const COMPARING_MAX: Duration = Duration::from_millis(200);

/// A peer that was connected over the best lane.
pub(crate) struct Dialled {
    pub(crate) link: Arc<Link>,
    pub(crate) status: LaneStatus,
    /// Non-blocking, to be watched from now on.
    pub(crate) channel: Channel,
}

/// Connects `peer` over every lane that works, measures them if there are several, and keeps the best. `taken`: the
/// lane that the peer is read over already, where only faster ones are wanted. Errors: no lane works, and why.
pub(crate) fn dial(agent: &AgentShared, peer: &KnownPeer, taken: Option<Lane>) -> Result<Dialled, DialError> {
    let config = &agent.config;
    let mut passed_over: Vec<PassedOver> = Vec::new();
    let mut connected: Vec<ConnectedLink> = Vec::new();
    let begun = Patience::new(ANSWER_MAX);
    for lane in Lane::all() {
        if config.require.is_some_and(|required| lane > required) || taken.is_some_and(|taken| lane >= taken) {
            break;
        }
        let is_connected = taken.is_some() || !connected.is_empty();
        let patience = if is_connected { begun.with_steps(COMPARING_MAX) } else { begun };
        match connect(agent, peer, lane, patience) {
            Ok(link) => connected.push(link),
            Err(passed) => passed_over.push(passed),
        }
    }
    if connected.is_empty() {
        let peer = peer.name.clone();
        return Err(match config.require {
            Some(required) => DialError::NoRequiredLane { required, peer, passed_over },
            None => DialError::NoLane { peer, passed_over },
        });
    }
    keep_best(agent, peer, connected, passed_over)
}

/// Connects a peer over one lane. Errors: why the lane is passed over. What the peer does wrong is counted.
fn connect(agent: &AgentShared, peer: &KnownPeer, lane: Lane, patience: Patience) -> Result<ConnectedLink, PassedOver> {
    let passed = |why, reason: &str| PassedOver { lane, why, reason: reason.to_owned() };
    if !agent.config.lanes.contains(&lane) {
        return Err(passed(WhyPassed::Forbidden, "forbidden by transport.lanes"));
    }
    let connected = match lane {
        Lane::Nvlink => connect::nvlink(agent, peer),
        Lane::Shm => connect::shm(agent, peer),
        Lane::Rdma => connect::rdma(agent, peer, patience),
        Lane::Tcp => connect::tcp(agent, peer, patience),
        Lane::Local if peer.address.process == agent.hub.process() => {
            return Err(passed(WhyPassed::Elsewhere, "it is not in this process any more"));
        }
        Lane::Local => return Err(passed(WhyPassed::Elsewhere, "other process")),
    };
    connected.map_err(|error: ConnectError| {
        let why = error.why_passed();
        passed(why, &error.count(&agent.counts).to_string())
    })
}

/// Keeps the best of the links, and ends the others.
fn keep_best(
    agent: &AgentShared,
    peer: &KnownPeer,
    mut connected: Vec<ConnectedLink>,
    mut passed_over: Vec<PassedOver>,
) -> Result<Dialled, DialError> {
    let probes: Vec<_> = connected.iter().map(|connected| connected.probe).collect();
    let ConnectedLink { link, probe, channel } = connected.swap_remove(ranking::best(&probes));
    let lane = link.lane();
    let expected_bytes_per_s = agent.expected(&link);
    link.speed().promise(expected_bytes_per_s);
    link.speed().probed(probe);
    for ConnectedLink { link: other, .. } in connected {
        let reason = "slower, when both were probed".to_owned();
        passed_over.push(PassedOver { lane: other.lane(), why: WhyPassed::Slower, reason });
        agent.discard(&other);
    }
    passed_over.retain(|passed| passed.lane < lane);
    passed_over.sort_by_key(|passed| passed.lane);
    rustix::io::ioctl_fionbio(channel.socket(), true).map_err(io::Error::from)?;
    let tls = lane == Lane::Tcp && agent.config.tls.is_some();
    let encoding = agent.encoding_over(lane);
    let (peer, staging) = (peer.name.clone(), agent.staging(&link));
    let status = LaneStatus { peer, lane, tls, encoding, staging, probe, expected_bytes_per_s, passed_over };
    Ok(Dialled { link, status, channel })
}
