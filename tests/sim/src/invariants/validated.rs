//! A reader makes nothing of a copy that its owner has not called valid.

use crate::process::WorkerLife;
use domain::session::{Assignment, TokenRow};

pub(crate) const NAME: &str = "nothing is made of a copy before its owner calls it valid";

pub(crate) fn check(reader: &WorkerLife, row: &TokenRow) -> Result<(), String> {
    let attempt = (row.key.request, row.key.epoch);
    match reader.parts.get(&attempt) {
        Some(Assignment::Decode { .. } | Assignment::TakeOver { .. }) if !reader.validated.contains(&attempt) => {
            Err(format!("token {} of {} is out", row.index, row.key))
        }
        _ => Ok(()),
    }
}
