//! Layouts of all kinds: sizes add up, shards divide what they are of, fingerprints tell apart.

use super::*;
use crate::dtype::Dtype;
use proptest::collection::vec;
use proptest::prelude::*;

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
const ENCODINGS: [Encoding; 3] = [Encoding::Exact, Encoding::Int8, Encoding::Fp8];

fn kind() -> impl Strategy<Value = KvKind> {
    prop_oneof![
        (1..5u32, 1..9u32, 1..9u32).prop_map(|(heads, k_dim, v_dim)| KvKind::Heads { heads, k_dim, v_dim }),
        (1..5u32, 1..9u32).prop_map(|(heads, dim)| KvKind::of_heads(heads, dim)),
        (1..17u32, 0..5u32).prop_map(|(width, rope)| KvKind::Latent { width, rope }),
        (1..100u32).prop_map(|bytes| KvKind::State { bytes }),
    ]
}

/// Layers are dealt to the groups in turn, by `owners`.
fn model() -> impl Strategy<Value = ModelLayout> {
    let kinds = vec((kind(), prop::option::of(1..50u32)), 1..4);
    let formats = (prop::sample::select(&DTYPES[..]), prop::sample::select(&ENCODINGS[..]));
    (kinds, vec(any::<prop::sample::Index>(), 1..12), 1..20u32, formats).prop_map(
        |(kinds, owners, block_tokens, (dtype, encoding))| {
            let group = |(kind, window)| KvGroup { layers: Vec::new(), kind, window };
            let mut groups: Vec<_> = kinds.into_iter().map(group).collect();
            for (layer, owner) in (0..).zip(&owners) {
                let at = owner.index(groups.len());
                groups[at].layers.push(layer);
            }
            groups.retain(|group| !group.layers.is_empty());
            ModelLayout { block_tokens, dtype, encoding, groups }
        },
    )
}

/// Returns the ranges that cut `0..end` at these places.
fn ranges(end: u32, cuts: &[prop::sample::Index]) -> Vec<Range<u32>> {
    let mut at: Vec<u32> = cuts.iter().map(|cut| cut.index(end as usize) as u32).chain([0, end]).collect();
    at.sort_unstable();
    at.dedup();
    at.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// Returns some record: numbers of about the same size, none of which is infinite.
fn record(layout: &KvLayout, group: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..layout.record_bytes(group)).map(|at| (at * 37 % 251) as u8).collect();
    let size = layout.dtype.bytes();
    bytes.iter_mut().skip(size - 1).step_by(size).for_each(|byte| *byte = 0x3C | *byte & 0x83);
    bytes
}

proptest! {
    #[test]
    fn slices_follow_each_other_and_are_made_of_whole_parts(model in model()) {
        let layout = KvLayout::whole(model);
        let mut all = 0;
        for group in 0..layout.groups.len() {
            let mut end = 0;
            for index in 0..layout.held_layers(group).len() {
                let range = layout.slice_range(group, index);
                prop_assert_eq!((range.start, range.len()), (end, layout.slice_bytes(group)));
                end = range.end;
            }
            prop_assert_eq!(end, layout.record_bytes(group));
            let part = layout.part(group);
            prop_assert!(layout.slice_bytes(group).is_multiple_of(part.bytes()));
            prop_assert_eq!(layout.stored_bytes(group), end / part.bytes() * part.stored_bytes());
            all += end;
        }
        prop_assert_eq!(layout.token_bytes(), all / layout.block_tokens as usize);
        prop_assert!(layout.is_whole());
    }

    #[test]
    fn a_record_of_any_kind_comes_back_and_a_state_untouched(model in model()) {
        let layout = KvLayout::whole(model);
        for group in 0..layout.groups.len() {
            let record = record(&layout, group);
            let mut stored = vec![0xA5; layout.stored_bytes(group)];
            layout.encode(group, &record, &mut stored);
            let mut back = vec![0xA5; record.len()];
            layout.decode(group, &stored, &mut back);
            let is_state = matches!(layout.groups[group].kind, KvKind::State { .. });
            if is_state || layout.encoding == Encoding::Exact {
                prop_assert_eq!(&stored, &record);
                prop_assert_eq!(&back, &record);
            }
            // What came back is encoded as it was: nothing more is lost.
            let mut again = vec![0; stored.len()];
            layout.encode(group, &back, &mut again);
            prop_assert_eq!(again, stored);
        }
    }

    #[test]
    fn ranks_that_divide_a_model_hold_each_byte_of_its_records_once(
        model in model(),
        layer_cuts in vec(any::<prop::sample::Index>(), 0..3),
        head_cuts in vec(any::<prop::sample::Index>(), 0..3),
    ) {
        let whole = KvLayout::whole(model.clone());
        for group in 0..model.groups.len() {
            let mut held = vec![0u8; whole.record_bytes(group)];
            let mut sizes = 0;
            for layers in ranges(whole.shard().layers.end.into(), &layer_cuts) {
                for heads in ranges(model.groups[group].kind.heads(), &head_cuts) {
                    let mut shard = Shard { layers: layers.start as u16..layers.end as u16, ..Shard::whole(&model) };
                    shard.heads[group] = heads;
                    let rank = KvLayout::of(model.clone(), shard).expect("it is a part of the model");
                    let ranges: Vec<_> = rank.ranges_in_whole(group).collect();
                    prop_assert!(ranges.iter().all(|range| range.len() == rank.slice_bytes(group)));
                    prop_assert_eq!(ranges.len(), rank.held_layers(group).len());
                    sizes += rank.record_bytes(group);
                    ranges.into_iter().for_each(|range| held[range].iter_mut().for_each(|byte| *byte += 1));
                }
            }
            prop_assert_eq!(sizes, held.len());
            prop_assert!(held.iter().all(|&times| times == 1));
        }
    }

    #[test]
    fn fingerprints_are_equal_where_layouts_are(first in model(), second in model()) {
        prop_assert_eq!(first.fingerprint(), first.clone().fingerprint());
        if first != second && first.groups.iter().all(|group| !matches!(group.kind, KvKind::State { .. })) {
            prop_assert_ne!(first.fingerprint(), second.fingerprint());
        }
    }
}

fn latents_and_states() -> ModelLayout {
    let group = |layers: &[u16], kind, window| KvGroup { layers: layers.to_vec(), kind, window };
    ModelLayout {
        block_tokens: 16,
        dtype: Dtype::Bf16,
        encoding: Encoding::Int8,
        groups: vec![
            group(&[0, 3], KvKind::Heads { heads: 8, k_dim: 192, v_dim: 128 }, None),
            group(&[1], KvKind::Latent { width: 512, rope: 64 }, None),
            group(&[2, 4], KvKind::State { bytes: 5000 }, None),
        ],
    }
}

#[test]
fn each_kind_has_its_bytes() {
    let layout = KvLayout::whole(latents_and_states());
    let of = |group| (layout.slice_bytes(group), layout.record_bytes(group), layout.stored_bytes(group));
    assert_eq!(of(0), (8 * 16 * 320 * 2, 2 * 8 * 16 * 320 * 2, 2 * 8 * (16 * 320 + 2 * 4 * 4)));
    assert_eq!(of(1), (16 * 576 * 2, 16 * 576 * 2, 16 * (576 + 2 * 4)), "a latent and its key have a scale each");
    assert_eq!(of(2), (5000, 10_000, 10_000));
    let starts = [0, 1, 40].map(|position| [0, 1, 2].map(|group| layout.window_start(group, position)));
    assert_eq!(starts, [[0; 3], [0; 3], [0, 0, 39]], "a state is all that is needed of what was before");
}

/// A latent is not made coarse by a large key beside it.
#[test]
fn latents_and_their_keys_have_scales_of_their_own() {
    let kind = KvKind::Latent { width: 4, rope: 2 };
    let groups = vec![KvGroup { layers: vec![0], kind, window: None }];
    let layout = KvLayout::whole(ModelLayout { block_tokens: 2, dtype: Dtype::F32, encoding: Encoding::Int8, groups });
    let numbers = [0.5f32, -0.25, 0.125, 0.1, 1000.0, -500.0];
    let record: Vec<u8> = numbers.iter().chain(&numbers).flat_map(|number| number.to_le_bytes()).collect();
    let mut stored = vec![0; layout.stored_bytes(0)];
    layout.encode(0, &record, &mut stored);
    let mut back = vec![0; record.len()];
    layout.decode(0, &stored, &mut back);
    for (came, number) in back.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).zip(numbers) {
        let largest = if number.abs() > 1.0 { 1000.0 } else { 0.5 };
        assert!((came - number).abs() <= largest / 127.0, "{came} for {number}");
    }
}

#[test]
fn a_rank_tells_its_records_from_those_of_others_and_agrees_on_the_model() {
    let model = latents_and_states();
    let whole = KvLayout::whole(model.clone());
    let part = |layers: Range<u16>, heads: Range<u32>| {
        KvLayout::of(model.clone(), Shard { layers, heads: vec![heads, 0..1, 0..1] })
    };
    let [first, second] = [part(0..5, 0..4), part(0..5, 4..8)].map(|rank| rank.expect("it is a part of the model"));
    assert_eq!(whole.fingerprint(), first.fingerprint());
    let prints = [&whole, &first, &second].map(|layout| layout.records_fingerprint());
    assert!(prints[0] != prints[1] && prints[1] != prints[2] && prints[0] != prints[2]);
    assert_eq!(first.record_bytes(0) * 2, whole.record_bytes(0));
    assert_eq!(first.record_bytes(1), whole.record_bytes(1), "latents are held whole");
    assert!(!first.is_whole() && part(0..5, 0..8).expect("it is all of it").is_whole());
    for (layers, heads) in [(0..6, 0..8), (2..2, 0..8), (0..5, 0..9), (0..5, 3..3)] {
        assert_eq!(part(layers.clone(), heads.clone()), None, "layers {layers:?}, heads {heads:?}");
    }
    let few = Shard { layers: 0..5, heads: vec![0..8, 0..1] };
    assert_eq!(KvLayout::of(model.clone(), few), None, "it does not speak of all groups");
}

/// What release 0.2.0 computes of these layouts: as long as it runs beside this one, these numbers stay.
#[test]
fn layouts_that_the_release_before_has_are_told_apart_as_there() {
    let group = |layers: Vec<u16>, heads, dim, window| KvGroup { layers, kind: KvKind::of_heads(heads, dim), window };
    let layout =
        |block_tokens, dtype, encoding, groups| KvLayout::whole(ModelLayout { block_tokens, dtype, encoding, groups });
    let windows = vec![group(vec![0, 2, 4], 1, 256, Some(512)), group(vec![1, 3, 5], 1, 256, None)];
    let one = |layers: u16, heads, dim| vec![group((0..layers).collect(), heads, dim, None)];
    for (layout, whole, part) in [
        (layout(16, Dtype::Bf16, Encoding::Exact, one(32, 8, 128)), 0x3038_cd36_5f2b_cddf, 0x7951_dfd4),
        (layout(64, Dtype::F16, Encoding::Int8, one(30, 3, 64)), 0xecef_f300_013b_7afd, 0xc99a_a143),
        (layout(32, Dtype::F32, Encoding::Fp8, windows), 0x6f71_610d_ef43_9766, 0x32bc_0d04),
    ] {
        let found = (layout.fingerprint(), layout.records_fingerprint(), layout.part(0).fingerprint());
        assert_eq!(found, (whole, whole, part), "{layout:?}");
        // What that release does not have is nothing that it could take for its own.
        let mut other = layout.model.clone();
        other.groups.push(KvGroup { layers: vec![99], kind: KvKind::State { bytes: 8 }, window: None });
        assert_ne!(other.fingerprint(), whole);
        let KvKind::Heads { heads, k_dim, v_dim } = layout.groups[0].kind else { panic!("{layout:?}") };
        let mut other = layout.model.clone();
        other.groups[0].kind = KvKind::Heads { heads, k_dim: k_dim + 1, v_dim: v_dim - 1 };
        assert_ne!(other.fingerprint(), whole);
    }
}

#[test]
fn blocks_are_made_large_for_the_smallest_slice_of_tokens() {
    let tokens = |kinds: &[KvKind]| {
        let group = |&kind: &KvKind| KvGroup { layers: vec![0], kind, window: None };
        ModelLayout::default_block_tokens(Dtype::Bf16, &kinds.iter().map(group).collect::<Vec<_>>())
    };
    assert_eq!(tokens(&[KvKind::of_heads(8, 128)]), 16);
    assert_eq!(tokens(&[KvKind::of_heads(8, 128), KvKind::State { bytes: 8 }]), 16, "a state counts as none");
    assert_eq!(tokens(&[KvKind::Latent { width: 512, rope: 64 }]), 16);
    assert_eq!(tokens(&[KvKind::of_heads(1, 64), KvKind::of_heads(8, 128)]), 64);
    assert_eq!(tokens(&[KvKind::State { bytes: 1 << 20 }]), 64);
}
