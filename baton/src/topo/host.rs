//! The lanes of this host, measured now.

use crate::commands::OwnerProcess;
use crate::run::draw_secret;
use bench_transfer::Trust;
use domain::Secret;
use serde::Serialize;
use std::error::Error;

/// Bytes of the memory that is read.
const POOL_BYTES: u64 = 4 << 20;

/// A lane of this host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct HostLane {
    pub(super) lane: &'static str,
    /// Whether it is the one that two processes of this host take.
    pub(super) taken: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gb_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency_us: Option<f64>,
    /// Why it cannot be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// Reads from another process over each lane. Errors: that does not start, or is not reached.
pub(super) fn measure() -> Result<Vec<HostLane>, Box<dyn Error>> {
    let secret = draw_secret()?;
    let (_owner, place) = OwnerProcess::spawn(POOL_BYTES, &[], &secret)?;
    let trust = Trust { secrets: Secret::new(secret).into(), tls: None };
    let lane = |found: bench_transfer::LaneOfHost| {
        let (cost, reason) = match found.cost {
            Ok(cost) => (Some(cost), None),
            Err(reason) => (None, Some(reason.to_string())),
        };
        HostLane {
            lane: found.lane.name(),
            taken: found.is_taken,
            gb_per_s: cost.map(|cost| cost.bytes_per_s / 1e9),
            latency_us: cost.map(|cost| cost.latency_s * 1e6),
            reason,
        }
    };
    Ok(bench_transfer::lanes(&place, &trust)?.into_iter().map(lane).collect())
}
