//! Object transfers: what may be asked of a store, checked and cut into requests.

use crate::regions::RegionId;
use crate::speed::storage_speed::Both;
use kv_memory::Memory;
use object_store::path::Path;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a key, at most, by the rules of S3.
const KEY_BYTES_MAX: usize = 1024;

/// What to do with an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectWork {
    /// Reads pieces of it into memory, in no order.
    Read {
        /// Its key.
        key: String,
        /// The memory.
        memory: RegionId,
        /// The pieces of the object, and where each goes.
        pieces: Vec<ObjectPiece>,
    },
    /// Writes memory as the object, unless there is one.
    Write {
        /// Its key.
        key: String,
        /// The memory.
        memory: RegionId,
        /// Bytes of that.
        range: Range<u64>,
    },
    /// Deletes it, if it is there.
    Delete {
        /// Its key.
        key: String,
    },
    /// Looks whether it is there.
    Look {
        /// Its key.
        key: String,
    },
    /// Looks which objects there are.
    List {
        /// What comes before a slash in their keys.
        prefix: String,
        /// Only those whose keys come after this one.
        after: Option<String>,
        /// So many at most. A store tells of 1,000 in answer to a request.
        keys_max: usize,
    },
}

/// One contiguous piece of an object and of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectPiece {
    /// Byte offset in the object.
    pub object: u64,
    /// Byte offset in the memory.
    pub memory: u64,
    /// Bytes.
    pub len: usize,
}

/// Why an object transfer could not be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectPrepareError {
    /// A key that no object can have.
    #[error("no object can have the key {key:?}: {why}")]
    Key {
        /// The key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// Memory that was never registered.
    #[error("the mover has no memory {0:?}")]
    NoMemory(RegionId),
    /// Memory of a device, which this process neither reads nor writes.
    #[error("the memory {0:?} is a device's: objects are read into the host's")]
    Device(RegionId),
    /// A piece that leaves its memory, or any object there can be.
    #[error("{piece:?} leaves the memory or the object")]
    OutOfBounds {
        /// The piece.
        piece: ObjectPiece,
    },
}

/// What a transfer does: checked against the bounds of its memory, which it keeps mapped.
pub(super) struct ObjectPlan {
    /// Of a listing, what the keys begin with.
    pub(super) key: Path,
    pub(super) plan: Plan,
}

/// What is asked for.
pub(super) enum Plan {
    Read(Arc<dyn Memory>, Vec<ObjectPiece>),
    /// Parts of the object in their order; one where it is written at once.
    Write(Arc<dyn Memory>, Vec<ObjectPiece>),
    Delete,
    Look,
    /// Keys after this one, and how many.
    List(Option<Path>, usize),
}

impl ObjectPlan {
    pub(super) fn new(
        work: ObjectWork,
        part_bytes: usize,
        memory: impl Fn(RegionId) -> Option<Arc<dyn Memory>>,
    ) -> Result<Self, ObjectPrepareError> {
        let registered = |region| {
            let memory = memory(region).ok_or(ObjectPrepareError::NoMemory(region))?;
            if memory.place().host().is_some() { Ok(memory) } else { Err(ObjectPrepareError::Device(region)) }
        };
        let (key, plan) = match work {
            ObjectWork::Read { key, memory, pieces } => {
                let memory = registered(memory)?;
                check(&*memory, &pieces)?;
                (key, Plan::Read(memory, cut(merge(pieces), part_bytes)))
            }
            ObjectWork::Write { key, memory, range } => {
                let memory = registered(memory)?;
                let len = range.end.checked_sub(range.start).and_then(|len| usize::try_from(len).ok());
                let piece = ObjectPiece { object: 0, memory: range.start, len: len.unwrap_or(usize::MAX) };
                check(&*memory, &[piece])?;
                let parts = if piece.len == 0 { vec![piece] } else { cut(vec![piece], part_bytes) };
                (key, Plan::Write(memory, parts))
            }
            ObjectWork::Delete { key } => (key, Plan::Delete),
            ObjectWork::Look { key } => (key, Plan::Look),
            ObjectWork::List { prefix, after, keys_max } => {
                (prefix, Plan::List(after.map(parse).transpose()?, keys_max))
            }
        };
        Ok(Self { key: parse(key)?, plan })
    }

    /// Bytes that it reads and writes. `None`: it is about none.
    pub(super) fn bytes(&self) -> Option<Both<u64>> {
        let sum = |pieces: &[ObjectPiece]| pieces.iter().map(|piece| piece.len as u64).sum();
        match &self.plan {
            Plan::Read(_, pieces) => Some(Both { read: sum(pieces), written: 0 }),
            Plan::Write(_, pieces) => Some(Both { read: 0, written: sum(pieces) }),
            Plan::Delete | Plan::Look | Plan::List(..) => None,
        }
    }
}

fn parse(key: String) -> Result<Path, ObjectPrepareError> {
    let wrong = |why: String| Err(ObjectPrepareError::Key { key: key.clone(), why });
    match Path::parse(&key) {
        Ok(path) if path.as_ref() == key && !key.is_empty() && key.len() <= KEY_BYTES_MAX => Ok(path),
        Ok(_) => wrong(format!("1 to {KEY_BYTES_MAX} bytes are wanted, no slash at an end")),
        Err(error) => wrong(error.to_string()),
    }
}

fn check(memory: &dyn Memory, pieces: &[ObjectPiece]) -> Result<(), ObjectPrepareError> {
    let inside = |piece: &&ObjectPiece| {
        let end = piece.memory.checked_add(piece.len as u64);
        end.is_some_and(|end| end <= memory.len() as u64) && piece.object.checked_add(piece.len as u64).is_some()
    };
    match pieces.iter().find(|piece| !inside(piece)) {
        Some(&piece) => Err(ObjectPrepareError::OutOfBounds { piece }),
        None => Ok(()),
    }
}

/// Returns what is neighboured at both ends becomes one piece.
fn merge(mut pieces: Vec<ObjectPiece>) -> Vec<ObjectPiece> {
    pieces.retain(|piece| piece.len > 0);
    pieces.sort_unstable_by_key(|piece| piece.object);
    pieces.dedup_by(|next, last| {
        let len = last.len as u64;
        let follows = (last.object + len, last.memory + len) == (next.object, next.memory);
        if follows {
            last.len += next.len;
        }
        follows
    });
    pieces
}

/// No piece longer than a part.
fn cut(pieces: Vec<ObjectPiece>, part_bytes: usize) -> Vec<ObjectPiece> {
    let parts = |piece: ObjectPiece| {
        (0..piece.len).step_by(part_bytes).map(move |at| ObjectPiece {
            object: piece.object + at as u64,
            memory: piece.memory + at as u64,
            len: (piece.len - at).min(part_bytes),
        })
    };
    pieces.into_iter().flat_map(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_memory::{GuardedMemory, SealedMemory};

    fn piece(object: u64, memory: u64, len: usize) -> ObjectPiece {
        ObjectPiece { object, memory, len }
    }

    fn prepared(work: ObjectWork) -> Result<Vec<ObjectPiece>, ObjectPrepareError> {
        let memory: Arc<dyn Memory> = Arc::new(SealedMemory::new("test", 100).expect("memory"));
        let transfer = ObjectPlan::new(work, 40, |id| (id == RegionId(0)).then(|| memory.clone()))?;
        Ok(match transfer.plan {
            Plan::Read(_, pieces) | Plan::Write(_, pieces) => pieces,
            Plan::Delete | Plan::Look | Plan::List(..) => Vec::new(),
        })
    }

    fn read(pieces: &[ObjectPiece]) -> ObjectWork {
        ObjectWork::Read { key: "a/b".to_owned(), memory: RegionId(0), pieces: pieces.to_vec() }
    }

    fn write(range: Range<u64>) -> ObjectWork {
        ObjectWork::Write { key: "a".to_owned(), memory: RegionId(0), range }
    }

    #[test]
    fn neighbours_are_read_together_in_parts() {
        let asked = [piece(20, 10, 20), piece(0, 80, 10), piece(40, 30, 30), piece(70, 61, 1), piece(5, 5, 0)];
        let found = prepared(read(&asked)).expect("it is sound");
        assert_eq!(found, [piece(0, 80, 10), piece(20, 10, 40), piece(60, 50, 10), piece(70, 61, 1)]);
        assert_eq!(prepared(write(10..100)).expect("it is sound").len(), 3);
        assert_eq!(prepared(write(10..10)).expect("an empty object is one"), [piece(0, 10, 0)]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for work in [
            read(&[piece(0, 90, 11)]),
            read(&[piece(u64::MAX, 0, 1)]),
            read(&[piece(0, u64::MAX, 2)]),
            write(50..101),
            #[expect(clippy::reversed_empty_ranges, reason = "it is to be refused")]
            write(7..6),
        ] {
            let refused = prepared(work.clone()).expect_err("refused");
            assert!(matches!(refused, ObjectPrepareError::OutOfBounds { .. }), "{work:?}: {refused}");
        }
        for key in ["", "/a", "a/", "a//b", "a/../b", &"k".repeat(1025)] {
            let refused = prepared(ObjectWork::Look { key: key.to_owned() }).expect_err("refused");
            assert!(matches!(refused, ObjectPrepareError::Key { .. }), "{key}: {refused}");
        }
        let nowhere = ObjectWork::Write { key: "a".to_owned(), memory: RegionId(1), range: 0..1 };
        assert_eq!(prepared(nowhere), Err(ObjectPrepareError::NoMemory(RegionId(1))));
        for work in [read(&[piece(0, 0, 1)]), write(0..1)] {
            let memory = Arc::new(GuardedMemory::new(100, None).expect("memory"));
            let refused = ObjectPlan::new(work, 40, |_| Some(memory.clone()));
            assert_eq!(refused.err(), Some(ObjectPrepareError::Device(RegionId(0))));
        }
    }
}
