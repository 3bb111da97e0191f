//! Ends of requests: regular ones, deadlines, refusals.

use crate::attempts::cancel;
use crate::journey::Journey;
use crate::message::{Command, Rejected, Usage};
use crate::placement::Placement;
use crate::requests_by_worker::InvolvedWorkers;
use domain::{End, Ender, Finish, RequestId, Time};

impl Placement {
    /// Ends requests whose deadlines have passed.
    pub(crate) fn expire(&mut self, now: Time, out: &mut Vec<Command>) {
        while let Some(&(deadline, request)) = self.deadlines.first()
            && deadline <= now
        {
            let waits = self.waiting.get(request).map(|waits| &waits.request);
            let asked = waits.or_else(|| self.journeys.get(&request).map(|journey| &journey.request));
            let given = asked.map_or(0.0, |request| request.deadline.as_secs_f64());
            self.finish(request, End::error(Ender::Limit, format!("its deadline of {given:.0} s passed")), out);
        }
    }

    /// Ends a request if all its choices have ended.
    pub(crate) fn finish_if_ended(&mut self, request: RequestId, out: &mut Vec<Command>) {
        if let Some(end) = self.journeys.get(&request).and_then(Journey::ended) {
            self.finish(request, end, out);
        }
    }

    /// Ends a request, if it is open.
    pub(crate) fn finish(&mut self, request: RequestId, end: End, out: &mut Vec<Command>) {
        if let Some(waits) = self.waiting.remove(request) {
            self.waiting_may_begin = true;
            self.deadlines.remove(&(waits.deadline, request));
            let usage = Usage { prompt_tokens: waits.request.prompt.len() as u32, ..Usage::default() };
            out.push(Command::End { request, end, usage });
        } else if let Some(journey) = self.close_journey(request, out) {
            // Its place does not stay empty until the next report. A request that a worker refused had none.
            self.waiting_may_begin |= self.workers.ended(journey.attempt.decode) && self.waiting.len() > 0;
            let usage = journey.usage();
            if end.finish != Finish::Error {
                self.answers.count(f64::from(usage.output_tokens) / f64::from(journey.request.choices));
            }
            out.push(Command::End { request, end, usage });
        }
    }

    /// Refuses a request after it was placed.
    pub(crate) fn refuse(&mut self, request: RequestId, why: Rejected, detail: String, out: &mut Vec<Command>) {
        if self.close_journey(request, out).is_some() {
            self.reject(request, why, detail, out);
        }
    }

    /// Removes a journey: the only place that does. Its workers close the epoch, if they have not.
    fn close_journey(&mut self, request: RequestId, out: &mut Vec<Command>) -> Option<Journey> {
        self.unstick(request);
        let journey = self.journeys.remove(&request)?;
        self.requests_by_worker.update(request, &journey.involved, &InvolvedWorkers::default());
        self.deadlines.remove(&(journey.deadline, request));
        cancel(&self.workers, &journey, None, out);
        Some(journey)
    }
}
