//! Messages under way: a multiset. Any of them may come next.

use domain::LeaseId;
use domain::handoff::{PeerBody, PeerMessage};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// A message under way.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    /// Towards the owner, or towards the rank.
    pub(crate) to_owner: bool,
    /// The rank that it comes from or goes to, counted over all readers.
    pub(crate) rank: u8,
    pub(crate) message: Rc<PeerMessage>,
    /// Of all but the rank and what follows from it: who it is and which lease it has.
    pub(crate) digest: u64,
}

impl Envelope {
    pub(crate) fn new(to_owner: bool, rank: u8, message: PeerMessage) -> Self {
        let mut hasher = DefaultHasher::new();
        (to_owner, message.from_incarnation, message.to_incarnation).hash(&mut hasher);
        std::mem::discriminant(&message.body).hash(&mut hasher);
        match &message.body {
            PeerBody::Offer(offer) => (offer.epoch, offer.ready).hash(&mut hasher),
            PeerBody::Written { step, tokens, .. } => (step, tokens).hash(&mut hasher),
            PeerBody::Renew { ticks, .. } => ticks.hash(&mut hasher),
            PeerBody::Released { valid, .. } => valid.hash(&mut hasher),
            PeerBody::Complete { first, .. } => first.hash(&mut hasher),
            PeerBody::Withdraw { .. } | PeerBody::Release { .. } | PeerBody::ReleaseAck { .. } => {}
            PeerBody::Ask(ask) => ask.epoch.hash(&mut hasher),
            PeerBody::Decline { epoch, .. } | PeerBody::Expect { epoch, .. } | PeerBody::Queued { epoch, .. } => {
                epoch.hash(&mut hasher);
            }
        }
        Self { to_owner, rank, message: Rc::new(message), digest: hasher.finish() }
    }

    /// The lease that the message is about, if it is about one.
    pub(crate) fn lease(&self) -> Option<LeaseId> {
        match self.message.body {
            PeerBody::Offer(ref offer) => Some(offer.lease),
            PeerBody::Written { lease, .. }
            | PeerBody::Complete { lease, .. }
            | PeerBody::Withdraw { lease }
            | PeerBody::Renew { lease, .. }
            | PeerBody::Release { lease }
            | PeerBody::Released { lease, .. }
            | PeerBody::ReleaseAck { lease } => Some(lease),
            PeerBody::Ask(_) | PeerBody::Decline { .. } | PeerBody::Expect { .. } | PeerBody::Queued { .. } => None,
        }
    }

    /// The message in a trace.
    pub(crate) fn describe(&self) -> String {
        let PeerMessage { from_incarnation, to_incarnation, body, .. } = &*self.message;
        let to = to_incarnation.map_or("any".to_owned(), |life| life.to_string());
        let body = match body {
            PeerBody::Offer(offer) => format!("Offer({}, {}, ready {})", offer.lease, offer.epoch, offer.ready),
            other => format!("{other:?}"),
        };
        let way = if self.to_owner { "to the owner from" } else { "from the owner to" };
        format!("{body} {way} rank {}, lives {from_incarnation} to {to}", self.rank)
    }
}
