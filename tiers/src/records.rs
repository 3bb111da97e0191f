//! Records on their way between blocks of the device and a tier. They are encoded as their layout says and get a header
//! on the way down. On the way up they are verified before they are decoded. [`domain::encoding`] encodes and decodes,
//! on the thread of a tier; out of memory of a device and into it, on one of its copier, which the tier's waits for.

use domain::{BlockHash, BlockRef, Encoding, GroupId, KvLayout};
use kv_manager::tiers::header::{HEADER, HeaderError, RecordHeader};
use kv_manager::tiers::{TierLift, TierRead, TierWrite};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use transport::{
    CopyError, CopyOrder, Frame, Memory, Place, PoolRange, SumOf, Ticket, checksum, decode_summed, encode_summed,
};

/// A record on its way between two tiers, as both store it: its header, then its bytes. Both were verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Record(Box<[u8]>);

impl Record {
    /// Makes a record of these bytes.
    pub fn new(bytes: Box<[u8]>) -> Self {
        Self(bytes)
    }

    /// Returns its header and its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// Why what lies in a place is not the record that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    /// Its header is damaged, or of another record, version or model.
    #[error("its header is not the one that is looked for: {0:?}")]
    Header(HeaderError),
    /// Its bytes are damaged.
    #[error("its bytes do not match its checksum")]
    Checksum,
    /// The pool is memory of a device, which its bytes do not reach.
    #[error("it does not get from the device or to it: {0}")]
    Device(CopyError),
}

impl From<CopyError> for RecordError {
    fn from(error: CopyError) -> Self {
        if error == CopyError::Checksum { Self::Checksum } else { Self::Device(error) }
    }
}

/// The device's pools, and what records of them look like.
pub(super) struct Records {
    pools: Vec<Arc<dyn Memory>>,
    layout: KvLayout,
    fingerprint: u64,
}

/// Returns the first byte of memory of a tier's own, which is the host's.
pub(super) fn host(memory: &dyn Memory) -> *mut u8 {
    memory.place().host().expect("a tier's own memory is the host's")
}

/// Where the header and the bytes of a record lie in memory.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    /// [`HEADER`] bytes.
    pub(super) header: *mut u8,
    /// As many bytes as a record of the group has, as tiers store it.
    pub(super) record: *mut u8,
}

impl Records {
    pub(super) fn new(layout: &KvLayout, pools: Vec<Arc<dyn Memory>>) -> Self {
        Self { pools, layout: layout.clone(), fingerprint: layout.records_fingerprint() }
    }

    /// Returns the bytes of a record of the group, as tiers store it.
    pub(super) fn len(&self, group: GroupId) -> usize {
        self.layout.stored_bytes(usize::from(group.0))
    }

    /// Returns the bytes of the longest record.
    pub(super) fn len_max(&self) -> usize {
        (0..self.layout.groups.len()).map(|group| self.layout.stored_bytes(group)).max().unwrap_or(0)
    }

    /// Encodes the block's record into the spot, with its header. Errors: it does not leave its device. Then the spot
    /// has no record.
    ///
    /// # Safety
    ///
    /// The spot is the caller's alone and has room for the record. Nobody writes the block until its write has ended.
    pub(super) unsafe fn put(&self, write: &TierWrite, spot: Spot) -> Result<(), RecordError> {
        let (pool, range, len) = (self.pool(write.block), self.range(write.block), self.len(write.block.group));
        let checksum = match pool.place() {
            Place::Host(first) => {
                // SAFETY: the block is inside the pool; for the rest, as the caller says.
                let (block, record) = unsafe {
                    let block = std::slice::from_raw_parts(first.add(range.at as usize), range.len);
                    (block, std::slice::from_raw_parts_mut(spot.record, len))
                };
                encode_summed(&self.layout, usize::from(write.block.group.0), block, record)
            }
            Place::Device(device) => {
                // Until it is there the header is of none.
                // SAFETY: as the caller says.
                unsafe { spot.header.write_bytes(0, HEADER) };
                // SAFETY: the spot is the caller's alone, and this thread waits until the frame is dropped.
                let frame = unsafe { frame(spot, len, Box::new(())) };
                device.copier.gather(self.order(write.block.group, range, frame)).wait()?.sum
            }
        };
        let header = RecordHeader { checksum, ..self.header(write.block.group, write.hash) };
        // SAFETY: as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(header.encode().as_ptr(), spot.header, HEADER) };
        Ok(())
    }

    /// Decodes the record that lies at the spot into the read's block. Errors: it is not the right one. Then the
    /// block's bytes are undefined.
    ///
    /// # Safety
    ///
    /// Nobody writes the spot, which has room for the record. The block is the read's alone until that has ended.
    pub(super) unsafe fn take(&self, read: &TierRead, spot: Spot) -> Result<(), RecordError> {
        // SAFETY: as the caller says; this thread waits for the end.
        match unsafe { self.begin_take(read, spot, Box::new(())) }? {
            Some(ticket) => ticket.wait().map(drop).map_err(Into::into),
            None => Ok(()),
        }
    }

    /// Begins to decode the record that lies at the spot into the read's block. `memory` keeps the spot mapped. Returns
    /// what a copier does for it; `None`: it is done. Errors: it is not the right one.
    ///
    /// # Safety
    ///
    /// As of [`Records::take`], until the ticket is over.
    pub(super) unsafe fn begin_take(
        &self,
        read: &TierRead,
        spot: Spot,
        memory: Box<dyn Send + Sync>,
    ) -> Result<Option<Ticket>, RecordError> {
        let len = self.len(read.block.group);
        // SAFETY: as the caller says.
        let sum = self.sum(read.block.group, read.hash, unsafe { &*spot.header.cast() })?;
        let range = self.range(read.block);
        match self.pool(read.block).place() {
            Place::Host(first) => {
                // SAFETY: the block is inside the pool; for the rest, as the caller says.
                let (record, block) = unsafe {
                    let block = std::slice::from_raw_parts_mut(first.add(range.at as usize), range.len);
                    (std::slice::from_raw_parts(spot.record, len), block)
                };
                if !decode_summed(&self.layout, usize::from(read.block.group.0), record, sum, block) {
                    return Err(RecordError::Checksum);
                }
                Ok(None)
            }
            Place::Device(device) => {
                // SAFETY: nobody writes the spot until the ticket is over, and then the frame is dropped.
                let frame = unsafe { frame(spot, len, memory) };
                Ok(Some(device.copier.scatter(self.order(read.block.group, range, frame), sum)))
            }
        }
    }

    /// Copies the record that lies at the spot, for another tier. Errors: it is not the right one.
    ///
    /// # Safety
    ///
    /// Nobody writes the spot, which has room for the record.
    pub(super) unsafe fn lift(&self, lift: &TierLift, spot: Spot) -> Result<Record, RecordError> {
        let (group, len) = (lift.from.slot.group, self.len(lift.from.slot.group));
        // SAFETY: as the caller says.
        let header: &[u8; HEADER] = unsafe { &*spot.header.cast() };
        let sum = self.sum(group, lift.hash, header)?;
        let mut bytes = Vec::with_capacity(HEADER + len);
        bytes.extend_from_slice(header);
        // SAFETY: as the caller says.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(spot.record, len) });
        if checksum(&bytes[HEADER..]) != sum {
            return Err(RecordError::Checksum);
        }
        Ok(Record(bytes.into()))
    }

    /// Copies a record of the group that was lifted into the spot.
    ///
    /// # Safety
    ///
    /// The spot is the caller's alone and has room for the record.
    pub(super) unsafe fn land(&self, group: GroupId, record: &Record, spot: Spot) {
        let (header, bytes) = record.0.split_at(HEADER);
        assert_eq!(bytes.len(), self.len(group), "a record that was lifted is one of its group");
        // SAFETY: as the caller says.
        unsafe {
            std::ptr::copy_nonoverlapping(header.as_ptr(), spot.header, HEADER);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), spot.record, bytes.len());
        }
    }

    /// Returns the checksum of the record's bytes, from its header. Errors: it is not the record's header.
    fn sum(&self, group: GroupId, hash: BlockHash, header: &[u8; HEADER]) -> Result<u64, RecordError> {
        self.header(group, hash).checksum_in(header).map_err(RecordError::Header)
    }

    fn header(&self, group: GroupId, hash: BlockHash) -> RecordHeader {
        RecordHeader { group, hash, fingerprint: self.fingerprint, len: self.len(group) as u64, checksum: 0 }
    }

    fn pool(&self, block: BlockRef) -> &dyn Memory {
        &*self.pools[usize::from(block.group.0)]
    }

    /// Returns where a block is in its pool.
    fn range(&self, block: BlockRef) -> PoolRange {
        let len = self.layout.record_bytes(usize::from(block.group.0));
        let begin = block.block.0 as usize * len;
        assert!(begin + len <= self.pool(block).len(), "{block:?} is not in its pool");
        PoolRange { at: begin as u64, len }
    }

    /// Returns an order to copy a block of the group, as tiers store it, to this frame or out of it.
    fn order(&self, group: GroupId, range: PoolRange, frame: Frame) -> CopyOrder {
        let is_encoded = self.layout.encoding != Encoding::Exact;
        let part = is_encoded.then(|| self.layout.part(usize::from(group.0)));
        CopyOrder { frame, ranges: vec![range], part, sum: SumOf::Frame, waker: None }
    }
}

/// Returns the record of a spot as a frame, so that nothing is copied twice. `memory` keeps it mapped.
///
/// # Safety
///
/// The spot has room for so many bytes, and is used by nothing else until the frame is dropped; if it is only
/// scattered, others may read it.
unsafe fn frame(spot: Spot, len: usize, memory: Box<dyn Send + Sync>) -> Frame {
    let first = NonNull::new(spot.record).expect("a spot is no null");
    // SAFETY: as the caller says.
    unsafe { Frame::over(first, len, memory) }
}
