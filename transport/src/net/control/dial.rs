//! Connecting to a peer: every lane that works, of which the best is kept. Runs on a thread of its own and may block.

use super::channel::Channel;
use super::connect_error::ConnectError;
use super::reach::{self, Connected, Patience};
use super::sockets::ANSWER_MAX;
use crate::agent::link::Link;
use crate::agent::peers::KnownPeer;
use crate::agent::shared::AgentShared;
use crate::lanes::{Lane, LaneStatus, PassedOver, WhyPassed};
use crate::speed::ranking;
use std::sync::Arc;
use std::time::Duration;

/// Where a peer is reached already, how long each step of reaching it over another lane may take, for the sake of
/// comparing.
const COMPARING_MAX: Duration = Duration::from_millis(200);

/// A peer that was reached.
pub(crate) struct Dialled {
    pub(crate) link: Arc<Link>,
    pub(crate) status: LaneStatus,
    /// Non-blocking, to be watched from now on.
    pub(crate) channel: Channel,
}

/// Connects to `peer` by the best of the lanes that work, each of which is reached and probed where there are
/// several. `taken`: the lane by which it is reached already, where only faster ones are wanted. Errors: why none
/// does, for people.
pub(crate) fn dial(agent: &AgentShared, peer: &KnownPeer, taken: Option<Lane>) -> Result<Dialled, String> {
    let config = &agent.config;
    let mut passed_over: Vec<PassedOver> = Vec::new();
    let mut reached: Vec<Connected> = Vec::new();
    let begun = Patience::new(ANSWER_MAX);
    let patience = |reached: &[Connected]| {
        let is_reached = taken.is_some() || !reached.is_empty();
        if is_reached { begun.with_steps(COMPARING_MAX) } else { begun }
    };
    for (lane, missing) in Lane::all() {
        if config.require.is_some_and(|required| lane > required) || taken.is_some_and(|taken| lane >= taken) {
            break;
        }
        let passed = |why, reason: &str| Err(PassedOver { lane, why, reason: reason.to_owned() });
        let not_reached = |unreached: ConnectError| {
            let why = unreached.why_passed();
            PassedOver { lane, why, reason: unreached.count(&agent.counts) }
        };
        let attempt = match (lane, missing) {
            (_, Some(missing)) => passed(WhyPassed::Absent, missing),
            (lane, None) if !config.lanes.contains(&lane) => {
                passed(WhyPassed::Forbidden, "forbidden by transport.lanes")
            }
            (Lane::Shm, None) => reach::shm(agent, peer).map_err(not_reached),
            (Lane::Rdma, None) => reach::rdma(agent, peer, patience(&reached)).map_err(not_reached),
            (Lane::Tcp, None) => reach::tcp(agent, peer, patience(&reached)).map_err(not_reached),
            (Lane::Local, None) if peer.address.process == agent.hub.process() => {
                passed(WhyPassed::Elsewhere, "it is not in this process any more")
            }
            (Lane::Local | Lane::CudaIpc, None) => passed(WhyPassed::Elsewhere, "other process"),
        };
        match attempt {
            Ok(lane) => reached.push(lane),
            Err(passed) => passed_over.push(passed),
        }
    }
    if !reached.is_empty() {
        let probes: Vec<_> = reached.iter().map(|(_, probe, _)| *probe).collect();
        let (link, probe, channel) = reached.swap_remove(ranking::best(&probes));
        let lane = link.lane();
        let expected_bytes_per_s = agent.expected(&link);
        link.speed().promise(expected_bytes_per_s);
        link.speed().probed(probe);
        for (other, ..) in reached {
            let reason = "slower, when both were probed".to_owned();
            passed_over.push(PassedOver { lane: other.lane(), why: WhyPassed::Slower, reason });
            let_go(agent, &other);
        }
        passed_over.retain(|passed| passed.lane < lane);
        passed_over.sort_by_key(|passed| passed.lane);
        rustix::io::ioctl_fionbio(channel.socket(), true).map_err(|error| error.to_string())?;
        let tls = lane == Lane::Tcp && config.tls.is_some();
        let encoding = agent.encoding_over(lane);
        let status =
            LaneStatus { peer: peer.name.clone(), lane, tls, encoding, probe, expected_bytes_per_s, passed_over };
        return Ok(Dialled { link, status, channel });
    }
    let reasons = passed_over.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    Err(match config.require {
        Some(required) => format!(
            "transport.require = \"{required}\", but no lane at least as fast reaches worker {} ({reasons})",
            peer.name
        ),
        None => format!("no lane reaches worker {} ({reasons})", peer.name),
    })
}

/// A link that was made is not taken.
pub(super) fn let_go(agent: &AgentShared, link: &Link) {
    link.leave();
    if let Some(streams) = &agent.streams {
        streams.lane_queue().links_changed();
    }
    if let Ok(verbs) = &agent.verbs {
        verbs.lane_queue().links_changed();
    }
}
