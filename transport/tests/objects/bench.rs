//! A mover with memory, and the ends of its transfers.

use crate::store::BUCKET;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use transport::{
    Failure, ObjectConfig, ObjectCredentials, ObjectEnd, ObjectError, ObjectMover, ObjectOutcome, ObjectPiece,
    ObjectReport, ObjectTrouble, ObjectWork, RegionId, SealedMemory, TransferId,
};

/// Nothing takes nearly as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const POSTED_MAX: usize = 8;
pub(crate) const PART: usize = ObjectConfig::PART_BYTES_MIN;
const MEMORY: usize = 32 << 20;

pub(crate) struct Bench {
    pub(crate) mover: ObjectMover,
    endpoint: String,
    ends: Receiver<ObjectEnd>,
    memory: Arc<SealedMemory>,
}

pub(crate) fn config(address: SocketAddr) -> ObjectConfig {
    ObjectConfig {
        name: "test".to_owned(),
        endpoint: format!("http://{address}"),
        region: "us-east-1".to_owned(),
        bucket: BUCKET.to_owned(),
        credentials: ObjectCredentials { key_id: "key".to_owned(), secret: "secret".to_owned(), token: None },
        requests_max: 4,
        posted_max: POSTED_MAX,
        part_bytes: PART,
        silence_max: PATIENCE,
        give_up: PATIENCE,
    }
}

impl Bench {
    pub(crate) fn new(config: ObjectConfig) -> Self {
        let (sender, ends) = sync_channel(64);
        let endpoint = config.endpoint.clone();
        let sink = Box::new(move |end| sender.try_send(end).expect("few end"));
        let mover = ObjectMover::start(config, &Failure::new(), sink).expect("it starts");
        let memory = Arc::new(SealedMemory::new("test", MEMORY).expect("memory"));
        assert_eq!(mover.register(memory.clone()), RegionId(0));
        Self { mover, endpoint, ends, memory }
    }

    pub(crate) fn post(&self, work: ObjectWork) -> TransferId {
        self.mover.post(&self.mover.prepare(work).expect("it is sound")).expect("there is room")
    }

    pub(crate) fn ended(&self) -> ObjectEnd {
        self.ends.recv_timeout(PATIENCE).expect("it ends")
    }

    /// The next end, if it has come.
    pub(crate) fn ended_already(&self) -> Option<ObjectEnd> {
        self.ends.try_recv().ok()
    }

    /// Ends that are there, and no more.
    pub(crate) fn rest(self) -> Vec<ObjectEnd> {
        drop(self.mover);
        self.ends.iter().collect()
    }

    pub(crate) fn done(&self, work: ObjectWork) -> Result<ObjectReport, ObjectError> {
        let id = self.post(work);
        let end = self.ended();
        assert_eq!(end.id, id);
        end.result
    }

    pub(crate) fn outcome(&self, work: ObjectWork) -> ObjectOutcome {
        self.done(work).expect("it succeeds").outcome
    }

    /// What it fails of; whoever reads the error learns where and what to do.
    pub(crate) fn trouble(&self, work: ObjectWork) -> ObjectTrouble {
        let error = self.done(work).expect_err("it fails");
        let said = error.to_string();
        println!("{said}");
        let ObjectError::Failed { endpoint, bucket, key, trouble, .. } = error else { panic!("{said}") };
        assert_eq!(endpoint, self.endpoint);
        for told in [&*endpoint, &*bucket, &*key, "To fix it: "] {
            assert!(said.contains(told), "{told} is not in {said:?}");
        }
        trouble
    }

    /// Fills memory with what `byte` says of each place.
    pub(crate) fn fill(&self, range: Range<usize>, byte: impl Fn(usize) -> u8) {
        assert!(range.end <= MEMORY);
        // SAFETY: the bytes are inside the memory, and no transfer is open that touches them.
        range.for_each(|at| unsafe { self.memory.as_ptr().add(at).write(byte(at)) });
    }

    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.end <= MEMORY);
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(range.start), range.len()) }
    }

    /// Writes `len` bytes of `byte` from the front of the memory.
    pub(crate) fn put(&self, key: &str, len: usize, byte: impl Fn(usize) -> u8) -> ObjectOutcome {
        self.fill(0..len, byte);
        self.outcome(write(key, len))
    }
}

/// What every test writes: no two neighbours alike, and no two parts.
pub(crate) fn pattern(at: usize) -> u8 {
    ((at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

pub(crate) fn write(key: &str, len: usize) -> ObjectWork {
    write_from(key, 0..len)
}

pub(crate) fn write_from(key: &str, range: Range<usize>) -> ObjectWork {
    ObjectWork::Write { key: key.to_owned(), memory: RegionId(0), range: range.start as u64..range.end as u64 }
}

/// Reads from the object's front to `at` of the memory.
pub(crate) fn read(key: &str, at: usize, len: usize) -> ObjectWork {
    read_pieces(key, &[ObjectPiece { object: 0, memory: at as u64, len }])
}

pub(crate) fn read_pieces(key: &str, pieces: &[ObjectPiece]) -> ObjectWork {
    ObjectWork::Read { key: key.to_owned(), memory: RegionId(0), pieces: pieces.to_vec() }
}

pub(crate) fn delete(key: &str) -> ObjectWork {
    ObjectWork::Delete { key: key.to_owned() }
}

pub(crate) fn look(key: &str) -> ObjectWork {
    ObjectWork::Look { key: key.to_owned() }
}
