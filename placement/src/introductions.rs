//! Introductions. A router introduces two workers to each other before the first message that names one of them to the
//! other. So a worker of a large cluster hears only of the workers that it deals with. It hears of their later lives,
//! and when they have left.

use crate::message::Command;
use crate::placement::Placement;
use domain::session::{Migrate, PeerInfo, Submit, ToWorker};
use domain::{Incarnation, WorkerId};

impl Placement {
    /// Introduces workers to each other that have not met, before the first of these commands that names one to the
    /// other.
    pub(crate) fn introduce_named(&mut self, first: usize, out: &mut Vec<Command>) {
        let mut at = first;
        while let Some(command) = out.get(at) {
            for (worker, named) in named(command).into_iter().flatten() {
                if let Some(both) = self.introduction(worker, named).filter(|_| self.meetings.meet(worker, named)) {
                    out.splice(at..at, both);
                    at += 2;
                }
            }
            at += 1;
        }
    }

    /// Introduces a worker whose session began to those that it has met, and them to it.
    pub(crate) fn introduce_again(&self, id: WorkerId, out: &mut Vec<Command>) {
        self.meetings.of(id).filter_map(|other| self.introduction(id, other)).for_each(|both| out.extend(both));
    }

    /// Tells those that a worker has met that it has left.
    pub(crate) fn tell_left(&mut self, id: WorkerId, incarnation: Incarnation, out: &mut Vec<Command>) {
        for worker in self.meetings.leave(id).into_iter().filter(|&other| self.workers.contains(other)) {
            out.push(Command::Send { worker, message: ToWorker::PeerLeft { id, incarnation } });
        }
    }

    /// Returns the introductions of two workers to each other, if both are up.
    fn introduction(&self, one: WorkerId, other: WorkerId) -> Option<[Command; 2]> {
        let peer = |id| self.workers.get(id).map(|worker| worker.peer.clone());
        let tell = |worker, peer: PeerInfo| Command::Send { worker, message: ToWorker::Peer(peer) };
        Some([tell(one, peer(other)?), tell(other, peer(one)?)])
    }
}

/// Returns the worker that a command is for with each of those that it names.
fn named(command: &Command) -> [Option<(WorkerId, WorkerId)>; 2] {
    let Command::Send { worker, message } = command else { return [None; 2] };
    let [first, second] = match message {
        ToWorker::Submit(Submit { assignment, holder, .. }) => [assignment.peer(), holder.map(|holder| holder.worker)],
        ToWorker::Migrate(Migrate { to, .. }) => [Some(*to), None],
        _ => [None; 2],
    };
    [first, second].map(|named| Some((*worker, named?)))
}
