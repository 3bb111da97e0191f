#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use domain::session::{Assignment, Submit};
use worker::{Refusal, Role};

/// The role of a decode worker: it takes prompts over, or computes them, and decodes.
#[derive(Clone, Copy, Debug)]
pub struct Decode;

impl Role for Decode {
    fn judge(&self, submit: &Submit) -> Result<(), Refusal> {
        match submit.assignment {
            Assignment::Decode { .. } | Assignment::TakeOver { .. } | Assignment::Whole => Ok(()),
            Assignment::Prefill { .. } => {
                Err(Refusal::OtherRole("a decode worker does not compute prompts for others"))
            }
        }
    }
}
