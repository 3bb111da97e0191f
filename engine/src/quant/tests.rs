use super::*;
use domain::Dtype;
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
    for format in [WeightFormat::Q8_0, WeightFormat::Q4K, WeightFormat::Q6K] {
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
