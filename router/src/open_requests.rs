//! The HTTP requests that are open, and how far each is, for dumps: known without the brain, which has a request only
//! from when its prompts are tokens until its answer is made.
//!
//! What is deliberately absent: anything of a request but its id and its time.

use crate::clock::Clock;
use domain::{RequestId, Time};
use proto::admin::{self as wire, Request};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its body is read.
    Body,
    /// Tokens are made of its prompts.
    Tokens,
    /// There is no place for it, and the brain is asked when there will be.
    Refused,
    /// The brain is told of its prompts.
    Submitted,
    /// The brain has ended one of its prompts.
    Answered,
}

/// All open requests. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenRequests(Arc<Mutex<BTreeMap<RequestId, (Time, Stage)>>>);

/// An open request, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    all: OpenRequests,
    id: RequestId,
}

impl OpenRequests {
    /// Adds a request that arrives now.
    pub(crate) fn begin(&self, id: RequestId, arrived: Time) -> OpenRequest {
        self.lock().insert(id, (arrived, Stage::Body));
        OpenRequest { all: self.clone(), id }
    }

    /// Describes the open requests, those first that arrived first.
    pub(crate) fn list(&self, clock: Clock) -> Vec<Request> {
        let mut open: Vec<_> = self.lock().iter().map(|(&id, &(arrived, stage))| (arrived, id, stage)).collect();
        open.sort_unstable_by_key(|&(arrived, id, _)| (arrived, id));
        let now = clock.now();
        let describe = |(arrived, id, stage): (Time, RequestId, Stage)| Request {
            id: id.to_string(),
            state: stage.state().into(),
            waits_for: stage.waits_for().to_owned(),
            age_ms: now.since(arrived).as_secs_f64() * 1e3,
            ..Request::default()
        };
        open.into_iter().map(describe).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RequestId, (Time, Stage)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenRequest {
    /// Says how far the request is from now on.
    pub(crate) fn reaches(&self, stage: Stage) {
        if let Some((_, now)) = self.all.lock().get_mut(&self.id) {
            *now = stage;
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}

impl Stage {
    fn state(self) -> wire::RequestState {
        match self {
            Self::Body | Self::Tokens | Self::Refused => wire::RequestState::Waiting,
            // How far it is there, the brain alone knows.
            Self::Submitted | Self::Answered => wire::RequestState::Unspecified,
        }
    }

    /// Says what a request waits for that the brain does not have.
    fn waits_for(self) -> &'static str {
        match self {
            Self::Body => "its body, which the client sends",
            Self::Tokens => "its prompt to be made tokens of",
            Self::Refused => "the router, which has no place for it and is to say when to come again",
            Self::Submitted => "the router, which is to place it",
            Self::Answered => "its other prompts, or its client, which has not taken all of the answer",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_open_until_it_is_dropped_and_says_what_it_waits_for() {
        let (all, clock) = (OpenRequests::default(), Clock::new());
        let later = all.begin(RequestId(1), Time(2));
        let first = all.begin(RequestId(9), Time(1));
        first.reaches(Stage::Tokens);
        let listed = || -> Vec<(String, String)> {
            all.list(clock).into_iter().map(|request| (request.id, request.waits_for)).collect()
        };
        let of = |id: u64, stage: Stage| (RequestId(id).to_string(), stage.waits_for().to_owned());
        assert_eq!(listed(), [of(9, Stage::Tokens), of(1, Stage::Body)]);
        first.reaches(Stage::Submitted);
        drop(later);
        assert_eq!(listed(), [of(9, Stage::Submitted)]);
        drop(first);
        assert_eq!(listed(), []);
    }
}
