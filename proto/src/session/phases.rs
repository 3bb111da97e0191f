//! Bytes of what took time in an attempt.

use crate::WireError;
use crate::checks::{column, nanos};
use crate::generated as wire;
use domain::session::FromWorker;
use domain::{Epoch, Phase, PhaseKind, RequestId};
use std::time::Duration;

pub(super) fn to_wire(request: RequestId, epoch: Epoch, phases: &[Phase], left_out: u32) -> wire::Phases {
    wire::Phases {
        request: request.0,
        epoch: epoch.0,
        kind: phases.iter().map(|phase| kind_to_wire(phase.kind).into()).collect(),
        begin_ns: phases.iter().map(|phase| nanos(phase.begin)).collect(),
        took_ns: phases.iter().map(|phase| nanos(phase.took)).collect(),
        start: phases.iter().map(|phase| phase.start).collect(),
        tokens: phases.iter().map(|phase| phase.tokens).collect(),
        bytes: phases.iter().map(|phase| phase.bytes).collect(),
        layer: phases.iter().map(|phase| phase.layers.start.into()).collect(),
        layers: phases.iter().map(|phase| phase.layers.len() as u32).collect(),
        via: phases.iter().map(|phase| phase.via.clone().into_owned()).collect(),
        peer: phases.iter().map(|phase| phase.peer.clone()).collect(),
        parts: phases.iter().map(|phase| phase.parts).collect(),
        left_out,
    }
}

/// Reads a table. A phase of a kind that this release does not know is dropped: a later one may have more.
pub(super) fn from_wire(table: wire::Phases) -> Result<FromWorker, WireError> {
    let rows = table.kind.len();
    column(&table.begin_ns, rows, "Phases.begin_ns")?;
    column(&table.took_ns, rows, "Phases.took_ns")?;
    column(&table.start, rows, "Phases.start")?;
    column(&table.tokens, rows, "Phases.tokens")?;
    column(&table.bytes, rows, "Phases.bytes")?;
    column(&table.layer, rows, "Phases.layer")?;
    column(&table.layers, rows, "Phases.layers")?;
    column(&table.via, rows, "Phases.via")?;
    column(&table.peer, rows, "Phases.peer")?;
    column(&table.parts, rows, "Phases.parts")?;
    let mut phases = Vec::with_capacity(rows);
    for (row, (via, peer)) in table.via.into_iter().zip(table.peer).enumerate() {
        let Some(kind) = kind_from_wire(table.kind[row])? else { continue };
        let (first, layers) = (u16::try_from(table.layer[row]).ok(), u16::try_from(table.layers[row]).ok());
        let layers = first.zip(layers).and_then(|(first, layers)| Some(first..first.checked_add(layers)?));
        phases.push(Phase {
            kind,
            begin: Duration::from_nanos(table.begin_ns[row]),
            took: Duration::from_nanos(table.took_ns[row]),
            start: table.start[row],
            tokens: table.tokens[row],
            bytes: table.bytes[row],
            layers: layers.ok_or_else(|| WireError::invalid("Phases.layers", "there are no such layers"))?,
            via: via.into(),
            peer,
            parts: table.parts[row],
        });
    }
    let (request, epoch) = (RequestId(table.request), Epoch(table.epoch));
    Ok(FromWorker::Phases { request, epoch, phases, left_out: table.left_out })
}

fn kind_to_wire(kind: PhaseKind) -> wire::PhaseKind {
    match kind {
        PhaseKind::Queue => wire::PhaseKind::Queue,
        PhaseKind::Load => wire::PhaseKind::Load,
        PhaseKind::Chunk => wire::PhaseKind::Chunk,
        PhaseKind::Transfer => wire::PhaseKind::Transfer,
        PhaseKind::Decode => wire::PhaseKind::Decode,
    }
}

fn kind_from_wire(kind: i32) -> Result<Option<PhaseKind>, WireError> {
    Ok(Some(match wire::PhaseKind::try_from(kind) {
        Ok(wire::PhaseKind::Queue) => PhaseKind::Queue,
        Ok(wire::PhaseKind::Load) => PhaseKind::Load,
        Ok(wire::PhaseKind::Chunk) => PhaseKind::Chunk,
        Ok(wire::PhaseKind::Transfer) => PhaseKind::Transfer,
        Ok(wire::PhaseKind::Decode) => PhaseKind::Decode,
        Ok(wire::PhaseKind::Unspecified) => return Err(WireError::Missing { field: "Phases.kind" }),
        Err(_) => return Ok(None),
    }))
}
