//! Bytes of the messages between the owner of blocks and their reader.

use crate::WireError;
use crate::checks::{choice, column, hashes_from_bytes, hashes_to_bytes, nanos, not_empty, required};
use crate::generated as wire;
use crate::generated::peer_message::Body;
use domain::handoff::{Ask, Offer, OfferedGroup, PeerBody, PeerMessage};
use domain::{BlockId, Epoch, Generation, Incarnation, LeaseId, RequestId, StepId, Tenant, WorkerId};
use prost::Message;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Encodes a message. Durations saturate at about 584 years.
pub fn encode(message: &PeerMessage) -> Vec<u8> {
    wire::PeerMessage {
        from: message.from.0,
        from_incarnation: message.from_incarnation.0,
        to_incarnation: message.to_incarnation.map(|incarnation| incarnation.0),
        body: Some(body_to_wire(&message.body)),
    }
    .encode_to_vec()
}

/// Decodes a message. Errors: [`WireError`], on the first field that is missing or invalid.
pub fn decode(bytes: &[u8]) -> Result<PeerMessage, WireError> {
    let message = wire::PeerMessage::decode(bytes)?;
    Ok(PeerMessage {
        from: WorkerId(message.from),
        from_incarnation: Incarnation(message.from_incarnation),
        to_incarnation: message.to_incarnation.map(Incarnation),
        body: body_from_wire(required(message.body, "PeerMessage.body")?)?,
    })
}

fn body_to_wire(body: &PeerBody) -> Body {
    match body {
        PeerBody::Ask(Ask { request, epoch, lease, wait, tenant, chain }) => Body::Ask(wire::Ask {
            request: request.0,
            epoch: epoch.0,
            lease_ns: nanos(*lease),
            wait_ns: nanos(*wait),
            tenant: tenant.0,
            chain: hashes_to_bytes(chain),
        }),
        PeerBody::Decline { request, epoch } => Body::Decline(wire::Decline { request: request.0, epoch: epoch.0 }),
        PeerBody::Expect { request, epoch } => Body::Expect(wire::Expect { request: request.0, epoch: epoch.0 }),
        PeerBody::Queued { request, epoch } => Body::Queued(wire::Queued { request: request.0, epoch: epoch.0 }),
        PeerBody::Offer(offer) => Body::Offer(offer_to_wire(offer)),
        PeerBody::Written { lease, step, tokens } => {
            Body::Written(wire::Written { lease: lease.0, step: step.0, tokens: *tokens })
        }
        PeerBody::Complete { lease, missing, first } => Body::Complete(wire::Complete {
            lease: lease.0,
            missing: missing.clone(),
            choice: first.iter().map(|(choice, _)| choice.0.into()).collect(),
            token: first.iter().map(|(_, token)| *token).collect(),
        }),
        PeerBody::Withdraw { lease } => Body::Withdraw(lease.0),
        PeerBody::Renew { lease, ticks } => Body::Renew(wire::Renew { lease: lease.0, ticks: *ticks }),
        PeerBody::Release { lease } => Body::Release(lease.0),
        PeerBody::Released { lease, valid } => Body::Released(wire::Released { lease: lease.0, valid: *valid }),
        PeerBody::ReleaseAck { lease } => Body::ReleaseAck(lease.0),
    }
}

fn body_from_wire(body: Body) -> Result<PeerBody, WireError> {
    Ok(match body {
        Body::Ask(wire::Ask { request, epoch, lease_ns, wait_ns, tenant, chain }) => {
            not_empty(&chain, "Ask.chain")?;
            PeerBody::Ask(Ask {
                request: RequestId(request),
                epoch: Epoch(epoch),
                lease: Duration::from_nanos(lease_ns),
                wait: Duration::from_nanos(wait_ns),
                tenant: Tenant(tenant),
                chain: hashes_from_bytes(&chain, "Ask.chain")?,
            })
        }
        Body::Decline(wire::Decline { request, epoch }) => {
            PeerBody::Decline { request: RequestId(request), epoch: Epoch(epoch) }
        }
        Body::Expect(wire::Expect { request, epoch }) => {
            PeerBody::Expect { request: RequestId(request), epoch: Epoch(epoch) }
        }
        Body::Queued(wire::Queued { request, epoch }) => {
            PeerBody::Queued { request: RequestId(request), epoch: Epoch(epoch) }
        }
        Body::Offer(offer) => PeerBody::Offer(offer_from_wire(offer)?),
        Body::Written(wire::Written { lease, step, tokens }) => {
            PeerBody::Written { lease: LeaseId(lease), step: StepId(step), tokens }
        }
        Body::Complete(wire::Complete { lease, choice: choices, token, missing }) => {
            column(&choices, token.len(), "Complete.choice")?;
            let rows = choices.iter().zip(token);
            let first = rows.map(|(&c, token)| Ok((choice(c, "Complete.choice")?, token)));
            PeerBody::Complete { lease: LeaseId(lease), missing, first: first.collect::<Result<_, WireError>>()? }
        }
        Body::Withdraw(lease) => PeerBody::Withdraw { lease: LeaseId(lease) },
        Body::Renew(wire::Renew { lease, ticks }) => PeerBody::Renew { lease: LeaseId(lease), ticks },
        Body::Release(lease) => PeerBody::Release { lease: LeaseId(lease) },
        Body::Released(wire::Released { lease, valid }) => PeerBody::Released { lease: LeaseId(lease), valid },
        Body::ReleaseAck(lease) => PeerBody::ReleaseAck { lease: LeaseId(lease) },
    })
}

fn offer_to_wire(offer: &Offer) -> wire::Offer {
    let groups = offer.groups.iter().map(|group| wire::OfferedGroup {
        first: group.first,
        block: group.blocks.iter().map(|(block, _)| block.0).collect(),
        generation: group.blocks.iter().map(|(_, generation)| generation.0).collect(),
    });
    wire::Offer {
        request: offer.request.0,
        epoch: offer.epoch.0,
        lease: offer.lease.0,
        duration_ns: nanos(offer.duration),
        layout: offer.layout,
        tokens: offer.tokens,
        ready: offer.ready,
        groups: groups.collect(),
    }
}

fn offer_from_wire(offer: wire::Offer) -> Result<Offer, WireError> {
    not_empty(&offer.groups, "Offer.groups")?;
    if offer.ready > offer.tokens {
        return Err(WireError::invalid("Offer.ready", format!("{} of {} tokens", offer.ready, offer.tokens)));
    }
    Ok(Offer {
        request: RequestId(offer.request),
        epoch: Epoch(offer.epoch),
        lease: LeaseId(offer.lease),
        duration: Duration::from_nanos(offer.duration_ns),
        layout: offer.layout,
        tokens: offer.tokens,
        ready: offer.ready,
        groups: offer.groups.into_iter().map(group_from_wire).collect::<Result<_, _>>()?,
    })
}

fn group_from_wire(group: wire::OfferedGroup) -> Result<OfferedGroup, WireError> {
    column(&group.generation, group.block.len(), "OfferedGroup.generation")?;
    let blocks = group.block.into_iter().zip(group.generation);
    Ok(OfferedGroup {
        first: group.first,
        blocks: blocks.map(|(block, generation)| (BlockId(block), Generation(generation))).collect(),
    })
}
