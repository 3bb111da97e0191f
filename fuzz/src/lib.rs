//! Fuzz targets: everything here that reads bytes from outside, each as a function that must neither panic nor
//! take what it should not.
//!
//! Ordinary tests run each over its corpus, over what our own side writes, and over some thousands of changes of
//! both that a seed decides (tests/corpora.rs). `cargo fuzz`, with a nightly compiler, looks for more; what it
//! finds is mended and kept in `corpus/`, one folder a target.
//!
//! What is deliberately absent: chat templates, which are programs and come with the model that is trusted.

mod mutate;
mod seeds;
pub mod targets;

pub use mutate::Mutator;
pub use seeds::seeds;

/// A target, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 23] = [
    ("config", targets::config),
    ("control", targets::control),
    ("control_ends", targets::control_ends),
    ("disk_log", targets::disk_log),
    ("entry", targets::entry),
    ("etcd", targets::etcd),
    ("gguf", targets::gguf),
    ("handoff", targets::handoff),
    ("kubernetes", targets::kubernetes),
    ("metadata", targets::metadata),
    ("output", targets::output),
    ("rdma_exchange", targets::rdma_exchange),
    ("rdma_owner", targets::rdma_owner),
    ("rdma_reader", targets::rdma_reader),
    ("record_header", targets::record_header),
    ("request", targets::request),
    ("safetensors", targets::safetensors),
    ("session", targets::session),
    ("slab", targets::slab),
    ("tcp_owner", targets::tcp_owner),
    ("tcp_reader", targets::tcp_reader),
    ("tcp_wire", targets::tcp_wire),
    ("trace", targets::trace),
];
