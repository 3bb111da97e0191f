//! What took time in a request, as operators see it: what the router did, and what its workers told.

use crate::record::{Measured, Record};
use domain::{Phase, PhaseKind, Time};
use proto::admin as wire;

/// Returns the phases of a request, in the order in which they began.
pub(super) fn phases(record: &Record) -> Vec<wire::Phase> {
    let own = |kind: wire::PhaseKind, begin: Time, end: Time| wire::Phase {
        kind: kind.into(),
        begin_ms: ms(record.arrived, begin),
        ms: ms(begin, end),
        parts: 1,
        ..wire::Phase::default()
    };
    let moment = |kind, at| own(kind, at, at);
    let mut phases: Vec<wire::Phase> = [
        record.tokenized.map(|(begin, end)| own(wire::PhaseKind::Tokenize, begin, end)),
        record.submitted.map(|submitted| own(wire::PhaseKind::Queue, record.queued, submitted)),
        record.first.map(|(at, _)| moment(wire::PhaseKind::FirstToken, at)),
        record.ended.map(|(at, _)| moment(wire::PhaseKind::End, at)),
    ]
    .into_iter()
    .flatten()
    .collect();
    phases.extend(record.measured.iter().map(|measured| of_worker(measured, record.arrived)));
    phases.sort_by(|one, other| one.begin_ms.total_cmp(&other.begin_ms));
    phases
}

/// Returns milliseconds between two times.
pub(super) fn ms(from: Time, to: Time) -> f64 {
    to.since(from).as_secs_f64() * 1e3
}

fn of_worker(measured: &Measured, arrived: Time) -> wire::Phase {
    let Measured { since, worker, epoch, phase } = measured;
    let Phase { kind, begin, took, start, tokens, bytes, layers, via, peer, parts } = phase;
    let (kind, is_load) = match kind {
        PhaseKind::Queue => (wire::PhaseKind::Queue, false),
        PhaseKind::Load => (wire::PhaseKind::Load, true),
        PhaseKind::Chunk => (wire::PhaseKind::Chunk, false),
        PhaseKind::Transfer => (wire::PhaseKind::Transfer, false),
        PhaseKind::Decode => (wire::PhaseKind::Decode, false),
    };
    let (lane, tier) = if is_load { ("", &**via) } else { (&**via, "") };
    wire::Phase {
        kind: kind.into(),
        worker_name: worker.to_string(),
        epoch: epoch.0,
        begin_ms: ms(arrived, *since) + begin.as_secs_f64() * 1e3,
        ms: took.as_secs_f64() * 1e3,
        start: *start,
        tokens: *tokens,
        bytes: *bytes,
        layer: layers.start.into(),
        layers: layers.len() as u32,
        lane: lane.to_owned(),
        tier: tier.to_owned(),
        peer_name: peer.clone(),
        parts: *parts,
    }
}
