//! Clients: what each asked, what it should get and what it got.

use crate::event::{Life, RouterIndex};
use crate::expected::Undisturbed;
use crate::scenario::{Ask, NO_DEADLINE};
use domain::{End, Epoch, Tenant, Time, Token};

/// How it ended for the client.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Or was refused.
    Ended(End),
    HungUp,
    /// Its router died, or was not there.
    RouterGone,
}

/// A client.
pub(crate) struct Client {
    pub(crate) ask: Ask,
    /// When it asked.
    pub(crate) since: Time,
    /// What each choice says when nothing goes wrong.
    pub(crate) undisturbed: Vec<Undisturbed>,
    pub(crate) tenant: Tenant,
    pub(crate) router: (RouterIndex, Life),
    /// The tokens of each choice.
    pub(crate) got: Vec<Vec<Token>>,
    pub(crate) choice_ends: Vec<Option<End>>,
    pub(crate) outcome: Option<Outcome>,
    /// The epoch of the newest attempt; moves aside.
    pub(crate) epoch: Epoch,
    /// The choice that a stop string ended.
    pub(crate) stopped: bool,
}

impl Client {
    /// Whether its time may be over before all others'.
    pub(crate) fn has_deadline(&self) -> bool {
        self.ask.request.deadline < NO_DEADLINE
    }
}
