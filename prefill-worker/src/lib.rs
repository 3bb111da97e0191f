#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use domain::session::{Assignment, Submit};
use worker::{Refusal, Role};

/// The role of a prefill worker: it takes prompts that it hands off.
#[derive(Clone, Copy, Debug)]
pub struct Prefill;

impl Role for Prefill {
    fn judge(&self, submit: &Submit) -> Result<(), Refusal> {
        match submit.assignment {
            Assignment::Prefill { .. } => Ok(()),
            Assignment::Decode { .. } | Assignment::TakeOver { .. } | Assignment::Whole => {
                Err(Refusal::OtherRole("a prefill worker does not decode"))
            }
        }
    }
}
