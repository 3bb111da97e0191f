//! The router's shell: OpenAI's API over HTTP on one side, sessions with workers on the other, and one task between
//! them that owns the brain (`placement`) and does what it says.
//!
//! ```text
//!   client ── http ── api (parse, tokenize) ── notes ──> brain ── messages ──> workers
//!     ^                                                   │  ^                   │
//!     └────── answer (text, stop strings, JSON) <─ updates ┘  └──── messages ─────┘
//! ```
//!
//! What is deliberately absent: decisions about where a request runs (`placement`), bytes of messages (`proto`), and
//! everything that computes tokens.
#![forbid(unsafe_code)]

mod answer;
mod api;
mod brain;
mod clock;
mod config;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod serve;
mod sessions;

pub use config::{ModelCard, RouterConfig};
pub use http::serve_ops;
pub use serve::{Listeners, keep_up, serve};
pub use sessions::{Dial, DialError, Dialed, Dialer, FROM_WORKER_BYTES_MAX, Sessions, TO_WORKER_BYTES_MAX};

#[cfg(test)]
mod tests;
