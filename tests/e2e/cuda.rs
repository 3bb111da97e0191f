//! The device for cards of NVIDIA in whole processes: `baton serve --device cuda`, and workers of one role each that
//! share the one card of this host.
//!
//! The card is a real one, or the emulator that `LD_LIBRARY_PATH` names (`make test-cuda`). Without either these tests
//! are skipped, and say so.

pub(crate) mod card;
mod families;
mod lost;
mod memory;
mod operators;
mod paths;
