//! The lanes of this host, one by one: what each costs between two processes, or why it cannot be had.

use crate::ends::{LIFE, OWNER, PATIENCE, READER, config, nowhere, own_beside};
use crate::error::BenchError;
use crate::settings::{OwnerAddress, Trust};
use domain::ProgressWord;
use domain::session::{PeerAddress, PeerInfo, Role};
use std::sync::mpsc::sync_channel;
use transport::{Agent, AgentConfig, AgentEvent, Hub, Lane, LaneStatus, ListenConfig, PassedOver, Probe, WhyPassed};

/// Bytes of the memory that is read within this process.
const LOCAL_BYTES: usize = 1 << 20;

/// A lane of this host.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneOfHost {
    /// The lane that was tried.
    pub lane: Lane,
    /// What was measured, or why it cannot be had.
    pub cost: Result<Probe, NoLane>,
    /// Whether it is the one that two processes of this host take.
    pub is_taken: bool,
}

/// Why a lane cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLane {
    /// The agents passed it over, for this reason.
    #[error("{0}")]
    PassedOver(String),
}

/// Measures each lane to `owner`, another process of this host which knows what `trust` says; `local` within this
/// one. Errors: of the system, or no lane reaches the owner.
pub fn lanes(owner: &OwnerAddress, trust: &Trust) -> Result<Vec<LaneOfHost>, BenchError> {
    let across = Lane::all().filter(|&lane| lane != Lane::Local).collect();
    let taken = connect(&Hub::new(), across, owner, trust)?.lane;
    Lane::all()
        .map(|lane| {
            let cost = match lane {
                Lane::Local => Ok(within_this_process(trust)?.probe),
                Lane::Nvlink | Lane::Shm | Lane::Rdma | Lane::Tcp => {
                    // With `tcp` beside it the reason is told if it cannot be had.
                    let LaneStatus { lane: got, probe, passed_over, .. } =
                        connect(&Hub::new(), vec![lane, Lane::Tcp], owner, trust)?;
                    match passed_over.into_iter().find(|passed| passed.lane == lane) {
                        _ if got == lane => Ok(probe),
                        // It can be had, and a busy host made it slower than `tcp`.
                        Some(PassedOver { why: WhyPassed::Slower, .. }) => {
                            Ok(connect(&Hub::new(), vec![lane], owner, trust)?.probe)
                        }
                        passed => Err(NoLane::PassedOver(passed.map(|passed| passed.reason).unwrap_or_default())),
                    }
                }
            };
            Ok(LaneOfHost { lane, cost, is_taken: lane == taken })
        })
        .collect()
}

fn within_this_process(trust: &Trust) -> Result<LaneStatus, BenchError> {
    let hub = Hub::new();
    let owner = own_beside(&hub, LOCAL_BYTES, nowhere(), trust)?;
    connect(&hub, vec![Lane::Local], &owner.place(), trust)
}

/// Connects the owner by the best of `lanes`.
fn connect(hub: &Hub, lanes: Vec<Lane>, owner: &OwnerAddress, trust: &Trust) -> Result<LaneStatus, BenchError> {
    let (sender, events) = sync_channel(4);
    let listen = ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() };
    let config = AgentConfig { lanes, ..config(READER, listen, trust) };
    let sink = Box::new(move |event| sender.try_send(event).is_ok());
    let agent = Agent::start(hub, config, ProgressWord::new(), sink)?;
    let OwnerAddress { process, unix, tcp } = owner.clone();
    let address = PeerAddress { process, unix, tcp };
    let (name, role) = ("the other process".to_owned(), Role::Prefill);
    agent.introduce(PeerInfo { id: OWNER, incarnation: LIFE, name, role, address });
    agent.connect(OWNER);
    match events.recv_timeout(PATIENCE) {
        Ok(AgentEvent::Connected { status, .. }) => Ok(status),
        Ok(AgentEvent::Lost { reason, .. }) => Err(BenchError::Owner(format!("is not reached: {reason}"))),
        other => Err(BenchError::Owner(format!("is not reached: {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Secret;

    #[test]
    fn every_lane_has_a_cost_or_a_reason() {
        let listen = ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() };
        let trust = Trust { secrets: Secret::new("of this test").into(), tls: None };
        let owner = crate::own(1 << 20, listen, &trust);
        let place = owner.as_ref().expect("it starts").place();
        let found = lanes(&place, &trust).expect("the owner is reached");
        assert_eq!(found.len(), Lane::all().count());
        for LaneOfHost { lane, cost, .. } in &found {
            match (lane, cost) {
                (Lane::Local | Lane::Shm | Lane::Tcp, Ok(cost)) => {
                    assert!(cost.bytes_per_s > 0.0 && cost.latency_s > 0.0, "{lane}: {cost:?}");
                }
                (Lane::Nvlink | Lane::Rdma, Err(reason)) => assert!(!reason.to_string().is_empty()),
                // Where there is a device.
                (Lane::Rdma, Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(found.iter().filter(|found| found.is_taken).count(), 1);
    }
}
