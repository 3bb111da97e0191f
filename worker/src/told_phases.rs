//! When attempts are timed, and when their routers are told what took time.

use crate::state::WorkerState;
use domain::session::FromWorker;
use domain::{Epoch, RequestId, Time, WorkerId};
use transport::Completion;

impl WorkerState {
    /// Notes the end of a read for an attempt, if that is timed.
    pub(crate) fn transferred(
        &mut self,
        now: Time,
        (request, epoch): (RequestId, Epoch),
        owner: WorkerId,
        completion: &Completion,
    ) {
        let layers = u16::try_from(self.config.layout.layers()).unwrap_or(u16::MAX);
        let Self { attempts, meters, .. } = self;
        if let Some(timed) = attempts.timed(request, epoch) {
            timed.transferred(now, &meters.lanes.name_of(owner), completion, layers);
        }
    }

    /// Notes that an attempt decodes from now on, and tells what took time until then.
    pub(crate) fn decodes_from_now(&mut self, request: RequestId, epoch: Epoch) {
        if let Some(timed) = self.attempts.timed(request, epoch) {
            timed.decodes(self.now);
            self.tell_phases(request, epoch);
        }
    }

    /// Tells what took time in an attempt that is about to end.
    pub(crate) fn end_phases(&mut self, request: RequestId, epoch: Epoch) {
        let now = self.now;
        let Some(timed) = self.attempts.timed(request, epoch) else { return };
        timed.ends(now);
        self.tell_phases(request, epoch);
        if let Some(timed) = self.attempts.take_timed(request, epoch) {
            timed.end_span(now);
        }
    }

    /// Tells what took time since it was last told.
    fn tell_phases(&mut self, request: RequestId, epoch: Epoch) {
        let Some(session) = self.attempt(request, epoch).map(|attempt| attempt.session) else { return };
        if let Some((phases, left_out)) = self.attempts.timed(request, epoch).and_then(|timed| timed.take()) {
            // Where the session is closed, the message is not missed.
            self.sessions.tell(session, &FromWorker::Phases { request, epoch, phases, left_out });
        }
    }
}
