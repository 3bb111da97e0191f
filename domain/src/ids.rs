//! Ids. All are newtypes, so that one cannot stand in for another.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A vocabulary index.
pub type Token = u32;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

/// A request, unique over all routers of a cluster: drawn by the router that accepted it. Clients are told it in
/// the same words as logs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "req_{:016x}", self.0)
    }
}

id!(
    /// Which of the `n` sequences of a request.
    Choice(u16), "c"
);
id!(
    /// Grows with each attempt at a request; anything that carries an older one is refused and counted.
    Epoch(u32), "e"
);
id!(
    /// A worker of the cluster; stays the same over its restarts.
    WorkerId(u32), "w"
);
id!(
    /// A life of a worker: a restarted worker has a new one.
    Incarnation(u64), "i"
);
id!(
    /// A lease of one owner incarnation. Never reused by it.
    LeaseId(u64), "l"
);
id!(
    /// A step of one engine, growing by one with every submitted plan, from 1. Never reset.
    StepId(u64), "s"
);
id!(
    /// Index of a block in the pool of its KV group.
    BlockId(u32), "b"
);
id!(
    /// Index of a slot in which a device keeps a sequence from step to step.
    SlotId(u32), "slot "
);
id!(
    /// Index of a KV group in the layout.
    GroupId(u16), "g"
);
id!(
    /// How often a block's memory was given to a new use. Raised before the first write of the reuse.
    Generation(u64), "gen"
);

impl WorkerId {
    /// Makes the id that follows from a worker's name alone: the first four bytes, little endian, of the name's BLAKE3
    /// hash.
    pub fn of_name(name: &str) -> Self {
        let hash = blake3::hash(name.as_bytes());
        let [a, b, c, d, ..] = *hash.as_bytes();
        Self(u32::from_le_bytes([a, b, c, d]))
    }
}

/// One sequence of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct SeqKey {
    /// The request it belongs to.
    pub request: RequestId,
    /// The attempt it belongs to.
    pub epoch: Epoch,
    /// Which of the request's sequences.
    pub choice: Choice,
}

impl fmt::Display for SeqKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.request, self.epoch, self.choice)
    }
}
