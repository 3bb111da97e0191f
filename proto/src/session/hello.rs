//! How a session begins: the identities of both ends.

use crate::WireError;
use crate::checks::{array, required};
use crate::generated as wire;
use domain::session::{Challenge, Hello, ModelShape, PeerAddress, PeerInfo, Role, RouterHello, Served};
use domain::{Incarnation, Versions, WorkerId};

pub(super) fn router_to_wire(hello: &RouterHello) -> wire::RouterHello {
    let (protocol, protocol_max) = versions_to_wire(hello.versions);
    wire::RouterHello { protocol, router: hello.router, nonce: hello.nonce.to_vec(), protocol_max }
}

pub(super) fn router_from_wire(hello: &wire::RouterHello) -> Result<RouterHello, WireError> {
    let nonce = array(&hello.nonce, "RouterHello.nonce")?;
    let versions = versions_from_wire(hello.protocol, hello.protocol_max);
    Ok(RouterHello { versions, router: hello.router, nonce })
}

pub(super) fn challenge_to_wire(challenge: &Challenge) -> wire::Challenge {
    let (protocol, protocol_max) = versions_to_wire(challenge.versions);
    wire::Challenge { protocol, nonce: challenge.nonce.to_vec(), protocol_max }
}

pub(super) fn challenge_from_wire(challenge: &wire::Challenge) -> Result<Challenge, WireError> {
    let versions = versions_from_wire(challenge.protocol, challenge.protocol_max);
    Ok(Challenge { versions, nonce: array(&challenge.nonce, "Challenge.nonce")? })
}

/// Returns the oldest version and, if it is another one, the newest.
fn versions_to_wire(Versions { oldest, newest }: Versions) -> (u32, u32) {
    (oldest, if newest == oldest { 0 } else { newest })
}

fn versions_from_wire(oldest: u32, newest: u32) -> Versions {
    Versions { oldest, newest: newest.max(oldest) }
}

pub(super) fn worker_to_wire(hello: &Hello) -> wire::Hello {
    wire::Hello {
        peer: Some(peer_to_wire(&hello.peer)),
        weights: hello.served.weights.to_vec(),
        layout: hello.served.layout,
        block_tokens: hello.served.block_tokens,
        token_bytes: hello.served.token_bytes,
        context_tokens: hello.served.context_tokens,
        proof: hello.proof.to_vec(),
        vocab: hello.served.shape.vocab,
        layers: hello.served.shape.layers,
        hidden: hello.served.shape.hidden,
        batch_invariant: hello.served.batch_invariant,
        grammars: hello.served.grammars,
    }
}

pub(super) fn worker_from_wire(hello: wire::Hello) -> Result<Hello, WireError> {
    if hello.block_tokens == 0 {
        return Err(WireError::invalid("Hello.block_tokens", "it is zero"));
    }
    Ok(Hello {
        peer: peer_from_wire(required(hello.peer, "Hello.peer")?)?,
        served: Served {
            weights: array(&hello.weights, "Hello.weights")?,
            shape: ModelShape { vocab: hello.vocab, layers: hello.layers, hidden: hello.hidden },
            layout: hello.layout,
            block_tokens: hello.block_tokens,
            token_bytes: hello.token_bytes,
            context_tokens: hello.context_tokens,
            batch_invariant: hello.batch_invariant,
            grammars: hello.grammars,
        },
        proof: array(&hello.proof, "Hello.proof")?,
    })
}

pub(super) fn peer_to_wire(peer: &PeerInfo) -> wire::Peer {
    wire::Peer {
        id: peer.id.0,
        incarnation: peer.incarnation.0,
        name: peer.name.clone(),
        role: role_to_wire(peer.role).into(),
        process: peer.address.process,
        unix: peer.address.unix.clone(),
        tcp: peer.address.tcp.clone(),
    }
}

pub(super) fn peer_from_wire(peer: wire::Peer) -> Result<PeerInfo, WireError> {
    let role = required(role_from_wire(peer.role, "Peer.role")?, "Peer.role")?;
    Ok(PeerInfo {
        id: WorkerId(peer.id),
        incarnation: Incarnation(peer.incarnation),
        name: peer.name,
        role,
        address: PeerAddress { process: peer.process, unix: peer.unix, tcp: peer.tcp },
    })
}

pub(super) fn role_to_wire(role: Role) -> wire::Role {
    match role {
        Role::Prefill => wire::Role::Prefill,
        Role::Decode => wire::Role::Decode,
    }
}

/// Reads a role, if there is one. Errors: it is none that this version knows.
pub(super) fn role_from_wire(role: i32, field: &'static str) -> Result<Option<Role>, WireError> {
    match wire::Role::try_from(role) {
        Ok(wire::Role::Prefill) => Ok(Some(Role::Prefill)),
        Ok(wire::Role::Decode) => Ok(Some(Role::Decode)),
        Ok(wire::Role::Unspecified) => Ok(None),
        Err(unknown) => Err(WireError::invalid(field, unknown.to_string())),
    }
}
