//! What makes a prefill worker differ from a decode worker.

use crate::core::Core;
use crate::sessions::SessionId;
use domain::handoff::PeerBody;
use domain::session::{Migrate, Submit};
use domain::{Choice, Epoch, RequestId, SeqKey, StepId, Time, Token, WorkerId};
use scheduler::Work;
use std::time::Duration;
use transport::Completion;

/// The decisions of a kind of worker. Called by the step loop, on its thread; all state of the worker is in `core`.
pub trait Role: Send + 'static {
    /// An attempt arrived. It is not known to `core` yet.
    fn submitted(&mut self, core: &mut Core, now: Time, session: SessionId, submit: Submit);

    /// A running sequence shall go on elsewhere; its attempt is open.
    fn migrate(&mut self, core: &mut Core, now: Time, migrate: Migrate);

    /// A running sequence got a token; if that ended it, it is gone.
    fn appended(&mut self, core: &mut Core, now: Time, key: SeqKey);

    /// A running sequence lost its memory and will be computed again.
    fn preempted(&mut self, core: &mut Core, now: Time, key: SeqKey);

    /// The attempt was cancelled by the router or met its deadline; `core` has forgotten it and closed its sequences.
    fn cancelled(&mut self, core: &mut Core, now: Time, request: RequestId, epoch: Epoch);

    /// A prompt got its blocks; its computation begins with the next step.
    fn admitted(&mut self, core: &mut Core, now: Time, key: SeqKey);

    /// A sequence that is fetched got its blocks; so many of its tokens were here already.
    fn room_given(&mut self, core: &mut Core, now: Time, key: SeqKey, cached_tokens: u32);

    /// A step that computes `work` is about to be submitted.
    fn planned(&mut self, core: &mut Core, now: Time, step: StepId, work: &[Work]);

    /// A prompt is computed and these first tokens were sampled and sent to the router; choices that ended with it are
    /// not among them.
    fn prompt_ended(&mut self, core: &mut Core, now: Time, key: SeqKey, first: Vec<(Choice, Token)>);

    /// A step that computed `work` failed; the attempts of its sequences are about to be failed.
    fn step_failed(&mut self, core: &mut Core, now: Time, work: &[Work]);

    /// A message of a peer.
    fn peer(&mut self, core: &mut Core, now: Time, from: WorkerId, body: PeerBody);

    /// A peer came back as a new incarnation: whatever the old one promised is void.
    fn peer_restarted(&mut self, core: &mut Core, now: Time, peer: WorkerId);

    /// A peer is connected now.
    fn connected(&mut self, core: &mut Core, now: Time, peer: WorkerId);

    /// A peer could not be connected, or its connection broke.
    fn peer_lost(&mut self, core: &mut Core, now: Time, peer: WorkerId);

    /// Whether anything is open with a peer: it reads here, or is read.
    fn deals_with(&self, peer: WorkerId) -> bool;

    /// A transfer ended.
    fn transfer_ended(&mut self, core: &mut Core, now: Time, completion: Completion);

    /// This worker stood still for so long: what came meanwhile it has not heard yet. Told before anything else is.
    fn stood_still(&mut self, pause: Duration);

    /// Deadlines may have passed.
    fn tick(&mut self, core: &mut Core, now: Time);

    /// When `tick` must be called at the latest.
    fn next_deadline(&self, core: &Core) -> Option<Time>;
}
