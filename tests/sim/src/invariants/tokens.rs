//! A client's tokens come without gaps, none comes twice, and none comes after the end.

use crate::client::{Client, Outcome};
use domain::Choice;
use domain::session::TokenRow;

pub(crate) const NAME: &str = "gapless, unrepeated tokens";

pub(crate) fn check(client: &Client, choice: Choice, row: &TokenRow) -> Result<(), String> {
    let at = usize::from(choice.0);
    let next = client.got[at].len() as u32;
    if row.index != next {
        return Err(format!("{choice} gets token {} where {next} comes next", row.index));
    }
    if client.choice_ends[at].is_some() || matches!(client.outcome, Some(Outcome::Ended(_))) {
        return Err(format!("{choice} gets token {next} after its end"));
    }
    let asked = client.ask.request.params.logprobs.is_some();
    if row.logprobs.is_some() != asked {
        return Err(format!("{choice} asked for probabilities: {asked}, and token {next} has {:?}", row.logprobs));
    }
    Ok(())
}
