//! An object tier in a store that speaks the S3 API. All workers with the same bucket and prefix share it.
//!
//! 1. A record is one object: its header, then its bytes. Its key is made of model, group and identity, so all workers
//!    give a block the same name. An object is written only if there is none, so the store has each block once.
//! 2. What other workers wrote is found by listing the store in the background, a page at a time, at start and every so
//!    often.
//! 3. A store may have more than a worker remembers. What a prompt needs and no index has is looked up while the prompt
//!    is computed.
//!
//! No prompt waits for a listing or a lookup. While the store is away, moves fail at once, and it is listed again after
//! pauses that grow.

mod leftovers;
mod lookup;
mod rounds;

use crate::framed_store::{FRAMES_MAX, FramedStore, Store, frames};
use crate::model_key::ModelKey;
use crate::mover::{BACKLOG_MAX, TierEvent, TierOwner, TierParts};
use crate::mover_thread::{MoveKind, MoverThread, Order, StoreOutcome, now, orders};
use crate::records::Records;
use crate::shell_word::quoted;
use crate::store_error::StoreError;
use domain::{BlockHash, GroupId, KvLayout, SeqKey, WorkerId};
use kv_manager::tiers::header::HEADER;
use kv_manager::tiers::{Tier, TierConfig, TierWrite, WritePolicy};
use leftovers::{Leftover, Leftovers};
use lookup::{Found, Lookups};
use rounds::{PAGE_KEYS, Rounds};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use telemetry::metrics::{Gauge, tier_leftover_bytes};
use transport::{
    ListedObject, Memory, ObjectConfig, ObjectCredentials, ObjectError, ObjectMover, ObjectOutcome, ObjectPiece,
    ObjectReport, ObjectWork, PrivateMemory, RegionId, TransferId,
};

/// Records being written at once. The other frames are for records that prompts wait for.
const WRITES_MAX: usize = 4;
/// Listings, lookups and deletions at once, in addition to moves.
const CHORES_MAX: usize = 64;
/// A request is repeated if the store answers nothing for so long.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// A request fails after so long, repetitions included: less than a prompt waits for its load.
const GIVE_UP: Duration = Duration::from_secs(4);

/// What is said of records of earlier versions.
const LEFT_ALONE: &str = "the store has records of an earlier version: they are left alone, and may be removed once no \
                          worker of an earlier release is left";

/// Settings of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Name in the log.
    pub name: String,
    /// Whose it is.
    pub worker: WorkerId,
    /// Digest of the weights, on which records depend beside the layout.
    pub weights: [u8; 32],
    /// Where the store is: `https://HOST[:PORT]`, or `http://` where the network is trusted.
    pub endpoint: String,
    /// Region that requests are signed for.
    pub region: String,
    /// Bucket of all objects. It must exist.
    pub bucket: String,
    /// What keys begin with, without a slash at an end. Empty: nothing.
    pub prefix: String,
    /// Credentials that requests are signed with.
    pub credentials: ObjectCredentials,
    /// What is written.
    pub write: WritePolicy,
    /// Requests under way at once.
    pub requests_max: usize,
    /// Objects of each group that are remembered.
    pub known_max: u32,
    /// From the end of a listing to the next.
    pub list_every: Duration,
}

/// Opens a tier for this worker, whose pools have this layout. The store is not asked for anything yet. Errors:
/// settings that cannot be, or the system refuses memory or a thread.
pub fn open_object_tier(config: &StoreConfig, layout: &KvLayout, owner: &TierOwner) -> io::Result<TierParts> {
    let records = Records::new(layout, owner.pools.clone());
    let frame_bytes = HEADER + records.len_max();
    let frames = frames(frame_bytes);
    let memory = Arc::new(PrivateMemory::new(frames * frame_bytes)?);
    let (order, theirs) = orders();
    let orders = order.clone();
    let mover = ObjectConfig {
        name: config.name.clone(),
        endpoint: config.endpoint.clone(),
        region: config.region.clone(),
        bucket: config.bucket.clone(),
        credentials: config.credentials.clone(),
        requests_max: config.requests_max,
        posted_max: FRAMES_MAX + CHORES_MAX,
        // One request writes a record: the store can be asked to take it only if it has none.
        part_bytes: frame_bytes.max(ObjectConfig::PART_BYTES_MIN),
        silence_max: SILENCE_MAX,
        give_up: GIVE_UP,
    };
    // An error says that the tier is closed.
    let mover = ObjectMover::start(
        mover,
        &owner.failure,
        Box::new(move |end| drop(orders.send(Order::Ended(end.id, ended(end.result))))),
    )?;
    let region = mover.register(memory.clone());
    let keys = Keys::new(&config.prefix, layout, &config.weights);
    let listed_max = config.known_max as usize * layout.groups.len();
    let rounds = Rounds::new(now(), listed_max, config.list_every);
    let lookups = Lookups::new(keys.groups);
    let left = Left::new(config);
    let store = Objects { name: config.name.clone(), mover, region, keys, rounds, lookups, left };
    let memory: Arc<dyn Memory> = memory;
    let events = owner.events.clone();
    let sink = Box::new(move |event: TierEvent| events(event));
    let work = FramedStore::new(config.name.clone(), records, sink, theirs, store, memory, frame_bytes);
    let mover = MoverThread::start(format!("{}-objects", config.name), &owner.failure, order, move || work.run())?;
    let size = TierConfig {
        slots: vec![config.known_max; layout.groups.len()],
        writes_max: WRITES_MAX,
        backlog_max: BACKLOG_MAX,
        write: config.write,
    };
    tracing::info!(tier = config.name, endpoint = config.endpoint, bucket = config.bucket, "the object tier is open");
    Ok(TierParts { tier: Tier::Object, mover: Box::new(mover), config: size, records: Vec::new() })
}

fn ended(result: Result<ObjectReport, ObjectError>) -> StoreOutcome {
    match result.map(|report| report.outcome) {
        Ok(ObjectOutcome::Existed) => StoreOutcome::Existed,
        Ok(ObjectOutcome::Missing) => StoreOutcome::Missing,
        Ok(ObjectOutcome::Listed(keys)) => StoreOutcome::Listed(keys),
        Ok(_) => StoreOutcome::Done,
        Err(ObjectError::Cancelled) => StoreOutcome::Cancelled,
        Err(error) => StoreOutcome::Failed(error.into()),
    }
}

/// The names of objects.
struct Keys {
    /// What all of them begin with.
    folder: String,
    groups: u16,
}

impl Keys {
    fn new(prefix: &str, layout: &KvLayout, weights: &[u8; 32]) -> Self {
        // A worker of another version would delete these records as wrong ones.
        let folder = format!("{}{}", folder_of(prefix), ModelKey::of(layout, weights).joined('/'));
        Self { folder, groups: layout.groups.len() as u16 }
    }

    fn of(&self, group: GroupId, hash: BlockHash) -> String {
        let hash = u128::from_be_bytes(hash.0);
        format!("{}/{}/{hash:032x}", self.folder, group.0)
    }

    /// Returns what a key names. `None`: it is no key of this model.
    fn parse(&self, key: &str) -> Option<(GroupId, BlockHash)> {
        let (group, hash) = key.strip_prefix(&self.folder)?.strip_prefix('/')?.split_once('/')?;
        let group = group.parse().ok().filter(|&group| group < self.groups).map(GroupId)?;
        let hash = BlockHash(u128::from_str_radix(hash, 16).ok()?.to_be_bytes());
        // One record has one name.
        (self.of(group, hash) == key).then_some((group, hash))
    }
}

/// The store.
struct Objects {
    name: String,
    mover: ObjectMover,
    region: RegionId,
    keys: Keys,
    rounds: Rounds,
    lookups: Lookups,
    left: Left,
}

/// Returns what the keys of everything with this prefix begin with.
fn folder_of(prefix: &str) -> String {
    if prefix.is_empty() { String::new() } else { format!("{prefix}/") }
}

/// What earlier versions left in the store.
struct Left {
    leftovers: Leftovers,
    meter: Gauge,
    /// Bytes that were found.
    bytes: u64,
    /// Where the store is and where in it the tier is, for the command that removes something.
    endpoint: String,
    place: String,
}

impl Left {
    fn new(config: &StoreConfig) -> Self {
        let meter = tier_leftover_bytes(config.worker, Tier::Object.name());
        meter.set(0.0);
        let prefix = folder_of(&config.prefix);
        let place = format!("s3://{}/{prefix}", config.bucket);
        Self { leftovers: Leftovers::new(prefix), meter, bytes: 0, endpoint: config.endpoint.clone(), place }
    }

    /// Returns the command that removes the records of a version. Where other objects lie among them, none does.
    fn removal(&self, found: &Leftover) -> String {
        let place = quoted(&format!("{}{}/", self.place, found.version));
        if found.is_mixed {
            return format!("none: {place} has objects of others as well; remove the folders of models there");
        }
        format!("aws s3 rm --recursive --endpoint-url {} {place}", quoted(&self.endpoint))
    }
}

impl Objects {
    /// Asks the store for the next page of what earlier versions left.
    fn count_leftovers(&mut self) {
        let Some(work) = self.left.leftovers.next() else { return };
        match self.post(work) {
            Ok(id) => self.left.leftovers.asked(id),
            Err(reason) => self.leftovers_fail(&reason),
        }
    }

    fn leftovers_fail(&mut self, reason: &StoreError) {
        tracing::debug!(tier = self.name, %reason, "what earlier versions left in the store is not counted");
        self.left.leftovers.failed();
    }

    fn on_leftovers(&mut self, page: &[ListedObject]) {
        if let Some(found) = self.left.leftovers.answered(page) {
            self.left.bytes += found.bytes;
            self.left.meter.set(self.left.bytes as f64);
            let (tier, command) = (&self.name, self.left.removal(&found));
            let Leftover { version, objects, bytes, is_least, .. } = found;
            tracing::warn!(tier, version, objects, bytes, more = is_least, %command, "{LEFT_ALONE}");
        }
        self.count_leftovers();
    }

    fn post(&self, work: ObjectWork) -> Result<TransferId, StoreError> {
        let transfer = self.mover.prepare(work)?;
        Ok(self.mover.post(&transfer)?)
    }

    fn read(&self, group: GroupId, hash: BlockHash, at: u64, len: usize) -> ObjectWork {
        let pieces = vec![ObjectPiece { object: 0, memory: at, len }];
        ObjectWork::Read { key: self.keys.of(group, hash), memory: self.region, pieces }
    }

    /// Asks the store for what prompts look for, as much as may be in progress.
    fn ask(&mut self) {
        while let Some(question) = self.lookups.next() {
            match self.post(ObjectWork::Look { key: self.keys.of(question.group, question.hash) }) {
                Ok(id) => self.lookups.asked(id, question),
                Err(reason) => {
                    tracing::debug!(tier = self.name, %reason, "nothing more is looked for");
                    self.lookups.clear();
                }
            }
        }
    }
}

impl Store for Objects {
    const TIER: Tier = Tier::Object;
    const RECORD_AT: usize = HEADER;
    // Each was repeated for long already. One alone may be the fault of its object.
    const FAILURES_MAX: u32 = 2;
    const UNREADABLE_MAX: usize = 64;

    fn begin(&mut self, kind: &MoveKind, at: u64, len: usize) -> Result<TransferId, StoreError> {
        self.post(match kind {
            MoveKind::Write(write) => ObjectWork::Write {
                key: self.keys.of(write.block.group, write.hash),
                memory: self.region,
                range: at..at + len as u64,
            },
            MoveKind::Read(_, read) => self.read(read.block.group, read.hash, at, len),
            MoveKind::Lift(_, lift) => self.read(lift.from.slot.group, lift.hash, at, len),
            MoveKind::Land(..) => return Err(StoreError::NoLiftTarget),
        })
    }

    fn cancel(&mut self, id: TransferId) {
        self.mover.cancel(id);
    }

    fn note_written(&mut self, _: &TierWrite) -> Result<(), StoreError> {
        Ok(())
    }

    fn discard_wrong(&mut self, group: GroupId, hash: BlockHash) {
        // As long as it is there, no worker can write a good one in its place.
        let key = self.keys.of(group, hash);
        if let Err(reason) = self.post(ObjectWork::Delete { key: key.clone() }) {
            tracing::warn!(tier = self.name, key, %reason, "an object that is wrong stays in the store");
        }
    }

    fn look_up(&mut self, prompt: SeqKey, chain: Vec<BlockHash>) {
        self.lookups.follow(prompt, chain);
        self.ask();
    }

    fn on_chore_ended(&mut self, id: TransferId, end: StoreOutcome) -> Option<TierEvent> {
        if self.left.leftovers.is_asked(id) {
            match end {
                StoreOutcome::Listed(page) => self.on_leftovers(&page),
                StoreOutcome::Failed(reason) => self.leftovers_fail(&reason),
                _ => self.leftovers_fail(&StoreError::NoList),
            }
            return None;
        }
        if !self.lookups.is_asked(id) {
            if let StoreOutcome::Failed(reason) = end {
                tracing::warn!(tier = self.name, %reason, "a wrong record stays where it is");
            }
            return None;
        }
        let there = match end {
            StoreOutcome::Done => Some(true),
            StoreOutcome::Missing => Some(false),
            StoreOutcome::Failed(reason) => {
                tracing::warn!(tier = self.name, %reason, "the store does not say what it has");
                None
            }
            _ => None,
        };
        let found = self.lookups.answered(id, there);
        self.ask();
        found.map(|Found { prompt, records, last }| TierEvent::Found { tier: Self::TIER, prompt, records, last })
    }

    fn begin_listing(&mut self) -> Option<Result<TransferId, StoreError>> {
        if self.rounds.listing || now() < self.rounds.due {
            return None;
        }
        self.rounds.listing = true;
        let (prefix, after) = (self.keys.folder.clone(), self.rounds.after.clone());
        Some(self.post(ObjectWork::List { prefix, after, keys_max: PAGE_KEYS }))
    }

    fn on_listed(&mut self, keys: Vec<String>) -> Vec<(GroupId, BlockHash)> {
        self.rounds.ended(now(), &keys);
        self.count_leftovers();
        keys.iter().filter_map(|key| self.keys.parse(key)).collect()
    }

    fn on_off(&mut self) {
        self.lookups.clear();
        // The next listing shows whether the store is there again.
        self.rounds.rest(now());
    }

    fn next_listing_in(&self) -> Option<Duration> {
        (!self.rounds.listing).then(|| self.rounds.due.saturating_duration_since(now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{Dtype, Encoding, KvGroup, KvKind, ModelLayout};

    #[test]
    fn keys_say_what_they_are_of() {
        let group = || KvGroup { layers: vec![0], kind: KvKind::of_heads(1, 8), window: None };
        let layout = KvLayout::whole(ModelLayout {
            block_tokens: 16,
            dtype: Dtype::F32,
            encoding: Encoding::Exact,
            groups: vec![group(), group()],
        });
        for prefix in ["", "team/kv"] {
            let keys = Keys::new(prefix, &layout, &[1; 32]);
            let hash = BlockHash(std::array::from_fn(|at| at as u8));
            let key = keys.of(GroupId(1), hash);
            assert!(key.starts_with(prefix) && !key.starts_with('/'), "{key}");
            assert_eq!(keys.parse(&key), Some((GroupId(1), hash)));
            let other = KvLayout::whole(ModelLayout { block_tokens: 32, ..layout.model().clone() });
            assert_eq!(Keys::new(prefix, &other, &[1; 32]).parse(&key), None, "of another layout");
            let other = layout.clone().with_encoding(Encoding::Int8);
            assert_eq!(Keys::new(prefix, &other, &[1; 32]).parse(&key), None, "of another encoding");
            assert_eq!(Keys::new(prefix, &layout, &[2; 32]).parse(&key), None, "of other weights");
            assert_eq!(keys.parse(&keys.of(GroupId(2), hash)), None, "of no group");
            assert_eq!(keys.parse(&key.to_uppercase()), None);
            assert_eq!(keys.parse(&format!("{key}0")), None);
            assert_eq!(keys.parse("README"), None);
        }
    }
}
