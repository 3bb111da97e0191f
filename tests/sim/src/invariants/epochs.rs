//! No token of an earlier attempt reaches a client.

use crate::client::Client;
use domain::session::TokenRow;

pub(crate) const NAME: &str = "nothing of an earlier attempt is taken";

pub(crate) fn check(client: &Client, row: &TokenRow) -> Result<(), String> {
    if row.key.epoch >= client.epoch {
        return Ok(());
    }
    Err(format!("token {} is of {}, the attempt of {}", row.index, row.key, client.epoch))
}
