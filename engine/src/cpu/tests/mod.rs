//! The device as a whole. Its results against another implementation are the business of the reference tests.

pub(in crate::cpu) mod effort;
mod invariance;
mod outputs;
mod plans;
pub(super) mod rig;
mod steps;
mod widths;
