//! How a session begins: each end says who it is and proves that it knows the cluster's secret.
//!
//! The proof of either end is over what both said, so it is good for this session only and cannot be sent back to the
//! one who made it.

use crate::block::{Scope, ScopeParts};
use crate::secret::Secret;
use crate::session::PeerInfo;
use std::fmt;

/// Version of the session's messages. Ends of different versions refuse each other.
pub const PROTOCOL: u32 = 4;

const WORKER: &str = "session worker";
const ROUTER: &str = "session router";

/// The first message of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterHello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Drawn at random by each life of a router.
    pub router: u64,
    /// What the worker's proof is about.
    pub nonce: [u8; 32],
}

/// By what a router tells whether a worker computes the model that the router tokenizes for. The same in every file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Rows of the embedding.
    pub vocab: u32,
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
}

impl fmt::Display for ModelShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} layers of width {}, {} tokens in the vocabulary", self.layers, self.hidden, self.vocab)
    }
}

/// What a worker serves. All workers of a router serve the same weights in the same layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Digest of config and weights.
    pub weights: [u8; 32],
    /// Of the model.
    pub shape: ModelShape,
    /// Fingerprint of the layout of its KV.
    pub layout: u64,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Bytes of KV per token, over all layers.
    pub token_bytes: u64,
    /// Longest sequence that the model and the pools allow.
    pub context_tokens: u32,
}

impl Served {
    /// What block identities of a tenant are derived under.
    pub fn scope(&self, tenant: &str) -> Scope {
        Scope::derive(&ScopeParts { weights: self.weights, layout: self.layout, adapter: "", tenant })
    }
}

/// The first message of a worker: who it is, and what it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Who, which life, where.
    pub peer: PeerInfo,
    /// What it serves.
    pub served: Served,
    /// What the router's proof is about.
    pub nonce: [u8; 32],
    /// That it knows the cluster's secret.
    pub proof: [u8; 32],
}

impl Hello {
    /// A worker's answer to the hello of a router, with its proof.
    pub fn answer(secret: &Secret, to: &RouterHello, peer: PeerInfo, served: Served, nonce: [u8; 32]) -> Self {
        let mut hello = Self { protocol: PROTOCOL, peer, served, nonce, proof: [0; 32] };
        hello.proof = hello.over_both(to, |parts| secret.prove(WORKER, parts));
        hello
    }

    /// Whether the worker knows the secret, as it proves to the router of this hello.
    pub fn is_proven(&self, secret: &Secret, to: &RouterHello) -> bool {
        self.over_both(to, |parts| secret.holds(WORKER, parts, &self.proof))
    }

    /// The proof of the router: its second message.
    pub fn router_proof(&self, secret: &Secret, from: &RouterHello) -> [u8; 32] {
        self.over_both(from, |parts| secret.prove(ROUTER, parts))
    }

    /// Whether `proof` shows that the router knows the secret.
    pub fn proves_router(&self, secret: &Secret, from: &RouterHello, proof: &[u8; 32]) -> bool {
        self.over_both(from, |parts| secret.holds(ROUTER, parts, proof))
    }

    /// Whatever both ends said that tells this session from every other.
    fn over_both<T>(&self, router: &RouterHello, of: impl FnOnce(&[&[u8]]) -> T) -> T {
        let (id, life) = (self.peer.id.0.to_le_bytes(), self.peer.incarnation.0.to_le_bytes());
        of(&[&router.nonce, &self.nonce, &router.router.to_le_bytes(), &id, &life])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{PeerAddress, Role};
    use crate::{Incarnation, WorkerId};

    fn router(router: u64, nonce: u8) -> RouterHello {
        RouterHello { protocol: PROTOCOL, router, nonce: [nonce; 32] }
    }

    fn worker(secret: &Secret, to: &RouterHello) -> Hello {
        let (id, incarnation, name) = (WorkerId(1), Incarnation(2), "w".to_owned());
        let peer = PeerInfo { id, incarnation, name, role: Role::Decode, address: PeerAddress::default() };
        let shape = ModelShape { vocab: 4096, layers: 2, hidden: 64 };
        let served =
            Served { weights: [1; 32], shape, layout: 1, block_tokens: 16, token_bytes: 64, context_tokens: 512 };
        Hello::answer(secret, to, peer, served, [9; 32])
    }

    #[test]
    fn both_ends_must_know_the_secret() {
        let (secret, other) = (Secret::new("a"), Secret::new("b"));
        let router = router(7, 1);
        let hello = worker(&secret, &router);
        assert!(hello.is_proven(&secret, &router) && !hello.is_proven(&other, &router));
        let proof = hello.router_proof(&secret, &router);
        assert!(hello.proves_router(&secret, &router, &proof) && !hello.proves_router(&other, &router, &proof));
    }

    #[test]
    fn a_proof_is_good_for_its_session_and_its_end_only() {
        let secret = Secret::new("a");
        let first = router(7, 1);
        let hello = worker(&secret, &first);
        for other in [router(7, 2), router(8, 1)] {
            assert!(!hello.is_proven(&secret, &other), "a proof of another session");
            assert!(!hello.proves_router(&secret, &other, &hello.router_proof(&secret, &first)));
        }
        assert!(!hello.proves_router(&secret, &first, &hello.proof), "a proof that is sent back");
        let mut another = hello.clone();
        another.peer.id = WorkerId(2);
        assert!(!another.is_proven(&secret, &first), "a proof of another worker");
    }
}
