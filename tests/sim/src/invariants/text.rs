//! A text is that of an undisturbed run.

use crate::client::Client;
use domain::Choice;
use domain::session::TokenRow;

pub(crate) const NAME: &str = "the text of an undisturbed run";

pub(crate) fn check(client: &Client, choice: Choice, row: &TokenRow) -> Result<(), String> {
    let text = client.undisturbed[usize::from(choice.0)].text();
    match text.get(row.index as usize) {
        Some(&token) if token == row.token => Ok(()),
        Some(token) => Err(format!("{choice} has {} as token {}, not {token}", row.token, row.index)),
        None => Err(format!("{choice} has a token {} where the text has {}", row.index, text.len())),
    }
}
