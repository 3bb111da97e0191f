//! What a fuzzer feeds here: the slab of another worker, as it may lie in the folder that a host's workers share.

pub use crate::host::fuzzing::{slab, slab_seed};
