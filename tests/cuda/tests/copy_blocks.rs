//! Copies of records against the same in turn on the host.

use cuda::kernels::{CopyBlocks, CopyBlocksArgs};
use proptest::prelude::*;
use tests_cuda::{Draw, Gpu};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn records_are_copied_in_turn(
        seed: u64, grid_max in 1u32..3, blocks in 2usize..7, accesses in prop_oneof![1usize..40, 900usize..1400],
        copies in proptest::collection::vec((any::<usize>(), any::<usize>()), 0..8),
    ) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let (record, mut draw) = (accesses * 16, Draw::new(seed));
        let mut pool: Vec<u8> = (0..blocks * record).map(|_| draw.bits() as u8).collect();
        // Few blocks, so that what a copy brings is often copied on.
        let copies = copies.into_iter().map(|(from, to)| (from % blocks, to % blocks));
        let copies: Vec<(usize, usize)> = copies.filter(|(from, to)| from != to).collect();
        let pairs = copies.iter().flat_map(|&(from, to)| [from as u32, to as u32]);
        let list: Vec<u32> = pairs.chain([u32::MAX; 2]).collect();
        let (on_pool, on_list, count) = (gpu.upload(&pool), gpu.upload(&list), gpu.upload(&[copies.len() as u32]));
        let args = CopyBlocksArgs {
            pool: on_pool.address(),
            copies: on_list.address(),
            count: count.address(),
            record_bytes: record as u64,
            grid_max,
        };
        // SAFETY: the blocks are in the pool.
        unsafe { CopyBlocks::load(&gpu.loader).expect("the kernel").launch(&gpu.stream, &args) }.expect("a launch");
        for (from, to) in copies {
            pool.copy_within(from * record..(from + 1) * record, to * record);
        }
        prop_assert!(on_pool.read() == pool);
    }
}
