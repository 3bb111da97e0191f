//! What a fuzzer feeds here: what a directory says, or what stands in its place.

pub(crate) mod reader;

pub use crate::etcd::fuzzing::{etcd, etcd_seeds};
pub use crate::kubernetes::fuzzing::kubernetes;
