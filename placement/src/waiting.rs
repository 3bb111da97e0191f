//! Requests that no decode worker would soon get to: they wait here, the first one first, and not there. So
//! whoever is free first takes the next one, nothing is computed and held that nobody goes on with, and a request
//! that has its first token waits for no other.

use domain::planted_bugs::{self, Bug};
use domain::{BlockHash, Request, RequestId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A request that nobody has served yet.
#[derive(Debug)]
pub(crate) struct WaitingRequest {
    pub(crate) request: Arc<Request>,
    /// Identities of the prompt's full blocks.
    pub(crate) chain: Vec<BlockHash>,
    pub(crate) deadline: Time,
}

/// All that wait.
#[derive(Debug, Default)]
pub(crate) struct WaitingRequests {
    /// By number, in the order in which they came.
    order: BTreeMap<u64, WaitingRequest>,
    numbers: BTreeMap<RequestId, u64>,
    /// The highest number given out.
    last: u64,
    /// Of their prompts.
    tokens: u64,
}

impl WaitingRequests {
    /// Puts a request behind all others.
    pub(crate) fn push(&mut self, waits: WaitingRequest) {
        self.last += 1;
        self.put_back(self.last, waits);
    }

    /// Puts a request where it was before.
    pub(crate) fn put_back(&mut self, number: u64, waits: WaitingRequest) {
        self.tokens += waits.request.prompt.len() as u64;
        self.numbers.insert(waits.request.id, number);
        self.order.insert(number, waits);
    }

    /// Returns the first ones, so many at most.
    pub(crate) fn first(&self, count: usize) -> impl Iterator<Item = &WaitingRequest> {
        self.order.values().take(count)
    }

    /// Returns all, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &WaitingRequest> {
        self.order.values()
    }

    /// Takes the first ones out, so many at most, and says where they were.
    pub(crate) fn take_first(&mut self, count: usize) -> Vec<(u64, WaitingRequest)> {
        let mut first: Vec<(u64, RequestId)> =
            self.order.iter().take(count).map(|(&number, waits)| (number, waits.request.id)).collect();
        if planted_bugs::is(Bug::LastRequestFirst) {
            first.reverse();
        }
        first.into_iter().filter_map(|(number, id)| Some((number, self.remove(id)?))).collect()
    }

    /// Takes a request out, wherever it stands.
    pub(crate) fn remove(&mut self, id: RequestId) -> Option<WaitingRequest> {
        let waits = self.order.remove(&self.numbers.remove(&id)?)?;
        self.tokens -= waits.request.prompt.len() as u64;
        Some(waits)
    }

    /// The request, if it waits.
    pub(crate) fn get(&self, id: RequestId) -> Option<&WaitingRequest> {
        self.order.get(self.numbers.get(&id)?)
    }

    /// Returns how many wait.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the tokens of their prompts.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }
}
