use super::*;
use domain::{Dtype, Encoding, KvGroup, KvKind, ModelLayout};
use proptest::prelude::*;

fn layout(block_tokens: u32, groups: &[(u16, u32, u32, Option<u32>)]) -> KvLayout {
    let group = |&(layers, kv_heads, head_dim, window): &(u16, u32, u32, Option<u32>)| KvGroup {
        layers: (0..layers).collect(),
        kind: KvKind::of_heads(kv_heads, head_dim),
        window,
    };
    let groups = groups.iter().map(group).collect();
    KvLayout::whole(ModelLayout { block_tokens, dtype: Dtype::Bf16, encoding: Encoding::Exact, groups })
}

/// The default settings.
fn demand(layout: &KvLayout, bytes: u64, context: u32) -> PoolDemand<'_> {
    PoolDemand {
        layout,
        bytes,
        context,
        running_max: 64,
        prompts_max: 2,
        chunk_tokens: 512,
        reserve_percent: 5,
        pinned_percent: 0,
    }
}

/// Returns the longest context with equally many blocks for each group.
fn equal_context(demand: &PoolDemand<'_>) -> u32 {
    let block: usize = (0..demand.layout.groups.len()).map(|group| demand.layout.record_bytes(group)).sum();
    let blocks = demand.bytes / block as u64;
    demand.usable(blocks as u32) * demand.layout.block_tokens
}

#[test]
fn models_with_windows_have_longer_contexts_of_the_same_bytes() {
    let contexts = |layout: KvLayout, mib: u64, context| {
        let demand = demand(&layout, mib << 20, context);
        let sizes = demand.sizes().expect("it is enough");
        (equal_context(&demand).min(context), sizes.context_tokens, sizes.blocks)
    };
    let gemma3_1b = || layout(16, &[(4, 1, 256, None), (22, 1, 256, Some(512))]);
    let gemma3_4b = || layout(16, &[(5, 4, 256, None), (29, 4, 256, Some(1024))]);
    let gpt_oss_20b = || layout(16, &[(12, 8, 64, None), (12, 8, 64, Some(128))]);
    let mut table = Vec::new();
    let cases = [
        ("Gemma 3 1B", gemma3_1b(), 32_768, [64, 256, 1024]),
        ("Gemma 3 4B", gemma3_4b(), 131_072, [512, 1024, 4096]),
        ("gpt-oss-20b", gpt_oss_20b(), 131_072, [512, 1024, 4096]),
    ];
    for (name, layout, context, sizes) in cases {
        for mib in sizes {
            let (before, after, blocks) = contexts(layout.clone(), mib, context);
            table.push(format!("{name} {mib} MiB: {before} -> {after} tokens, {blocks:?} blocks"));
        }
    }
    let expected = [
        "Gemma 3 1B 64 MiB: 2400 -> 6880 tokens, [452, 104] blocks",
        "Gemma 3 1B 256 MiB: 9584 -> 32768 tokens, [2429, 303] blocks",
        "Gemma 3 1B 1024 MiB: 32768 -> 32768 tokens, [9711, 1213] blocks",
        "Gemma 3 4B 512 MiB: 3648 -> 9824 tokens, [646, 171] blocks",
        "Gemma 3 4B 1024 MiB: 7312 -> 28912 tokens, [1902, 237] blocks",
        "Gemma 3 4B 4096 MiB: 29296 -> 115520 tokens, [7599, 949] blocks",
        "gpt-oss-20b 512 MiB: 10368 -> 18464 tokens, [1214, 151] blocks",
        "gpt-oss-20b 1024 MiB: 20752 -> 36896 tokens, [2427, 303] blocks",
        "gpt-oss-20b 4096 MiB: 83008 -> 131072 tokens, [10229, 693] blocks",
    ];
    assert_eq!(table, expected);
}

#[test]
fn a_model_without_windows_has_equally_many_blocks() {
    let layout = layout(16, &[(12, 2, 64, None), (4, 8, 64, None)]);
    let demand = demand(&layout, 1 << 30, 1 << 20);
    let sizes = demand.sizes().expect("it is enough");
    let block = layout.record_bytes(0) as u64 + layout.record_bytes(1) as u64;
    let equal = ((1 << 30) / block) as u32;
    assert_eq!(sizes.blocks, [equal; 2]);
    assert_eq!(sizes.reserve_blocks, [equal / 20; 2]);
    assert_eq!(sizes.context_tokens, (equal - equal / 20) * 16);
}

#[test]
fn where_all_groups_have_windows_the_longest_takes_the_rest() {
    let mistral = layout(16, &[(32, 8, 128, Some(4096))]);
    let sizes = demand(&mistral, 4 << 30, 32_768).sizes().expect("it is enough");
    assert_eq!((&sizes.blocks[..], sizes.context_tokens), (&[2048][..], 32_768), "a window of any context fits");
    let two = layout(16, &[(8, 8, 128, Some(1024)), (8, 8, 128, Some(64))]);
    let sizes = demand(&two, 1 << 30, 32_768).sizes().expect("it is enough");
    assert!(sizes.blocks[0] > sizes.blocks[1]);
}

#[test]
fn too_little_memory_is_refused_with_what_is_needed() {
    let layout = layout(16, &[(1, 1, 64, None), (1, 1, 64, Some(64))]);
    let refused = demand(&layout, 3 * 8192, 1024).sizes().expect_err("three blocks of each are too few");
    assert_eq!(refused, TooFewBlocks { blocks: 3, block_bytes: 8192 });
    assert!(demand(&layout, refused.needed(), 1024).sizes().is_ok());
}

/// Groups of all kinds.
fn groups() -> impl Strategy<Value = Vec<KvGroup>> {
    let window = prop_oneof![Just(None), (1..3000u32).prop_map(Some)];
    let dim = || prop::sample::select(vec![64u32, 128, 256]);
    let kind = prop_oneof![
        (1..9u32, dim(), dim()).prop_map(|(heads, k_dim, v_dim)| KvKind::Heads { heads, k_dim, v_dim }),
        dim().prop_map(|width| KvKind::Latent { width, rope: 64 }),
        (1u32..1 << 20).prop_map(|bytes| KvKind::State { bytes }),
    ];
    let group = (1..30u16, kind, window);
    let group = group.prop_map(|(layers, kind, window)| KvGroup { layers: (0..layers).collect(), kind, window });
    prop::collection::vec(group, 1..4)
}

proptest! {
    #[test]
    fn pools_fit_the_memory_and_hold_what_they_promise(
        groups in groups(),
        block_tokens in prop::sample::select(vec![16u32, 32, 64]),
        (bytes, more) in (1u64 << 20..1 << 36, 0u64..1 << 34),
        context in 64..200_000u32,
        (running_max, prompts_max, chunks) in (1..300u32, 1..5u32, 1..40u32),
        (reserve_percent, pinned_percent) in (0..=45u32, 0..=45u32),
    ) {
        let model = ModelLayout { block_tokens, dtype: Dtype::Bf16, encoding: Encoding::Exact, groups };
        let layout = KvLayout::whole(model);
        let chunk_tokens = chunks * block_tokens;
        let demand = PoolDemand {
            layout: &layout, bytes, context, running_max, prompts_max, chunk_tokens, reserve_percent, pinned_percent,
        };
        let Ok(sizes) = demand.sizes() else {
            let each: usize = (0..layout.groups.len()).map(|group| layout.record_bytes(group)).sum();
            prop_assert!(bytes < each as u64 * u64::from(BLOCKS_MIN));
            return Ok(());
        };
        let taken: u64 = (0..).zip(&sizes.blocks).map(|(group, &blocks)| {
            layout.record_bytes(group) as u64 * u64::from(blocks)
        }).sum();
        prop_assert!(taken <= bytes, "{taken} of {bytes} bytes");
        prop_assert!(sizes.blocks.iter().all(|&blocks| blocks >= BLOCKS_MIN));

        // A sequence of the context fits next to the reserve and all pins, by what the manager takes for it.
        let whole = sizes.context_tokens.div_ceil(block_tokens);
        for (group, &blocks) in sizes.blocks.iter().enumerate() {
            let needed = match layout.groups[group].reach() {
                None => sizes.context_tokens / block_tokens,
                Some(window) => {
                    let window = (window - 1).div_ceil(block_tokens) + 1;
                    (2 * window + chunks).min(whole)
                }
            };
            let kept = sizes.reserve_blocks[group] + blocks * pinned_percent / 100;
            prop_assert!(needed + kept <= blocks, "{needed} and {kept} of {blocks} in group {group}");
        }

        // No less than with equally many blocks, and never less for more memory.
        prop_assert!(sizes.context_tokens >= equal_context(&demand).min(context));
        let larger = PoolDemand { bytes: bytes + more, ..demand }.sizes().expect("less was enough");
        prop_assert!(larger.context_tokens >= sizes.context_tokens);
        for (larger, blocks) in larger.blocks.iter().zip(&sizes.blocks) {
            prop_assert!(larger >= blocks);
        }
    }
}
