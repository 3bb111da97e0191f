//! Which states are one: what is told apart, and what is left out because it changes nothing.

use crate::owner::OWNER;
use crate::rank::Rank;
use crate::scope::ANY;
use crate::world::{RANKS_MAX, READERS_MAX, World, reader_of};
use domain::handoff::PeerBody as Body;
use domain::planted_bugs::{self, Bug};
use kv_manager::{Fetch, FetchState};
use std::hash::{DefaultHasher, Hash, Hasher};

impl World {
    /// Tells states apart. Ranks of a reader are alike, and readers are: who is who makes no difference.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.left.hash(&mut hasher);
        self.owner.digest.hash(&mut hasher);
        let ranks = usize::from(self.scope.ranks);
        let mut digests = [0; READERS_MAX];
        for (number, reader) in self.readers.iter().enumerate() {
            let mut of = [0; RANKS_MAX];
            for (digest, rank) in of.iter_mut().zip(&self.ranks[number * ranks..(number + 1) * ranks]) {
                *digest = self.rank_digest(rank);
            }
            of.sort_unstable();
            let mut hasher = DefaultHasher::new();
            (reader.life, reader.lives.of(OWNER), of).hash(&mut hasher);
            digests[number] = hasher.finish();
        }
        digests.sort_unstable();
        digests.hash(&mut hasher);
        hasher.finish()
    }

    fn rank_digest(&self, rank: &Rank) -> u64 {
        let (owner, mut hasher) = (&self.owner, DefaultHasher::new());
        rank.digest.hash(&mut hasher);
        owner.rank_digest(rank.number, self.scope.ranks, &mut hasher);
        let ghosts = || self.ghosts.iter().filter(|ghost| ghost.rank == rank.number);
        for ghost in ghosts() {
            ghost.digest(owner.now, &mut hasher);
            (rank.lease == Some((ghost.life, ghost.lease))).hash(&mut hasher);
            if ghost.life == owner.life {
                owner.kv.lease_digest(owner.now, ghost.lease, &mut hasher);
            }
        }
        // Where there is no order among messages, none is hashed.
        let mut messages = 0_u64;
        for envelope in self.network.iter().filter(|envelope| envelope.rank == rank.number) {
            // Who asked twice has two leases, and it matters which of them a message is about.
            let lease = envelope.lease().and_then(|lease| ghosts().position(|ghost| ghost.lease == lease));
            let mut of_it = DefaultHasher::new();
            (envelope.digest, lease).hash(&mut of_it);
            match self.left.reorders {
                ANY => messages = messages.wrapping_add(of_it.finish()),
                _ => of_it.finish().hash(&mut hasher),
            }
        }
        messages.hash(&mut hasher);
        hasher.finish()
    }

    /// Takes messages out that can change nothing any more, whenever they arrive: without them, states that differ in
    /// nothing else are one.
    pub(crate) fn forget_what_changes_nothing(&mut self) {
        let Self { network, owner, readers, ranks, scope, ghosts, .. } = self;
        network.retain(|envelope| {
            let (rank, message) = (&ranks[usize::from(envelope.rank)], &envelope.message);
            let reader = &readers[usize::from(envelope.rank / scope.ranks)];
            let (own, peer, known) = match envelope.to_owner {
                true => (owner.life, reader.life, owner.lives.of(reader_of(envelope.rank, scope.ranks))),
                false => (reader.life, owner.life, reader.lives.of(OWNER)),
            };
            let to_earlier = message.to_incarnation.is_some_and(|life| life != own);
            // Lives only grow: what is stale stays so. A release is answered all the same.
            let stale = to_earlier || known.is_some_and(|known| message.from_incarnation < known);
            let heard = known == Some(message.from_incarnation) && message.from_incarnation == peer;
            let ended = |lease| ghosts.iter().any(|g| (g.life, g.lease) == (owner.life, lease) && g.ended.is_some());
            let nothing = match &message.body {
                Body::Release { .. } | Body::Ask(_) => false,
                _ if planted_bugs::is(Bug::NoIncarnationCheck) => false,
                _ if stale => true,
                Body::Renew { lease, .. } => heard && ended(*lease) && !owner.kv.is_alive(owner.now, *lease),
                Body::ReleaseAck { .. } => false,
                Body::Released { lease, .. } => {
                    let of_it = rank.lease.is_some_and(|(_, known)| known == *lease);
                    heard && of_it && rank.fetch.as_ref().is_some_and(is_quiescing)
                }
                Body::Offer(_) if rank.asks => false,
                Body::Offer(_) => heard && (rank.lease.is_some() || rank.fetch.is_none()),
                _ => heard && rank.fetch.as_ref().is_none_or(is_quiescing),
            };
            !nothing
        });
    }
}

fn is_quiescing(fetch: &Fetch) -> bool {
    fetch.state() == FetchState::Quiescing
}
