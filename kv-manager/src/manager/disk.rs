//! The manager's side of the disk tier: blocks go down when the policy wants them there, and come back into a sequence of
//! their own, one by one, which is closed when all of them have.

use super::{Admit, KvManager, at, parent};
use crate::disk::{Disk, DiskConfig, DiskRead, DiskStats, DiskWrite, Slot};
use domain::{BlockHash, BlockRef, SeqKey};

impl KvManager {
    /// Gives the manager a tier below, which held `records` at the end of an earlier life, the oldest first.
    pub fn add_disk(&mut self, config: DiskConfig, records: &[(Slot, BlockHash)]) {
        let mut disk = Disk::new(config);
        disk.recover(records);
        self.disk = Some(disk);
    }

    /// The disk is not to be relied on any more: nothing is found there from now on, and nothing is written. Moves under way
    /// end as ever.
    pub fn give_up_disk(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.give_up();
        }
    }

    /// The tier's counts.
    pub fn disk_stats(&self) -> Option<DiskStats> {
        self.disk.as_ref().map(|disk| disk.stats())
    }

    /// The next record to write, if another may be under way. Its block stays as it is until [`wrote`](Self::wrote).
    pub fn next_write(&mut self) -> Option<DiskWrite> {
        let (pools, index) = (&self.pools, &self.index);
        let write = self.disk.as_mut()?.next_write(|block, generation, hash| {
            index.get(block.group, hash) == Some(block.block)
                && pools[at(block.group)].generation(block.block) == generation
        })?;
        self.pools[at(write.block.group)].pin(write.block.block);
        self.assert_conserved();
        Some(write)
    }

    /// A write ended, well or not. Panics if none was under way there.
    pub fn wrote(&mut self, slot: Slot, good: bool) {
        let disk = self.disk.as_mut().expect("there is a disk tier, for it was written to");
        let BlockRef { group, block } = disk.wrote(slot, good);
        self.pools[at(group)].unpin(block);
        self.assert_conserved();
    }

    /// Length in tokens of the longest prefix of `chain` that a prompt could go on from once [`load`](Self::load) brought back
    /// what is on disk. At least [`cached_tokens`](Self::cached_tokens).
    pub fn loadable_tokens(&self, chain: &[BlockHash]) -> u32 {
        let cached = self.usable_blocks(chain, None);
        let Some(disk) = &self.disk else { return cached * self.config.block_tokens };
        let loadable = self.reachable_blocks(chain, None, |number, group, hash| {
            disk.holds(group, hash) || (number < cached && self.index.get(group, hash).is_some())
        });
        loadable.max(cached) * self.config.block_tokens
    }

    /// Opens a sequence for the first `tokens` positions of `chain` and says what to read into it from disk: of whatever the
    /// device does not have. Each read ends with [`read_ended`](Self::read_ended), and after all of them the sequence is
    /// [closed](Self::close). `None`: it does not fit now, or not all of it is there; nothing was taken.
    pub fn load(&mut self, key: SeqKey, chain: &[BlockHash], tokens: u32) -> Option<Vec<DiskRead>> {
        let Admit::Ready { cached_tokens } = self.open(key, chain, tokens, 0) else { return None };
        let first = cached_tokens / self.config.block_tokens;
        let mut reads = Vec::new();
        let sequence = self.sequence(key);
        let wanted: Vec<(u32, BlockRef)> = self
            .groups()
            .zip(&sequence.tables)
            .flat_map(|(group, table)| {
                let numbered = (table.first..).zip(&table.blocks).filter(move |&(number, _)| number >= first);
                numbered.map(move |(number, &block)| (number, BlockRef { group, block }))
            })
            .collect();
        let Some(disk) = &mut self.disk else {
            self.close(key);
            return None;
        };
        for (number, block) in wanted {
            let hash = chain[number as usize];
            match disk.begin_read(block.group, hash) {
                Some(slot) => reads.push(DiskRead { slot, block, hash, number }),
                None => {
                    reads.iter().for_each(|read| disk.end_read(read.slot, None));
                    self.close(key);
                    return None;
                }
            }
        }
        Some(reads)
    }

    /// A read of [`load`](Self::load) ended. `Some(true)`: the record is there and was verified, and its block is cached from now on,
    /// whatever becomes of those before it; `Some(false)`: what the disk has is not that record, and is given up; `None`: it was
    /// not read.
    pub fn read_ended(&mut self, read: &DiskRead, chain: &[BlockHash], good: Option<bool>) {
        if let Some(disk) = &mut self.disk {
            disk.end_read(read.slot, good);
        }
        if good == Some(true) {
            let BlockRef { group, block } = read.block;
            let pool = &mut self.pools[at(group)];
            pool.fill(block);
            pool.seal(block, read.hash, parent(chain, read.number), &mut self.index);
            self.assert_conserved();
        }
    }
}
