//! Sessions and ports over TLS, between a router and a worker that the test plays.

mod certificates;
mod files;
mod refusals;
mod sessions;
