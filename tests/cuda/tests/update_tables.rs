//! Changes of block tables against the same in turn on the host.

use cuda::kernels::{TableUpdate, UpdateTables, UpdateTablesArgs};
use proptest::prelude::*;
use tests_cuda::{Draw, Gpu};

const GROUPS: usize = 2;
const SLOTS: usize = 3;
const BLOCKS_MAX: usize = 50;

/// Applies changes to tables that have no value yet.
fn check(updates: &[TableUpdate], entries: &[u32]) {
    let Some(gpu) = Gpu::open() else { return };
    let words: Vec<u32> = updates.iter().flat_map(|update| update.words()).chain([u32::MAX; 5]).collect();
    let tables = gpu.empty::<u32>(GROUPS * SLOTS * BLOCKS_MAX);
    let (on_list, count) = (gpu.upload(&words), gpu.upload(&[updates.len() as u32]));
    let on_entries = gpu.upload(entries);
    let args = UpdateTablesArgs {
        tables: tables.address(),
        updates: on_list.address(),
        count: count.address(),
        entries: on_entries.address(),
        slots: SLOTS as u32,
        blocks_max: BLOCKS_MAX as u32,
    };
    // SAFETY: the changes are inside the tables and the entries.
    unsafe { UpdateTables::load(&gpu.loader).expect("the kernel").launch(&gpu.stream, &args) }.expect("a launch");
    let mut exact = vec![u32::MAX; GROUPS * SLOTS * BLOCKS_MAX];
    for update in updates {
        let table = (update.group as usize * SLOTS + update.slot as usize) * BLOCKS_MAX;
        let own = &entries[update.from as usize..][..update.count as usize];
        exact[table + update.first as usize..][..own.len()].copy_from_slice(own);
    }
    assert_eq!(tables.read(), exact, "{updates:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn later_changes_count(seed: u64, count in 0usize..60) {
        let mut draw = Draw::new(seed);
        let entries: Vec<u32> = (0..300).map(|_| draw.bits() as u32).collect();
        let mut update = || {
            let first = draw.below(BLOCKS_MAX);
            let count = draw.below(BLOCKS_MAX + 1 - first);
            TableUpdate {
                group: draw.below(GROUPS) as u32,
                slot: draw.below(SLOTS) as u32,
                first: first as u32,
                count: count as u32,
                from: draw.below(entries.len() - count) as u32,
            }
        };
        let updates: Vec<TableUpdate> = (0..count).map(|_| update()).collect();
        check(&updates, &entries);
    }
}

#[test]
fn more_changes_than_warps_are_taken() {
    let update =
        |i: u32| TableUpdate { group: i % GROUPS as u32, slot: i / 2 % SLOTS as u32, first: i / 6, count: 1, from: i };
    let updates: Vec<TableUpdate> = (0..(GROUPS * SLOTS * BLOCKS_MAX) as u32).map(update).collect();
    check(&updates, &(0..300).collect::<Vec<u32>>());
}
