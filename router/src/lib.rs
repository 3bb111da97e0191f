//! The router's shell: OpenAI's API over HTTP on one side, sessions with workers on the other, and one task between
//! them that owns the brain (`placement`) and does what it says.
//!
//! ```text
//!   client ── http ── api (parse, tokenize) ── notes ──> brain ── messages ──> workers
//!     ^                                                   │  ^                   │
//!     └────── answer (text, stop strings, JSON) <─ updates ┘  └──── messages ─────┘
//! ```
//!
//! What is deliberately absent: decisions about where a request runs (`placement`), bytes of messages (`proto`), how
//! a session is carried (its [`WorkerLink`] says), and everything that computes tokens.
#![forbid(unsafe_code)]

mod answer;
mod api;
mod brain;
mod clock;
mod config;
mod error;
mod http;
mod link;
mod serve;

pub use config::{ModelCard, RouterConfig};
pub use link::{LinkFull, WorkerLink};
pub use serve::serve;

#[cfg(test)]
mod tests;
