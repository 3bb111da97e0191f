//! Loading: a prompt whose prefix lies in a tier below the device waits until the prefix is loaded, or is computed
//! while the prefix is loaded from its end, whichever is predicted to be fastest. Blocks are written to tiers as
//! `kv-manager` decides.
//!
//! How it works:
//!
//! 1. A prompt is queued. The store is asked for those of its blocks that no index has ([`store_lookup`]). While the
//!    prompt waits for device memory, records of slow tiers are lifted into host memory ([`lifts`]).
//! 2. Its turn for device memory comes. [`policy::plan_load`] decides from a [`policy::LoadOutlook`], and
//!    [`prompt_loads`] does what it says. [`Loads`] has all loads in progress, and the prompts that wait for them.
//! 3. Reads end one by one ([`tier_events`]). Each block is cached when all its records are there, and prompts whose
//!    part is complete continue. A prompt that is computed meanwhile meets its load ([`two_ended_load`]).
//!
//! Prefixes that other workers or operators ask for are loaded, too ([`prefix_loads`]).
//!
//! Deliberately absent: what moves the bytes, which is the crate `tiers`; which blocks are worth keeping, which is
//! decided in `kv-manager`.

mod lift_queue;
mod lifts;
mod loader;
mod loads;
mod policy;
mod prefix_loads;
mod prompt_loads;
mod store_lookup;
#[cfg(test)]
mod tests;
mod tier_events;
mod two_ended_load;

pub(crate) use lift_queue::Lifts;
pub(crate) use loader::{Loader, predicted_load_s};
pub(crate) use loads::Loads;
pub(crate) use prefix_loads::Unparking;
pub(crate) use two_ended_load::Pace;
