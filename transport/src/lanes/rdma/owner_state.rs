//! What an owner has told a reader: its queue pairs, its regions and its progress word.
//!
//! What is deliberately absent: devices, so that it is fed without one what owners may say.

use super::wire::{ExchangeError, KeyedRegion, Queues, RemadeRail, decode_word, kind};
use crate::fields::read_region;
use crate::net::control::Frame;
use crate::regions::{RegionId, take_note};
use crate::wire_error::WireError;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a frame of an owner.
pub(super) const FRAME_BYTES_MAX: usize = 4096;

/// What an owner has told over a connection, after its queue pairs.
pub(super) struct OwnerState {
    /// Of the link: a region has a key on each.
    rails: usize,
    regions: Mutex<BTreeMap<RegionId, KeyedRegion>>,
    /// The progress word, as far as it has told.
    word: AtomicU64,
}

/// Reads the owner's queue pairs, which it tells first, for each of the `rails` that it was offered.
pub(super) fn answer(frame: &Frame, fingerprint: u64, rails: usize) -> Result<Queues, ExchangeError> {
    if frame.kind != kind::QUEUES {
        return Err(WireError::OutOfPlace(frame.kind).into());
    }
    let answer = Queues::decode(&frame.body)?;
    answer.check_fingerprint(fingerprint)?;
    if answer.rails.len() != rails {
        return Err(ExchangeError::Rails { answered: answer.rails.len(), offered: rails });
    }
    Ok(answer)
}

impl OwnerState {
    pub(super) fn new(rails: usize) -> Self {
        Self { rails, regions: Mutex::default(), word: AtomicU64::new(0) }
    }

    /// Takes what it tells before the link is used. Whether that is all.
    pub(super) fn begin(&self, frame: &Frame) -> Result<bool, ExchangeError> {
        match frame.kind {
            kind::REGION => self.add_region(&frame.body)?,
            kind::WITHDRAWN => self.withdraw_region(&frame.body)?,
            kind::READY => return Ok(true),
            other => return Err(WireError::OutOfPlace(other).into()),
        }
        Ok(false)
    }

    /// Takes what it tells from then on; an answer for a rail is the caller's to take.
    pub(super) fn hear(&self, frame: &Frame) -> Result<Option<RemadeRail>, ExchangeError> {
        match frame.kind {
            kind::WORD => self.raise(decode_word(&frame.body)?),
            kind::REGION => self.add_region(&frame.body)?,
            kind::WITHDRAWN => self.withdraw_region(&frame.body)?,
            kind::RAIL => return RemadeRail::decode(&frame.body).map(Some),
            other => return Err(WireError::OutOfPlace(other).into()),
        }
        Ok(None)
    }

    fn regions(&self) -> MutexGuard<'_, BTreeMap<RegionId, KeyedRegion>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A region that the owner has registered.
    pub(super) fn region(&self, id: RegionId) -> Option<KeyedRegion> {
        self.regions().get(&id).cloned()
    }

    /// A region that has something to read.
    pub(super) fn any_region(&self) -> Option<RegionId> {
        self.regions().iter().find(|(_, region)| region.len > 0).map(|(&id, _)| id)
    }

    /// Returns the owner's progress word.
    pub(super) fn word(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    fn add_region(&self, body: &[u8]) -> Result<(), ExchangeError> {
        let region = KeyedRegion::decode(body, self.rails)?;
        Ok(take_note(&mut self.regions(), region.id, region)?)
    }

    /// Forgets a region that its owner has taken back from its devices.
    fn withdraw_region(&self, body: &[u8]) -> Result<(), WireError> {
        let id = read_region(body)?;
        self.regions().remove(&id);
        Ok(())
    }

    /// The owner's word is `word`, or a later one of which it told before.
    fn raise(&self, word: u64) {
        self.word.fetch_max(word, Ordering::AcqRel);
    }
}
