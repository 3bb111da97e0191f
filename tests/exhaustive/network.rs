//! Messages under way: a multiset. Any of them may come next.

use domain::handoff::{PeerBody, PeerMessage};
use domain::{LeaseId, WorkerId};
use std::rc::Rc;

/// A message under way.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    pub(crate) to: WorkerId,
    /// Equal messages have equal numbers.
    pub(crate) number: u32,
    pub(crate) message: Rc<PeerMessage>,
}

impl Envelope {
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
        let PeerMessage { from, from_incarnation, to_incarnation, body } = &*self.message;
        let life = to_incarnation.map_or("any life".to_owned(), |life| life.to_string());
        let body = match body {
            PeerBody::Offer(offer) => {
                format!("Offer({}, {}, {}, ready {})", offer.request, offer.epoch, offer.lease, offer.ready)
            }
            PeerBody::Ask(ask) => format!("Ask({}, {})", ask.request, ask.epoch),
            other => format!("{other:?}"),
        };
        format!("{body} from {from} in {from_incarnation} to {} in {life}", self.to)
    }
}
