//! A slab that somebody else wrote, looked at and read from: whatever is in it, only what is whole gets into a block.

use super::file::SlabFile;
use super::neighbour::{Found, Neighbour};
use super::shape::{ENTRY, HEAD, HEADER_AT, Shape};
use super::view::View;
use crate::mover_thread::now;
use crate::records::{Records, Spot, host};
use domain::{BlockHash, BlockId, BlockRef, Dtype, Encoding, GroupId, KvGroup, KvKind, KvLayout, ModelLayout};
use kv_manager::tiers::header::{HEADER, RecordHeader};
use kv_manager::tiers::{Place, ReadEnd, Slot, Tier, TierRead};
use std::path::Path;
use std::sync::Arc;
use transport::{Memory, SealedMemory, checksum};

const WEIGHTS: [u8; 32] = [3; 32];
/// Slots of the slab that [`slab_seed`] is.
const SLOTS: u32 = 4;
/// Records that a look finds, so that it takes several.
const FOUND_MAX: usize = 3;

fn layout() -> KvLayout {
    let group = || KvGroup { layers: vec![0], kind: KvKind::of_heads(1, 4), window: None };
    KvLayout::whole(ModelLayout {
        block_tokens: 4,
        dtype: Dtype::F32,
        encoding: Encoding::Exact,
        groups: vec![group(), group()],
    })
}

/// Looks at the file as at a neighbour's slab, and reads all that it says it has.
pub fn slab(path: &Path) {
    let layout = layout();
    let Some(file) = SlabFile::open(path.to_owned(), HEAD) else { return };
    let Ok(view) = View::new(file, &layout, WEIGHTS) else { return };
    let mut neighbour = Neighbour::new(view, now());
    let mut learned = Vec::new();
    loop {
        let mut found = Found::default();
        let more = neighbour.look(&mut found, FOUND_MAX);
        learned.append(&mut found.learned);
        if !more {
            break;
        }
    }
    let memory = |bytes| Arc::new(SealedMemory::new("fuzz", bytes).expect("memory"));
    let pools: Vec<Arc<dyn Memory>> =
        (0..layout.groups.len()).map(|group| memory(layout.record_bytes(group)) as Arc<dyn Memory>).collect();
    let records = Records::new(&layout, pools.clone());
    let mut frame = vec![0; HEADER + records.len_max()];
    for (group, hash) in learned {
        let header = frame.as_mut_ptr();
        // SAFETY: the frame has room for a header and the record of any group behind it.
        let spot = Spot { header, record: unsafe { header.add(HEADER) } };
        let place = Place { tier: Tier::Neighbours, slot: Slot { group, slot: 0 } };
        let read = TierRead { place, block: BlockRef { group, block: BlockId(0) }, hash, number: 0 };
        // SAFETY: the frame and the blocks are this function's alone.
        if let Ok(ReadEnd::Good) = unsafe { neighbour.read(&records, &read, spot) } {
            let pool = &pools[usize::from(group.0)];
            // SAFETY: nobody writes the pool any more.
            let bytes = unsafe { std::slice::from_raw_parts(host(&**pool), pool.len()) };
            let header = frame.first_chunk().and_then(|header| RecordHeader::decode(header).ok());
            assert_eq!(header.map(|header| header.checksum), Some(checksum(bytes)), "{group} {hash:?}");
        }
    }
}

/// Returns a slab with a record in each group.
pub fn slab_seed() -> Vec<u8> {
    let layout = layout();
    let shape = Shape::new(&layout, WEIGHTS, SLOTS);
    let mut bytes = vec![0; shape.len()];
    let head = shape.head(1, 2);
    bytes[..head.len()].copy_from_slice(&head);
    for group in 0..layout.groups.len() {
        let slot = Slot { group: GroupId(group as u16), slot: group as u32 };
        let record: Vec<u8> = (0..layout.record_bytes(group)).map(|at| at as u8).collect();
        let header = RecordHeader {
            group: slot.group,
            hash: BlockHash([7; 16]),
            fingerprint: layout.records_fingerprint(),
            len: record.len() as u64,
            checksum: checksum(&record),
        };
        let (entry, at) = (shape.entry(slot), shape.record(slot));
        bytes[entry..entry + 8].copy_from_slice(&2_u64.to_le_bytes());
        bytes[entry + HEADER_AT..entry + ENTRY].copy_from_slice(&header.encode());
        bytes[at..at + record.len()].copy_from_slice(&record);
    }
    bytes
}
