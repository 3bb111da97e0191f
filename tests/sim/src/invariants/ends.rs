//! Every choice and every request ends once, and as its tokens say.

use crate::client::{Client, Outcome};
use domain::{Choice, End, Ender, Finish};

pub(crate) const NAME: &str = "exactly one end, and the right one";

/// A choice ends.
pub(crate) fn choice(client: &Client, choice: Choice, end: &End) -> Result<(), String> {
    let at = usize::from(choice.0);
    if client.choice_ends[at].is_some() {
        return Err(format!("{choice} ends twice"));
    }
    let (got, params) = (&client.got[at], &client.ask.request.params);
    let whole = got.len() == client.undisturbed[at].text().len();
    let stops = got.last().is_some_and(|token| params.stop_tokens.contains(token));
    let right = match (end.by, end.finish) {
        (Ender::Done, Finish::Stop) => client.stopped || whole && stops,
        (Ender::Limit, Finish::Length) => whole && got.len() == params.max_tokens as usize,
        _ => false,
    };
    if right { Ok(()) } else { Err(format!("{choice} ends after {} tokens: {end:?}", got.len())) }
}

/// A request ends.
pub(crate) fn request(client: &Client, outcome: &Outcome, must_succeed: bool) -> Result<(), String> {
    if let Some(before @ Outcome::Ended(_)) = &client.outcome {
        return Err(format!("it ends twice: {before:?} and {outcome:?}"));
    }
    let regular = matches!(outcome, Outcome::Ended(End { finish: Finish::Stop | Finish::Length, .. }));
    if regular && client.choice_ends.iter().any(Option::is_none) {
        return Err(format!("it ends before its choices: {outcome:?}"));
    }
    if must_succeed && !regular {
        return Err(format!("it should have been served: {outcome:?}"));
    }
    Ok(())
}
