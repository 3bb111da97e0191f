//! A tier over pools of plain memory, asked as a worker asks it.

use crate::mover::{TierEvent, TierMover, TierParts};
use domain::{
    BlockHash, BlockId, BlockRef, Choice, Dtype, Encoding, Epoch, GroupId, KvGroup, KvKind, KvLayout, ModelLayout,
    RequestId, SeqKey, Tenant,
};
use kv_manager::tiers::{Place, ReadEnd, Slot, Tier, TierRead, TierWrite, WriteEnd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use transport::{Memory, SealedMemory};

const BLOCKS: usize = 4;
/// Whose all records are.
pub(super) const TENANT: Tenant = Tenant(77);
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Rig {
    tier: Tier,
    pub(super) mover: Box<dyn TierMover>,
    pub(super) ends: Receiver<TierEvent>,
    /// Slots of each group.
    pub(super) slots: u32,
    pools: Vec<Arc<SealedMemory>>,
}

/// Two groups, whose records are of different sizes, neither a multiple of a sector.
pub(super) fn layout() -> KvLayout {
    let group = |layers: std::ops::Range<u16>, kv_heads| KvGroup {
        layers: layers.collect(),
        kind: KvKind::of_heads(kv_heads, 20),
        window: None,
    };
    KvLayout::whole(ModelLayout {
        block_tokens: 16,
        dtype: Dtype::F32,
        encoding: Encoding::Exact,
        groups: vec![group(0..3, 2), group(3..4, 1)],
    })
}

/// Returns the same, kept in another encoding below the device.
pub(super) fn encoded(encoding: Encoding) -> KvLayout {
    layout().with_encoding(encoding)
}

/// The pools, and as they are lent to a tier.
pub(super) fn pools() -> (Vec<Arc<SealedMemory>>, Vec<Arc<dyn Memory>>) {
    let layout = layout();
    let pool = |group| Arc::new(SealedMemory::new("pool", BLOCKS * layout.record_bytes(group)).expect("memory"));
    let pools: Vec<_> = (0..layout.groups.len()).map(pool).collect();
    let lent = pools.iter().map(|pool| pool.clone() as Arc<dyn Memory>).collect();
    (pools, lent)
}

pub(super) fn slot(group: u16, slot: u32) -> Slot {
    Slot { group: GroupId(group), slot }
}

pub(super) fn block(group: u16, block: u32) -> BlockRef {
    BlockRef { group: GroupId(group), block: BlockId(block) }
}

pub(super) fn hash(name: u8) -> BlockHash {
    BlockHash([name; 16])
}

pub(super) fn key() -> SeqKey {
    SeqKey { request: RequestId(1), epoch: Epoch(1), choice: Choice(0) }
}

impl Rig {
    pub(super) fn new(parts: TierParts, ends: Receiver<TierEvent>, pools: Vec<Arc<SealedMemory>>) -> Self {
        Self { tier: parts.tier, mover: parts.mover, ends, slots: parts.config.slots[0], pools }
    }

    #[expect(clippy::mut_from_ref, reason = "the memory is a mapping, and each borrow here ends before the next")]
    pub(super) fn bytes(&self, of: BlockRef) -> &mut [u8] {
        let len = layout().record_bytes(usize::from(of.group.0));
        let pool = &self.pools[usize::from(of.group.0)];
        // SAFETY: the block is inside the pool, and no move is under way.
        unsafe { std::slice::from_raw_parts_mut(pool.as_ptr().add(of.block.0 as usize * len), len) }
    }

    pub(super) fn place(&self, slot: Slot) -> Place {
        Place { tier: self.tier, slot }
    }

    pub(super) fn ended(&self) -> TierEvent {
        self.ends.recv_timeout(PATIENCE).expect("it ends")
    }

    pub(super) fn write(&mut self, slot: Slot, block: BlockRef, hash: BlockHash) -> bool {
        self.mover.write(TierWrite { place: self.place(slot), block, hash, tenant: TENANT });
        match self.ended() {
            TierEvent::Wrote { write, end, .. } if write.place.slot == slot => end == WriteEnd::Written,
            end => panic!("{end:?}"),
        }
    }

    /// Begins to read.
    pub(super) fn ask(&mut self, slot: Slot, block: BlockRef, hash: BlockHash, number: u32) {
        self.mover.read(key(), TierRead { place: self.place(slot), block, hash, number });
    }

    pub(super) fn read(&mut self, slot: Slot, block: BlockRef, hash: BlockHash) -> ReadEnd {
        self.ask(slot, block, hash, 0);
        match self.ended() {
            TierEvent::Read { read, end, .. } if read.place.slot == slot => end,
            end => panic!("{end:?}"),
        }
    }

    /// Writes block 1 of each group to slot 3 of a tier with this encoding, and reads it back into block 2, twice:
    /// what came back is written again.
    #[track_caller]
    pub(super) fn check_what_is_encoded_comes_back(&mut self, encoding: Encoding) {
        let layout = encoded(encoding);
        for group in 0..2 {
            for (at, number) in self.bytes(block(group, 1)).as_chunks_mut().0.iter_mut().enumerate() {
                *number = ((at * 37 % 101) as f32 * 0.37 - 18.0).to_le_bytes();
            }
            let record = self.bytes(block(group, 1)).to_vec();
            let mut stored = vec![0; layout.stored_bytes(usize::from(group))];
            let mut expected = vec![0; record.len()];
            layout.encode(usize::from(group), &record, &mut stored);
            layout.decode(usize::from(group), &stored, &mut expected);
            assert_ne!(expected, record, "{encoding} loses something");
            for from in [1, 2] {
                assert!(self.write(slot(group, 3), block(group, from), hash(5)));
                assert_eq!(self.read(slot(group, 3), block(group, 2), hash(5)), ReadEnd::Good);
                assert_eq!(self.bytes(block(group, 2)), expected, "{encoding}");
            }
        }
    }

    /// Writes block 1 of each group to slot 3, and reads it back.
    #[track_caller]
    pub(super) fn check_what_is_written_comes_back(&mut self) {
        for group in 0..2 {
            for (at, byte) in self.bytes(block(group, 1)).iter_mut().enumerate() {
                *byte = (at * 7 + usize::from(group)) as u8;
            }
            let written = self.bytes(block(group, 1)).to_vec();
            assert!(self.write(slot(group, 3), block(group, 1), hash(5)));
            assert_eq!(self.read(slot(group, 3), block(group, 2), hash(5)), ReadEnd::Good);
            assert_eq!(self.bytes(block(group, 2)), written);
            // Whoever looks for another record there does not get this one.
            assert_eq!(self.read(slot(group, 3), block(group, 0), hash(6)), ReadEnd::Wrong);
            assert_eq!(self.read(slot(group, 2), block(group, 0), hash(5)), ReadEnd::Wrong);
            assert!(self.bytes(block(group, 0)).iter().all(|&byte| byte == 0), "what is wrong got into a block");
        }
    }
}
