#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod access;
mod answer;
mod api;
mod brain;
mod clock;
mod config;
mod dialects;
mod error;
mod explained;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod open_requests;
mod operated;
mod output;
mod record;
mod responses;
mod serve;
mod sessions;
mod traced;

pub use admin::{Browsers, Reach};
pub use config::{ModelCard, ResponsesConfig, RouterConfig, RouterLimits};
pub use http::serve_ops;
pub use keys::Keys;
pub use output::{OutputForms, UnknownForm};
pub use serve::{Listeners, keep_up, serve};
pub use sessions::{Dial, DialError, Dialed, Dialer, FROM_WORKER_BYTES_MAX, Sessions, TO_WORKER_BYTES_MAX};

#[cfg(test)]
mod tests;
