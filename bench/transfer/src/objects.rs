//! Blocks as objects of a store, by the mover that the object tier has.

use crate::ends::PATIENCE;
use crate::error::BenchError;
use crate::own::{Own, Storage};
use crate::settings::{Cell, Over, Store};
use std::time::Duration;
use transport::{
    Direction, Failure, ObjectConfig, ObjectMover, ObjectOutcome, ObjectPiece, ObjectTransfer, ObjectWork, RegionId,
    TransferState,
};

/// Objects that are written and read in a pass, at most.
pub(crate) const OBJECTS_MAX: usize = 1024;
/// How long the store may say nothing, and how long a request may take with its repetitions: less than a transfer
/// is waited for.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const GIVE_UP: Duration = Duration::from_secs(30);
/// What the keys of all objects begin with.
const PREFIX: &str = "baton-bench/transfer";

/// The objects of a cell.
pub(crate) struct Objects {
    mover: ObjectMover,
    memory: RegionId,
    in_flight: usize,
    bytes: usize,
}

impl Objects {
    /// Makes the objects. Errors: settings that cannot be.
    pub(crate) fn new(store: &Store, cell: Cell, own: &Own) -> Result<Self, BenchError> {
        let config = ObjectConfig {
            name: "bench".to_owned(),
            endpoint: store.endpoint.clone(),
            region: store.region.clone(),
            bucket: store.bucket.clone(),
            credentials: store.credentials.clone(),
            requests_max: store.requests,
            posted_max: cell.in_flight,
            part_bytes: ObjectConfig::PART_BYTES_MIN,
            silence_max: SILENCE_MAX,
            give_up: GIVE_UP,
        };
        // Every transfer is waited for.
        let mover = ObjectMover::start(config, &Failure::new(), Box::new(drop))?;
        let memory = mover.register(own.memory());
        Ok(Self { mover, memory, in_flight: cell.in_flight, bytes: cell.bytes })
    }

    /// Removes these from the store.
    pub(crate) fn remove(&self, blocks: &[usize]) -> Result<(), BenchError> {
        for some in blocks.chunks(self.in_flight) {
            let delete = |block: &usize| self.mover.prepare(ObjectWork::Delete { key: self.key(*block) });
            let transfers = some.iter().map(delete).collect::<Result<Vec<_>, _>>()?;
            transfers.iter().try_for_each(|transfer| self.post(transfer))?;
            transfers.iter().try_for_each(|transfer| self.wait(transfer).map(drop))?;
        }
        Ok(())
    }

    fn key(&self, block: usize) -> String {
        format!("{PREFIX}/{}/{block}", self.bytes)
    }
}

impl Storage for Objects {
    type Transfer = ObjectTransfer;

    fn prepare(&self, direction: Direction, blocks: &[usize], first: usize) -> Result<ObjectTransfer, BenchError> {
        let &[block] = blocks else { return Err(BenchError::Settings("an object is one block".to_owned())) };
        let (key, memory, at) = (self.key(block), self.memory, (first * self.bytes) as u64);
        let work = match direction {
            Direction::Write => ObjectWork::Write { key, memory, range: at..at + self.bytes as u64 },
            Direction::Read => {
                let pieces = vec![ObjectPiece { object: 0, memory: at, len: self.bytes }];
                ObjectWork::Read { key, memory, pieces }
            }
        };
        Ok(self.mover.prepare(work)?)
    }

    fn post(&self, transfer: &ObjectTransfer) -> Result<(), BenchError> {
        self.mover.post(transfer)?;
        Ok(())
    }

    fn wait(&self, transfer: &ObjectTransfer) -> Result<Duration, BenchError> {
        let TransferState::Ended(result) = transfer.wait(PATIENCE) else {
            return Err(BenchError::hangs(Over::Object, PATIENCE));
        };
        let report = result?;
        match report.outcome {
            ObjectOutcome::Missing | ObjectOutcome::Existed => Err(BenchError::Disturbed),
            _ => Ok(report.wire),
        }
    }

    fn make_way(&self, blocks: &[usize]) -> Result<(), BenchError> {
        self.remove(blocks)
    }
}
