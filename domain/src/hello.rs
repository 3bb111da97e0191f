//! How a session begins. The router dials, so it proves first that it knows the cluster's secret; a stranger learns
//! nothing about the worker. Only then does the worker introduce itself, and it proves all that it says by the secret
//! that the router used.
//!
//! Each proof covers what both ends said, so it is good for this session only and cannot be sent back to its maker.
//!
//! Each end says which versions of the protocol it speaks, and the session has the newest that both speak. From version
//! 6 on, the proofs cover both ranges. Release 0.2.0 speaks version 5, knows no ranges, and its proofs cover what its
//! messages have. So a party that can alter messages can make two newer ends believe that the other one is of release
//! 0.2.0. It gains nothing by that: both ends speak version 5 with every cluster member anyway, and what differs are
//! operators' asks. A version that adds protection has to end the support of the versions before it.

use crate::adapter::Adapter;
use crate::block::{Scope, ScopeParts};
use crate::peer::{PeerAddress, PeerInfo, Role};
use crate::secret::{Secret, Secrets};
use crate::versions::Versions;
use std::fmt;

/// Versions of the session's messages that this release speaks. Ends without a common one refuse each other.
pub const PROTOCOL: Versions = Versions { oldest: 5, newest: 6 };

/// The version from which on a worker can be asked what operators want to know.
pub const PROTOCOL_OF_ASKS: u32 = 6;

/// The version from which on proofs cover the ranges of versions.
const PROTOCOL_OF_RANGES: u32 = 6;

/// The version from which on a worker declares whether its device is batch-invariant, and whether it knows grammars.
const PROTOCOL_OF_DEVICES: u32 = 6;

const WORKER: &str = "session worker";
const ROUTER: &str = "session router";

/// The first message of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterHello {
    /// The versions that the router speaks: [`PROTOCOL`].
    pub versions: Versions,
    /// Drawn at random by each life of a router.
    pub router: u64,
    /// What the proofs of both ends are about.
    pub nonce: [u8; 32],
}

/// By what a router tells whether a worker computes the model that the router tokenizes for. The same in every
/// file format.
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
    /// Whether its device declares that a row's bits depend on its own sequence alone. Workers may differ in this.
    pub batch_invariant: bool,
    /// Whether it samples by the grammar of a request. Workers may differ in this.
    pub grammars: bool,
}

impl Served {
    /// Returns the scope of a tenant's sequences that are computed with this adapter, under which their block
    /// identities are derived.
    pub fn scope(&self, tenant: &str, adapter: Option<&Adapter>) -> Scope {
        Scope::derive(&ScopeParts { weights: self.weights, layout: self.layout, adapter, tenant })
    }
}

/// The answer of a worker to a router that has proven nothing yet. It says nothing of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The versions that the worker speaks: [`PROTOCOL`].
    pub versions: Versions,
    /// What the proofs of both ends are about.
    pub nonce: [u8; 32],
}

/// A worker's identity, and what it serves. A worker sends it to routers that have proven themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its id, its incarnation, its address.
    pub peer: PeerInfo,
    /// What it serves.
    pub served: Served,
    /// That it knows the secret by which the router proved itself. It covers all of the above.
    pub proof: [u8; 32],
}

/// What both ends said before either has proven anything. It tells a session from every other, so a proof over it
/// is good for this session only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The router's first message.
    pub router: RouterHello,
    /// The worker's answer.
    pub worker: Challenge,
}

impl Opening {
    /// Returns the version that the session has. `None`: the ends have none in common.
    pub fn protocol(&self) -> Option<u32> {
        self.router.versions.common(self.worker.versions)
    }

    /// Makes the proof of the router, by its own secret.
    pub fn router_proof(&self, secret: &Secret) -> [u8; 32] {
        self.with_opening(&[], |parts| secret.prove(ROUTER, parts))
    }

    /// Finds the secret by which the router made its `proof`, where it is an accepted one.
    pub fn proven_by<'a>(&self, secrets: &'a Secrets, proof: &[u8; 32]) -> Option<&'a Secret> {
        self.with_opening(&[], |parts| secrets.accepted(ROUTER, parts, proof))
    }

    /// Makes the hello of a worker, with its proof by the secret by which the router proved itself.
    /// Before version 6, it declares nothing about its device.
    pub fn hello(&self, secret: &Secret, peer: PeerInfo, served: Served) -> Hello {
        let declares = self.declares_devices();
        let [batch_invariant, grammars] = [served.batch_invariant, served.grammars].map(|is| is && declares);
        let served = Served { batch_invariant, grammars, ..served };
        let proof = self.over_hello(&peer, &served, |parts| secret.prove(WORKER, parts));
        Hello { peer, served, proof }
    }

    /// Says whether the worker that says `hello` knows the secret, and whether it said all of it.
    pub fn proves_worker(&self, secret: &Secret, hello: &Hello) -> bool {
        self.over_hello(&hello.peer, &hello.served, |parts| secret.holds(WORKER, parts, &hello.proof))
    }

    /// Gives `of` every word of a hello. A field that is added has to be named here, or this does not compile.
    fn over_hello<T>(&self, peer: &PeerInfo, served: &Served, of: impl FnOnce(&[&[u8]]) -> T) -> T {
        let PeerInfo { id, incarnation, name, role, address } = peer;
        let PeerAddress { process, unix, tcp } = address;
        let Served { weights, shape, layout, block_tokens, token_bytes, context_tokens, batch_invariant, grammars } =
            served;
        let ModelShape { vocab, layers, hidden } = shape;
        let role: &[u8] = match role {
            Role::Prefill => b"prefill",
            Role::Decode => b"decode",
        };
        let words: [&[u8]; 17] = [
            &id.0.to_le_bytes(),
            &incarnation.0.to_le_bytes(),
            name.as_bytes(),
            role,
            &process.to_le_bytes(),
            unix.as_bytes(),
            tcp.as_bytes(),
            weights,
            &vocab.to_le_bytes(),
            &layers.to_le_bytes(),
            &hidden.to_le_bytes(),
            &layout.to_le_bytes(),
            &block_tokens.to_le_bytes(),
            &token_bytes.to_le_bytes(),
            &context_tokens.to_le_bytes(),
            &[u8::from(*batch_invariant)],
            &[u8::from(*grammars)],
        ];
        // Of a version without it, no worker proves a hello that declares it.
        let declares = self.declares_devices() || *batch_invariant || *grammars;
        self.with_opening(if declares { &words } else { &words[..15] }, of)
    }

    fn declares_devices(&self) -> bool {
        self.protocol() >= Some(PROTOCOL_OF_DEVICES)
    }

    fn with_opening<T>(&self, words: &[&[u8]], of: impl FnOnce(&[&[u8]]) -> T) -> T {
        let RouterHello { versions: ours, router, nonce } = &self.router;
        let Challenge { versions: theirs, nonce: challenge } = &self.worker;
        let [oldest, their_oldest, newest, their_newest] =
            [ours.oldest, theirs.oldest, ours.newest, theirs.newest].map(u32::to_le_bytes);
        let opening: [&[u8]; 5] = [&oldest, &router.to_le_bytes(), nonce, &their_oldest, challenge];
        let ranges: [&[u8]; 2] = [&newest, &their_newest];
        let covers_ranges = self.protocol() >= Some(PROTOCOL_OF_RANGES);
        let ranges = if covers_ranges { &ranges[..] } else { &[] };
        of(&[&opening, ranges, words].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Incarnation, WorkerId};

    fn opening(router: u64, nonce: u8) -> Opening {
        Opening {
            router: RouterHello { versions: PROTOCOL, router, nonce: [nonce; 32] },
            worker: Challenge { versions: PROTOCOL, nonce: [9; 32] },
        }
    }

    fn hello(opening: &Opening, secret: &Secret) -> Hello {
        let (id, incarnation, name) = (WorkerId(1), Incarnation(2), "w".to_owned());
        let address = PeerAddress { process: 3, unix: "@w".to_owned(), tcp: "10.0.0.1:7".to_owned() };
        let peer = PeerInfo { id, incarnation, name, role: Role::Decode, address };
        let shape = ModelShape { vocab: 4096, layers: 2, hidden: 64 };
        let served = Served {
            weights: [1; 32],
            shape,
            layout: 1,
            block_tokens: 16,
            token_bytes: 64,
            context_tokens: 512,
            batch_invariant: true,
            grammars: true,
        };
        opening.hello(secret, peer, served)
    }

    #[test]
    fn both_ends_must_know_the_secret() {
        let (secret, other) = (Secret::new("a"), Secret::new("b"));
        let opening = opening(7, 1);
        let proof = opening.router_proof(&secret);
        assert_eq!(opening.proven_by(&secret.clone().into(), &proof), Some(&secret));
        assert_eq!(opening.proven_by(&other.clone().into(), &proof), None);
        let hello = hello(&opening, &secret);
        assert!(opening.proves_worker(&secret, &hello) && !opening.proves_worker(&other, &hello));
    }

    #[test]
    fn a_proof_is_good_for_its_session_and_its_end_only() {
        let secret = Secret::new("a");
        let first = opening(7, 1);
        let (proof, said) = (first.router_proof(&secret), hello(&first, &secret));
        let mut nonce = first;
        nonce.worker.nonce = [8; 32];
        for other in [opening(7, 2), opening(8, 1), nonce] {
            assert!(!other.proves_worker(&secret, &said), "a proof of another session");
            assert_eq!(other.proven_by(&secret.clone().into(), &proof), None, "a proof of another session");
        }
        assert_eq!(first.proven_by(&secret.clone().into(), &said.proof), None, "a proof that is sent back");
    }

    #[test]
    fn proofs_cover_the_versions_but_for_those_of_an_end_that_knows_no_ranges() {
        let secret = Secret::new("a");
        let only = |version| Versions { oldest: version, newest: version };
        let opening = |router, worker| {
            let mut opening = opening(7, 1);
            (opening.router.versions, opening.worker.versions) = (router, worker);
            opening
        };
        let range = Versions { oldest: 5, newest: 7 };
        let both = opening(range, range);
        assert_eq!(both.protocol(), Some(7));
        let (proof, said) = (both.router_proof(&secret), hello(&both, &secret));
        // A party on the way changes what the other end hears.
        for heard in [only(5), only(7), Versions { oldest: 5, newest: 6 }, Versions { oldest: 6, newest: 7 }] {
            assert_eq!(opening(heard, range).proven_by(&secret.clone().into(), &proof), None, "{heard}");
            assert!(!opening(range, heard).proves_worker(&secret, &said), "{heard}");
        }
        // With an end of release 0.2.0, the proofs are those of release 0.2.0.
        let old = opening(range, only(5));
        assert_eq!(old.protocol(), Some(5));
        let five = 5_u32.to_le_bytes();
        let words: [&[u8]; 5] = [&five, &7_u64.to_le_bytes(), &[1; 32], &five, &[9; 32]];
        assert_eq!(old.router_proof(&secret), secret.prove(ROUTER, &words));
        assert_eq!(opening(only(5), range).router_proof(&secret), secret.prove(ROUTER, &words));
        assert_eq!(opening(only(4), range).protocol(), None);
    }

    #[test]
    fn a_session_of_the_release_before_says_nothing_of_devices() {
        let secret = Secret::new("a");
        let mut old = opening(7, 1);
        old.router.versions = Versions { oldest: 5, newest: 5 };
        let mut said = hello(&old, &secret);
        let declared = |hello: &Hello| [hello.served.batch_invariant, hello.served.grammars];
        assert!(declared(&said) == [false; 2] && old.proves_worker(&secret, &said));
        (said.served.batch_invariant, said.served.grammars) = (true, false);
        assert!(!old.proves_worker(&secret, &said), "a party on the way declares it");
        (said.served.batch_invariant, said.served.grammars) = (false, true);
        assert!(!old.proves_worker(&secret, &said), "a party on the way declares it");
        assert_eq!(declared(&hello(&opening(7, 1), &secret)), [true; 2]);
    }

    #[test]
    fn a_worker_proves_every_word_of_its_hello() {
        let secret = Secret::new("a");
        let opening = opening(7, 1);
        let said = hello(&opening, &secret);
        let changes: [fn(&mut Hello); 17] = [
            |hello| hello.peer.id = WorkerId(2),
            |hello| hello.peer.incarnation = Incarnation(u64::MAX),
            |hello| hello.peer.name = "v".to_owned(),
            |hello| hello.peer.role = Role::Prefill,
            |hello| hello.peer.address.process = 4,
            |hello| hello.peer.address.unix = "@v".to_owned(),
            |hello| hello.peer.address.tcp = "10.0.0.2:7".to_owned(),
            |hello| hello.served.weights = [2; 32],
            |hello| hello.served.shape.vocab = 1,
            |hello| hello.served.shape.layers = 1,
            |hello| hello.served.shape.hidden = 1,
            |hello| hello.served.layout = 2,
            |hello| hello.served.block_tokens = 32,
            |hello| hello.served.token_bytes = 1,
            |hello| hello.served.context_tokens = 1,
            |hello| hello.served.batch_invariant = false,
            |hello| hello.served.grammars = false,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut changed = said.clone();
            change(&mut changed);
            assert!(!opening.proves_worker(&secret, &changed), "change {number}");
        }
    }
}
