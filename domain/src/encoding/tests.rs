//! Records there and back, in every format of the pool.

use super::*;
use crate::layout::{KvGroup, KvKind, KvLayout, ModelLayout};
use proptest::prelude::*;

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
const LOSSY: [Encoding; 2] = [Encoding::Int8, Encoding::Fp8];
const HEAD_DIM: usize = 6;
/// The last group of a part is of two tokens.
const BLOCK_TOKENS: usize = 10;
/// Numbers of a record: two layers of two heads.
const NUMBERS: usize = 2 * 2 * 2 * BLOCK_TOKENS * HEAD_DIM;

fn layout(dtype: Dtype, encoding: Encoding) -> KvLayout {
    let group = KvGroup { layers: vec![0, 1], kind: KvKind::of_heads(2, HEAD_DIM as u32), window: None };
    KvLayout::whole(ModelLayout { block_tokens: BLOCK_TOKENS as u32, dtype, encoding, groups: vec![group] })
}

/// The group that a number of a record is in.
fn group_of(number: usize) -> (usize, usize) {
    let (part, at) = (number / (BLOCK_TOKENS * HEAD_DIM), number % (BLOCK_TOKENS * HEAD_DIM));
    (part, at / HEAD_DIM / GROUP_TOKENS as usize)
}

fn record_of(dtype: Dtype, values: &[f32]) -> Vec<u8> {
    let bytes = |&value: &f32| match dtype {
        Dtype::F32 => F32::nearest(value).to_vec(),
        Dtype::F16 => F16::nearest(value).to_vec(),
        Dtype::Bf16 => Bf16::nearest(value).to_vec(),
    };
    values.iter().flat_map(bytes).collect()
}

fn values_of(dtype: Dtype, record: &[u8]) -> Vec<f32> {
    fn all<N: Number>(record: &[u8]) -> Vec<f32> {
        let value = |&number: &N::Bytes| if N::magnitude(number) < N::INFINITY { N::value(number) } else { f32::NAN };
        N::Bytes::split(record).iter().map(value).collect()
    }
    match dtype {
        Dtype::F32 => all::<F32>(record),
        Dtype::F16 => all::<F16>(record),
        Dtype::Bf16 => all::<Bf16>(record),
    }
}

fn encoded(layout: &KvLayout, record: &[u8]) -> Vec<u8> {
    let mut stored = vec![0xA5; layout.stored_bytes(0)];
    layout.encode(0, record, &mut stored);
    stored
}

fn decoded(layout: &KvLayout, stored: &[u8]) -> Vec<u8> {
    let mut record = vec![0xA5; layout.record_bytes(0)];
    layout.decode(0, stored, &mut record);
    record
}

/// Returns the largest of the numbers that share a scale with this one.
fn largest(values: &[f32], number: usize) -> f64 {
    let group = values.iter().enumerate().filter(|(other, _)| group_of(*other) == group_of(number));
    group.map(|(_, value)| f64::from(value.abs())).fold(0.0, f64::max)
}

/// Returns how far a number may be off.
fn bound(dtype: Dtype, encoding: Encoding, value: f32, largest: f64) -> f64 {
    let value = f64::from(value.abs());
    let step = match encoding {
        Encoding::Exact => 0.0,
        Encoding::Int8 => largest / 127.0 / 2.0,
        // Below the smallest normal number steps are all the same.
        Encoding::Fp8 => (value / 16.0).max(largest / 448.0 / 1024.0),
    };
    // What is computed in `f32` on the way is off as well.
    let step = step * 1.0001;
    let half_bit = match dtype {
        Dtype::F32 => (value + step) * 2_f64.powi(-24),
        Dtype::F16 => (value + step) * 2_f64.powi(-11) + 2_f64.powi(-25),
        Dtype::Bf16 => (value + step) * 2_f64.powi(-8),
    };
    step + half_bit + f64::from(LEAST)
}

#[track_caller]
fn check_bound(dtype: Dtype, encoding: Encoding, values: &[f32]) {
    let layout = layout(dtype, encoding);
    let record = record_of(dtype, values);
    let before = values_of(dtype, &record);
    let after = values_of(dtype, &decoded(&layout, &encoded(&layout, &record)));
    for (number, (&value, &came)) in before.iter().zip(&after).enumerate() {
        let (off, bound) =
            ((f64::from(value) - f64::from(came)).abs(), bound(dtype, encoding, value, largest(&before, number)));
        assert!(off <= bound, "{dtype:?} {encoding}: number {number}, {value}, came back as {came}: {off} > {bound}");
    }
}

/// Numbers of a record below 1, some of them very small.
fn numbers() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec((-1.0_f32..1.0, 0..24_i32).prop_map(|(value, power)| value * 2_f32.powi(-power)), NUMBERS)
}

proptest! {
    #[test]
    fn nothing_is_off_by_more_than_it_may(numbers in numbers(), power in -24..=15_i32, wide in -120..=126_i32) {
        for (dtype, encoding) in DTYPES.into_iter().flat_map(|dtype| LOSSY.map(|encoding| (dtype, encoding))) {
            let power = if dtype == Dtype::F16 { power } else { wide };
            let values: Vec<f32> = numbers.iter().map(|number| number * 2_f32.powi(power)).collect();
            check_bound(dtype, encoding, &values);
        }
    }

    #[test]
    fn what_comes_back_goes_down_as_it_was(mut numbers in numbers(), power in 0..=15_i32) {
        // No group is without a normal number of F16.
        numbers.iter_mut().step_by(HEAD_DIM).for_each(|number| *number = 0.7);
        for (dtype, encoding) in DTYPES.into_iter().flat_map(|dtype| LOSSY.map(|encoding| (dtype, encoding))) {
            let layout = layout(dtype, encoding);
            let values: Vec<f32> = numbers.iter().map(|number| number * 2_f32.powi(power)).collect();
            let stored = encoded(&layout, &record_of(dtype, &values));
            prop_assert_eq!(encoded(&layout, &decoded(&layout, &stored)), stored, "{:?} {}", dtype, encoding);
        }
    }

    /// What a checksum has vouched for is never anything else, but nothing panics over it.
    #[test]
    fn any_bytes_are_some_record(seed: u64) {
        let mut state = seed;
        for (dtype, encoding) in DTYPES.into_iter().flat_map(|dtype| LOSSY.map(|encoding| (dtype, encoding))) {
            let layout = layout(dtype, encoding);
            let byte = |_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            };
            let stored: Vec<u8> = (0..layout.stored_bytes(0)).map(byte).collect();
            decoded(&layout, &stored);
        }
    }
}

#[test]
fn exact_is_exact() {
    for dtype in DTYPES {
        let layout = layout(dtype, Encoding::Exact);
        let record: Vec<u8> = (0..layout.record_bytes(0)).map(|at| (at * 31) as u8).collect();
        let stored = encoded(&layout, &record);
        assert_eq!(stored, record);
        assert_eq!(decoded(&layout, &stored), record);
    }
}

#[test]
fn the_largest_and_the_smallest_come_back_finite() {
    for (dtype, max) in [(Dtype::F32, f32::MAX), (Dtype::F16, 65_504.0), (Dtype::Bf16, f32::from_bits(0x7F7F_0000))] {
        for encoding in LOSSY {
            let small = if dtype == Dtype::F16 { 2_f32.powi(-24) } else { f32::from_bits(1 << 16) };
            for [one, other] in [[max, -max], [max, small], [small, -small], [small, 0.0]] {
                let values: Vec<f32> = (0..NUMBERS).map(|at| if at % 7 == 3 { other } else { one }).collect();
                check_bound(dtype, encoding, &values);
            }
        }
    }
}

#[test]
fn what_is_not_finite_makes_its_group_no_numbers_and_zeros_stay() {
    for (dtype, infinity, nan) in
        [(Dtype::F32, 0x7F80_0000_u32, 0x7F80_0001_u32), (Dtype::F16, 0x7C00, 0x7FFF), (Dtype::Bf16, 0x7F80, 0xFFC0)]
    {
        for encoding in LOSSY {
            let layout = layout(dtype, encoding);
            let mut values: Vec<f32> = (0..NUMBERS).map(|at| at as f32 / 100.0 - 1.5).collect();
            let zeros = (0, 1);
            (0..NUMBERS).filter(|&at| group_of(at) == zeros).for_each(|at| values[at] = 0.0);
            let mut record = record_of(dtype, &values);
            let sound = values_of(dtype, &decoded(&layout, &encoded(&layout, &record)));
            let broken = [(3, infinity), (BLOCK_TOKENS * HEAD_DIM + 1, nan)];
            for (at, bits) in broken {
                let bytes = dtype.bytes();
                record[at * bytes..(at + 1) * bytes].copy_from_slice(&bits.to_le_bytes()[..bytes]);
            }
            let after = values_of(dtype, &decoded(&layout, &encoded(&layout, &record)));
            for (at, (came, sound)) in after.iter().zip(&sound).enumerate() {
                let is_broken = broken.iter().any(|(broken, _)| group_of(*broken) == group_of(at));
                assert_eq!(came.is_nan(), is_broken, "{dtype:?} {encoding}: number {at} is {came}");
                assert!(is_broken || came == sound, "{dtype:?} {encoding}: number {at}");
                assert!(group_of(at) != zeros || *came == 0.0);
            }
        }
    }
}

#[test]
fn records_shrink_and_their_layouts_differ() {
    let group = KvGroup { layers: (0..12).collect(), kind: KvKind::of_heads(4, 64), window: None };
    let layout = |encoding| {
        KvLayout::whole(ModelLayout { block_tokens: 16, dtype: Dtype::Bf16, encoding, groups: vec![group.clone()] })
    };
    let [exact, int8, fp8] = [Encoding::Exact, Encoding::Int8, Encoding::Fp8].map(layout);
    // Of 16 tokens of a head: two bytes a number, or one and four scales.
    assert_eq!(exact.stored_bytes(0), 12 * 4 * 2 * 16 * 64 * 2);
    assert_eq!(int8.stored_bytes(0), 12 * 4 * 2 * (16 * 64 + 4 * 4));
    assert_eq!(fp8.stored_bytes(0), int8.stored_bytes(0));
    assert_eq!(int8.record_bytes(0), exact.record_bytes(0), "the device has it as it is");
    let fingerprints = [&exact, &int8, &fp8].map(|layout| layout.fingerprint());
    assert!(
        fingerprints[0] != fingerprints[1] && fingerprints[1] != fingerprints[2] && fingerprints[2] != fingerprints[0]
    );
}

/// As a record is encoded, so is any part of it by itself: whoever sends some layers of a block sends what a tier
/// has of them.
#[test]
fn any_run_of_parts_is_encoded_as_in_the_record() {
    for (dtype, encoding) in DTYPES.into_iter().flat_map(|dtype| LOSSY.map(|encoding| (dtype, encoding))) {
        let layout = layout(dtype, encoding);
        let part = layout.part(0);
        let values: Vec<f32> = (0..NUMBERS).map(|at| (at as f32 * 0.37).sin()).collect();
        let record = record_of(dtype, &values);
        let stored = encoded(&layout, &record);
        for (first, last) in [(0, 1), (3, 4), (2, 7), (0, 8)] {
            let of = |bytes: usize| first * bytes..last * bytes;
            let (parts, expected) = (&record[of(part.bytes())], &stored[of(part.stored_bytes())]);
            let mut got = vec![0xA5; part.stored_bytes_of(parts.len())];
            part.encode(parts, &mut got);
            assert_eq!(got, expected, "{dtype:?} {encoding}, parts {first} to {last}");
            let mut back = vec![0xA5; parts.len()];
            part.decode(&got, &mut back);
            assert_eq!(
                back,
                decoded(&layout, &stored)[of(part.bytes())],
                "{dtype:?} {encoding}, parts {first} to {last}"
            );
        }
    }
}

#[test]
fn parts_of_another_kind_are_told_apart() {
    let group = |head_dim| KvGroup { layers: vec![0], kind: KvKind::of_heads(1, head_dim), window: None };
    let layout = |block_tokens, dtype, encoding, head_dim| {
        KvLayout::whole(ModelLayout { block_tokens, dtype, encoding, groups: vec![group(head_dim)] })
    };
    let parts = [
        layout(16, Dtype::Bf16, Encoding::Int8, 64),
        layout(16, Dtype::Bf16, Encoding::Fp8, 64),
        layout(16, Dtype::F16, Encoding::Int8, 64),
        layout(32, Dtype::Bf16, Encoding::Int8, 64),
        // As many numbers, but other groups.
        layout(8, Dtype::Bf16, Encoding::Int8, 128),
    ];
    let prints = parts.map(|layout| layout.part(0).fingerprint());
    let different: std::collections::BTreeSet<_> = prints.into_iter().collect();
    assert_eq!(different.len(), prints.len());
}
