//! The instruction sets agree with plain Rust, bit for bit, and the exponential with double precision.

use super::*;
use crate::cpu::tests::effort::{cases, size};
use half::{bf16, f16};
use proptest::prelude::*;

/// Results of every operation on these numbers, as bits; a NaN is one value, whatever its payload.
fn results<S: Simd>(s: S, a: &[f32; LANES], b: &[f32; LANES], c: &[f32; LANES], from: usize, to: usize) -> Vec<u32> {
    let mut bits = Vec::new();
    // SAFETY: all arrays have 16 numbers.
    unsafe {
        let (va, vb, vc) = (s.load(a.as_ptr()), s.load(b.as_ptr()), s.load(c.as_ptr()));
        let halves = a.map(f16::from_f32);
        let brains = a.map(bf16::from_f32);
        let vectors = [
            s.splat(a[0]),
            s.add(va, vb),
            s.sub(va, vb),
            s.mul(va, vb),
            s.div(va, vb),
            s.fma(va, vb, vc),
            s.max(va, vb),
            s.zero_below(va, vb, vc),
            s.within(va, from, to, -1.5),
            s.exp(va),
            s.load_f16(halves.as_ptr()),
            s.load_bf16(brains.as_ptr()),
            s.load_part(b.as_ptr(), from.min(LANES - 1)),
        ];
        let mut square = [va; LANES];
        for (i, row) in square.iter_mut().enumerate() {
            *row = s.add(va, s.splat(i as f32));
        }
        let pairs: [u32; LANES] = std::array::from_fn(|i| a[i].to_bits());
        let (first, second) = s.load_pairs(pairs.as_ptr());
        let zipped = s.zip_bf16(brains.as_ptr(), b.map(bf16::from_f32).as_ptr());
        bits.push(s.first(va));
        let mut rounded = [bf16::ZERO; LANES];
        s.store_bf16(rounded.as_mut_ptr(), va);
        bits.extend(rounded.map(bf16::to_f32));
        for v in vectors.into_iter().chain([first, second, zipped]).chain(s.transpose(square)) {
            let mut lanes = [f32::NAN; LANES];
            s.store(lanes.as_mut_ptr(), v);
            bits.extend(lanes);
        }
        let mut part = [7.0; LANES];
        s.store_part(part.as_mut_ptr(), va, from.min(LANES - 1));
        bits.extend(part);
        bits.extend([s.sum(va), s.largest(va)]);
    }
    bits.into_iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

/// Numbers of all sizes, and those that are none.
fn number() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -100.0f32..100.0,
        2 => any::<f32>(),
        1 => prop_oneof![Just(f32::INFINITY), Just(f32::NEG_INFINITY), Just(f32::NAN), Just(-0.0), Just(0.0)],
    ]
}

proptest! {
    #![proptest_config(cases(1))]

    #[test]
    fn instruction_sets_give_the_same_bits(
        a in prop::array::uniform16(number()),
        b in prop::array::uniform16(number()),
        c in prop::array::uniform16(number()),
        ends in (0..=LANES, 0..=LANES),
    ) {
        let (from, to) = (ends.0.min(ends.1), ends.0.max(ends.1));
        let expected = results(Plain, &a, &b, &c, from, to);
        for isa in Isa::available() {
            let found = match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512(s) => results(s, &a, &b, &c, from, to),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2(s) => results(s, &a, &b, &c, from, to),
                #[cfg(target_arch = "aarch64")]
                Isa::Neon(s) => results(s, &a, &b, &c, from, to),
                Isa::Plain(s) => results(s, &a, &b, &c, from, to),
            };
            prop_assert_eq!(&found, &expected, "{}", isa);
        }
    }
}

fn exp(x: f32) -> f32 {
    Plain.exp([x; LANES])[0]
}

#[test]
fn exp_is_close_to_double_precision() {
    let mut worst = 0.0f64;
    let steps = size(1_750_000, 100);
    for i in 0..=steps {
        let x = EXP_MIN + i as f32 * ((EXP_MAX - EXP_MIN) / steps as f32);
        let expected = f64::from(x).exp();
        worst = worst.max((f64::from(exp(x)) / expected - 1.0).abs());
    }
    assert!(worst < 1.2e-7, "relative error {worst:e}");
}

#[test]
fn exp_at_its_bounds() {
    assert_eq!(exp(0.0), 1.0);
    assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    assert_eq!(exp(EXP_MIN.next_down()), 0.0);
    assert!(exp(EXP_MIN).is_normal());
    assert_eq!(exp(f32::INFINITY), exp(EXP_MAX));
    assert!(exp(EXP_MAX).is_finite());
    assert!(exp(f32::NAN).is_nan());
}

#[test]
fn transposition_swaps_rows_and_columns() {
    let square: [[f32; LANES]; LANES] = std::array::from_fn(|i| std::array::from_fn(|j| (100 * i + j) as f32));
    for (i, row) in Plain.transpose(square).iter().enumerate() {
        for (j, number) in row.iter().enumerate() {
            assert_eq!(*number, (100 * j + i) as f32);
        }
    }
}
