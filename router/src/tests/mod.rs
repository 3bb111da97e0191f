//! The whole router over a real socket, with workers that a test plays by hand.
//!
//! Metrics belong to a process: tests that read them count on one process for each test, as nextest gives it.

mod access;
mod additions;
mod faults;
mod generation;
mod http;
mod keys;
mod lifecycle;
mod manners;
mod messages;
mod ollama;
mod operators;
mod refusals;
mod responses;
mod strangers;
mod structure;
mod tokens;
mod tools;
pub(crate) mod world;
