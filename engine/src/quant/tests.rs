use super::*;
use domain::Dtype;
use proptest::prelude::*;
use std::collections::HashMap;

/// Blocks of random bytes and what another implementation sees in them; see `make_goldens.py` beside it.
const GOLDENS: &str = include_str!("testdata/goldens.json");

#[derive(serde::Deserialize)]
struct Golden {
    bytes: String,
    bits: Vec<u32>,
}

#[test]
fn quantised_blocks_mean_what_ggml_says() {
    let goldens: HashMap<String, Golden> = serde_json::from_str(GOLDENS).unwrap();
    use WeightFormat::{Q4_0, Q4_1, Q4K, Q6K, Q8_0, Repacked as Stored};
    for format in [Q8_0, Q4_0, Q4_1, Q4K, Q6K].into_iter().chain(Repacked::ALL.map(Stored)) {
        let Golden { bytes, bits } = &goldens[&format.to_string()];
        let bytes: Vec<u8> =
            (0..bytes.len() / 2).map(|i| u8::from_str_radix(&bytes[2 * i..2 * i + 2], 16).unwrap()).collect();
        assert_eq!(format.bytes(bits.len()), Some(bytes.len()), "{format}");
        let mut numbers = vec![f32::NAN; bits.len()];
        format.dequantise(&bytes, &mut numbers);
        for (i, (number, &bits)) in numbers.iter().zip(bits).enumerate() {
            assert_eq!(*number, f32::from_bits(bits), "{format}, number {i}");
        }
    }
}

#[test]
fn plain_numbers_are_widened() {
    let check = |dtype, bytes: &[u8], expect: &[f32]| {
        let mut numbers = vec![f32::NAN; expect.len()];
        WeightFormat::from(dtype).dequantise(bytes, &mut numbers);
        assert_eq!(numbers, expect);
    };
    check(Dtype::F32, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0], &[1.0, -2.0]);
    check(Dtype::F16, &[0, 0x3c, 0, 0xc0], &[1.0, -2.0]);
    check(Dtype::Bf16, &[0x80, 0x3f, 0, 0xc0], &[1.0, -2.0]);
}

#[test]
fn rows_are_whole_blocks() {
    assert_eq!(WeightFormat::Q8_0.bytes(64), Some(68));
    assert_eq!(WeightFormat::Q8_0.bytes(48), None);
    assert_eq!(WeightFormat::Q4K.bytes(512), Some(288));
    assert_eq!(WeightFormat::Q4K.bytes(128), None);
    assert_eq!(WeightFormat::Q6K.bytes(usize::MAX / 256 * 256), Some(usize::MAX / 256 * 210));
    assert_eq!(WeightFormat::Plain(Dtype::F32).bytes(usize::MAX), None);
    assert_eq!(WeightFormat::Plain(Dtype::Bf16).bytes(3), Some(6));
}

#[test]
#[should_panic(expected = "256 numbers of Q4_K")]
fn a_length_that_does_not_fit_is_refused() {
    WeightFormat::Q4K.dequantise(&[0; 145], &mut [0.0; 256]);
}

/// Blocks of random bits with scales like those of a model.
pub(crate) fn random_blocks(format: Repacked, blocks: usize) -> Vec<u8> {
    let (size, halves): (usize, &[usize]) = match format {
        Repacked::Q5_0 => (22, &[0]),
        Repacked::Q5_1 => (24, &[0, 2]),
        Repacked::Q8_1 => (36, &[0, 2]),
        Repacked::Q2K => (84, &[80, 82]),
        Repacked::Q3K => (110, &[108]),
        Repacked::Q5K => (176, &[0, 2]),
        Repacked::Q8K => (292, &[]),
    };
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut bytes: Vec<u8> = (0..size * blocks).map(|_| next() as u8).collect();
    for block in bytes.chunks_exact_mut(size) {
        for &at in halves {
            let scale = f16::from_f32((next() % 1000) as f32 * 2e-5 - 0.01);
            block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
        if format == Repacked::Q8K {
            block[..4].copy_from_slice(&0.003f32.to_le_bytes());
        }
    }
    bytes
}

#[test]
fn repacking_stays_within_its_bound_and_keeps_q5_0() {
    for format in Repacked::ALL {
        let stored = WeightFormat::Repacked(format);
        let bytes = random_blocks(format, 64);
        let mut numbers = vec![0.0; bytes.len() / stored.block_bytes() * stored.block_numbers()];
        stored.dequantise(&bytes, &mut numbers);
        let mut found = vec![0.0; numbers.len()];
        WeightFormat::Q8_0.dequantise(&format.repack(&bytes), &mut found);
        let mut largest_share = 0.0f32;
        for (numbers, found) in numbers.chunks_exact(32).zip(found.chunks_exact(32)) {
            let largest = numbers.iter().fold(0.0f32, |largest, number| largest.max(number.abs()));
            assert!(largest > 0.0, "{format}: the blocks hold something");
            for (number, found) in numbers.iter().zip(found) {
                largest_share = largest_share.max((number - found).abs() / largest);
            }
        }
        assert!(largest_share <= Q8_0_ERROR_MAX, "{format}: {largest_share}");
        assert_eq!(largest_share == 0.0, format == Repacked::Q5_0, "{format}: {largest_share}");
    }
}

#[test]
fn blocks_are_widened_wherever_they_lie() {
    for format in Repacked::ALL {
        let stored = WeightFormat::Repacked(format);
        let bytes = random_blocks(format, 3);
        let moved = [&[0][..], &bytes].concat();
        let mut numbers = [vec![0.0; 3 * stored.block_numbers()], vec![0.0; 3 * stored.block_numbers()]];
        stored.dequantise(&bytes, &mut numbers[0]);
        stored.dequantise(&moved[1..], &mut numbers[1]);
        assert_eq!(numbers[0], numbers[1], "{format}");
    }
}

/// The largest change of a number when this block is quantised as Q8_0, and the largest magnitude.
fn changed(numbers: &[f32; 32]) -> (f32, f32) {
    let mut found = [0.0; 32];
    WeightFormat::Q8_0.dequantise(&Q8_0::pack(numbers, |_, numbers| Q8_0::scale_of(numbers)), &mut found);
    let largest = |numbers: &mut dyn Iterator<Item = f32>| numbers.fold(0.0f32, |most, number| most.max(number.abs()));
    let change = largest(&mut numbers.iter().zip(&found).map(|(number, found)| number - found));
    (change, largest(&mut numbers.iter().copied()))
}

/// Checks that no number of a block changes by more than is allowed.
#[track_caller]
fn check_changes(numbers: &[f32; 32]) {
    let (change, largest) = changed(numbers);
    let floor = if largest < 1.0 / 512.0 { Q8_0_ERROR_FLOOR } else { 0.0 };
    let allowed = Q8_0_ERROR_MAX * largest + floor;
    assert!(change <= allowed, "{change:e} of {largest:e}, allowed {allowed:e}: {numbers:?}");
}

#[test]
fn blocks_of_small_numbers_stay_within_the_bound_or_the_floor() {
    for step in 0..4000 {
        // From 10 down to 1e-7.
        let largest = 10f32.powf(1.0 - step as f32 / 500.0);
        check_changes(&std::array::from_fn(|i| largest * (1.0 - i as f32 / 15.5)));
    }
    check_changes(&[0.0; 32]);
    // What is next to nothing becomes nothing.
    assert_eq!(changed(&[1e-8; 32]), (1e-8, 1e-8));
}

proptest! {
    #[test]
    fn random_blocks_stay_within_the_bound_or_the_floor(
        exponent in -8.0f32..2.0,
        shares in prop::array::uniform32(-1.0f32..=1.0),
    ) {
        check_changes(&shares.map(|share| share * 10f32.powf(exponent)));
    }
}
