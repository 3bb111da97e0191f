//! The real binary, from outside: `baton` as a process, spoken to over sockets and signals like by anybody else.
//!
//! What is deliberately absent: timed assertions. Whoever waits here does so with [`server::PATIENCE`], which is
//! generous; a machine that is busy with something else makes these tests slow, not red. How the workers compute
//! is shown by the targets beside this one; here it only counts what a client, an operator or an attacker can see.

mod address;
mod admin;
#[path = "../../discovery/tests/kubernetes/server.rs"]
mod api_server;
mod asks;
mod bad_input;
mod bench;
mod bench_engine;
mod bench_tiers;
#[path = "../../proto/tests/tls/certificates.rs"]
mod certificates;
#[path = "../reference/chat_model.rs"]
mod chat_model;
mod chats;
mod clients;
mod cluster;
mod collector;
mod command_line;
mod cuda;
mod discovery;
mod disk;
mod dump;
mod encodings;
mod encryption;
#[path = "../../discovery/tests/etcd/server.rs"]
mod etcd;
mod explained;
mod gguf;
#[path = "../reference/gguf_writer.rs"]
mod gguf_writer;
mod gone;
mod host;
mod http;
#[cfg(not(debug_assertions))]
mod kernels;
mod keys;
#[cfg(feature = "failpoints")]
mod kills;
mod lifecycle;
mod metrics;
mod mixed;
mod models;
mod not_finite;
mod object;
mod pods;
mod prefixes;
mod probes;
mod process;
mod processes;
mod rdma;
mod refusals;
mod reload;
mod rolling;
mod same_text;
mod server;
mod settings;
mod simulated;
#[path = "../../transport/tests/objects/store.rs"]
mod store;
mod strangers;
mod structure;
mod tls;
mod topo;
mod traces;
