//! Every kernel against a plain reference in double precision, on shapes of all kinds; outputs are poisoned before. And
//! every kernel gives the same bits on all instruction sets.

mod attention;
mod linear;

use super::*;
use crate::cpu::simd::Isa;
use crate::cpu::tests::effort::{cases, sizes};
use crate::rope_angles::rope_angles;
use crate::spec::{Activation, Rope, RopeScaling, Yarn};
use domain::Dtype;
use half::{bf16, f16};
use proptest::prelude::*;
use std::mem::MaybeUninit;

/// 64 bytes, aligned. What kernels write there may have padding, which is no bytes.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Line(#[expect(dead_code, reason = "it is read through pointers")] MaybeUninit<[u8; 64]>);

/// Memory full of `byte`.
pub(super) fn lines(bytes: usize, byte: u8) -> Vec<Line> {
    vec![Line(MaybeUninit::new([byte; 64])); bytes.div_ceil(64)]
}

/// Numbers between -1 and 1, from a seed (xorshift64*).
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f32 / (1 << 23) as f32) - 1.0
    }

    pub(super) fn vec(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// Outputs of a panel that there are weights of. Kernels multiply with all of them.
pub(super) fn outputs() -> BoxedStrategy<usize> {
    sizes(1..=PANEL, 1usize..6)
}

pub(super) fn seed() -> impl Strategy<Value = u64> {
    1u64..u64::MAX
}

fn dtype() -> impl Strategy<Value = Dtype> {
    prop_oneof![Just(Dtype::F32), Just(Dtype::F16), Just(Dtype::Bf16)]
}

/// The bytes of numbers in a format, 8 bytes aligned, and the numbers as they are after rounding.
fn encode(numbers: &[f32], dtype: Dtype) -> (Vec<u64>, Vec<f32>) {
    let mut bytes = Vec::new();
    let mut rounded = Vec::new();
    for &x in numbers {
        match dtype {
            Dtype::F32 => {
                bytes.extend(x.to_le_bytes());
                rounded.push(x);
            }
            Dtype::F16 => {
                bytes.extend(f16::from_f32(x).to_le_bytes());
                rounded.push(f16::from_f32(x).to_f32());
            }
            Dtype::Bf16 => {
                bytes.extend(bf16::from_f32(x).to_le_bytes());
                rounded.push(bf16::from_f32(x).to_f32());
            }
        }
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    (words, rounded)
}

/// Runs a kernel on all instruction sets: they must agree bit for bit. The result of the first.
fn on_all(run: impl Fn(Isa) -> Vec<f32>) -> Vec<f32> {
    let all = Isa::available();
    let first = run(all[0]);
    for isa in &all[1..] {
        let other = run(*isa);
        let differs = first.iter().zip(&other).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(differs, None, "{} and {isa} differ", all[0]);
    }
    first
}

#[track_caller]
fn assert_close(found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        assert!(error <= tolerance, "number {i}: {found}, expected {expected}");
    }
}

proptest! {
    #![proptest_config(cases(5))]

    #[test]
    fn rms_norm_norms(
        seed in seed(),
        width in 1usize..200,
        with_add in any::<bool>(),
        add_scale in prop_oneof![Just(1.0f32), 0.1f32..2.0],
        weighted in any::<bool>(),
        in_place in any::<bool>(),
    ) {
        let mut numbers = Numbers(seed);
        let (x, add, weight) = (numbers.vec(width), numbers.vec(width), numbers.vec(width));
        let eps = 1e-5;
        let found = on_all(|isa| {
            let (mut x, mut out) = (x.clone(), vec![f32::NAN; width]);
            let norm = RmsNorm {
                x: x.as_mut_ptr(),
                add: if with_add { add.as_ptr() } else { std::ptr::null() },
                add_scale,
                weight: if weighted { weight.as_ptr() } else { std::ptr::null() },
                out: if in_place { x.as_mut_ptr() } else { out.as_mut_ptr() },
                width, eps,
            };
            // SAFETY: all vectors have `width` numbers.
            unsafe { rms_norm(isa, &norm) };
            if in_place { x } else { x.extend(out); x }
        });
        let added = if with_add { f64::from(add_scale) } else { 0.0 };
        let sum: Vec<f64> = x.iter().zip(&add).map(|(x, add)| f64::from(*x) + added * f64::from(*add)).collect();
        let scale = 1.0 / (sum.iter().map(|x| x * x).sum::<f64>() / width as f64 + f64::from(eps)).sqrt();
        let normed: Vec<f64> = match weighted {
            true => sum.iter().zip(&weight).map(|(x, weight)| x * scale * f64::from(*weight)).collect(),
            false => sum.clone(),
        };
        let expected = if in_place { normed } else { [sum, normed].concat() };
        assert_close(&found, &expected, 1e-5);
    }

    #[test]
    fn gates_are_activated(
        seed in seed(),
        width in 1usize..100,
        range in prop_oneof![Just(1.0f32), Just(30.0), Just(500.0)],
        activation in prop_oneof![Just(Activation::Silu), Just(Activation::GeluTanh)],
    ) {
        let mut numbers = Numbers(seed);
        let gate_up: Vec<f32> = numbers.vec(2 * width).iter().map(|x| x * range).collect();
        let found = on_all(|isa| {
            let mut out = vec![f32::NAN; width + 1];
            // SAFETY: there are twice `width` numbers, and room for `width`.
            unsafe { gated(isa, &Gated { activation, gate_up: gate_up.as_ptr(), out: out.as_mut_ptr(), width }) };
            assert!(out.pop().unwrap().is_nan());
            out
        });
        let expected: Vec<f64> = (0..width)
            .map(|i| {
                let (gate, up) = (f64::from(gate_up[i]), f64::from(gate_up[width + i]));
                let root = (2.0 / std::f64::consts::PI).sqrt();
                match activation {
                    Activation::Silu => gate / (1.0 + (-gate).exp()) * up,
                    Activation::GeluTanh => 0.5 * gate * (1.0 + (root * (gate + 0.044715 * gate.powi(3))).tanh()) * up,
                }
            })
            .collect();
        assert_close(&found, &expected, 1e-6 * f64::from(range * range));
    }

    #[test]
    fn rows_are_scaled_and_capped(seed in seed(), width in 1usize..100, scale in 0.1f32..100.0, cap in prop::option::of(0.5f32..50.0)) {
        let row = Numbers(seed).vec(width);
        let found = on_all(|isa| {
            let mut row = [row.clone(), vec![f32::NAN]].concat();
            // SAFETY: there are `width` numbers.
            unsafe { cap_row(isa, &CapRow { x: row.as_mut_ptr(), width, scale, cap }) };
            assert!(row.pop().unwrap().is_nan());
            row
        });
        let scaled = row.iter().map(|x| f64::from(*x) * f64::from(scale));
        let expected: Vec<f64> = match cap.map(f64::from) {
            Some(cap) => scaled.map(|x| cap * (x / cap).tanh()).collect(),
            None => scaled.collect(),
        };
        assert_close(&found, &expected, 1e-6 * f64::from(cap.unwrap_or(scale)));
    }

    #[test]
    fn rotary_rotates(
        seed in seed(),
        count in 1usize..5,
        half in 1usize..40,
        unrotated in prop_oneof![Just(0usize), 1usize..20],
        position in 0u32..100_000,
    ) {
        let (dims, head_dim) = (2 * half, 2 * half + unrotated);
        let mut numbers = Numbers(seed);
        let heads = numbers.vec(count * head_dim);
        let angles = rope_angles(&Rope { theta: 10_000.0, dims, scaling: RopeScaling::None });
        let turns: Vec<f64> = angles.iter().map(|angle| f64::from(position as f32 * angle)).collect();
        let table: Vec<f32> = turns.iter().map(|x| x.cos() as f32).chain(turns.iter().map(|x| x.sin() as f32)).collect();
        let found = on_all(|isa| {
            let mut heads = heads.clone();
            // SAFETY: there are `count` heads, and one head's worth of table.
            unsafe { rotary(isa, &RotaryRow { heads: heads.as_mut_ptr(), count, head_dim, dims, table: table.as_ptr() }) };
            heads
        });
        let mut expected: Vec<f64> = heads.iter().map(|x| f64::from(*x)).collect();
        for head in (0..heads.len()).step_by(head_dim) {
            for i in 0..half {
                let (a, b) = (f64::from(heads[head + i]), f64::from(heads[head + half + i]));
                expected[head + i] = a * turns[i].cos() - b * turns[i].sin();
                expected[head + half + i] = a * turns[i].sin() + b * turns[i].cos();
            }
        }
        assert_close(&found, &expected, 1e-6);
    }

    #[test]
    fn cache_rows_are_narrowed_and_the_rest_is_zero(
        seed in seed(), dtype in dtype(), heads in 1usize..4, head_dim in 1usize..40, zeroed in 0usize..5,
    ) {
        let mut numbers = Numbers(seed);
        let row = numbers.vec(heads * head_dim);
        let positions = zeroed + 2;
        let part = positions * head_dim;
        let (expected, _) = {
            let mut all = vec![9.0; heads * part];
            for head in 0..heads {
                all[head * part..][..head_dim].copy_from_slice(&row[head * head_dim..][..head_dim]);
                all[head * part + head_dim..][..zeroed * head_dim].fill(0.0);
            }
            encode(&all, dtype)
        };
        for isa in Isa::available() {
            let (mut bytes, _) = encode(&vec![9.0; heads * part], dtype);
            let cache = CacheRow {
                from: row.as_ptr(), to: bytes.as_mut_ptr().cast(), head_stride: part * dtype.bytes(), heads, head_dim, zeroed,
            };
            // SAFETY: every head has room for the positions.
            unsafe { cache_row(isa, dtype, &cache) };
            prop_assert_eq!(&bytes, &expected, "{}", isa);
        }
    }
}

#[test]
fn llama3_angles_are_scaled_by_wavelength() {
    // Of Llama 3.1: theta 500000, factor 8, low 1, high 4, original context 8192.
    let plain = rope_angles(&Rope { theta: 500_000.0, dims: 128, scaling: RopeScaling::None });
    let scaling =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192.0 };
    let scaled = rope_angles(&Rope { theta: 500_000.0, dims: 128, scaling });
    for (plain, scaled) in plain.iter().zip(&scaled) {
        let wavelength = 2.0 * std::f32::consts::PI / plain;
        if wavelength < 2048.0 {
            assert_eq!(scaled, plain);
        } else if wavelength > 8192.0 {
            assert_eq!(*scaled, plain / 8.0);
        } else {
            assert!(*scaled < *plain && *scaled > plain / 8.0);
        }
    }
    let scaling = RopeScaling::Linear { factor: 4.0 };
    let linear = rope_angles(&Rope { theta: 500_000.0, dims: 128, scaling });
    assert!(plain.iter().zip(&linear).all(|(plain, linear)| *linear == plain / 4.0));
    let factors: Vec<f64> = (0..64).map(|i| f64::from(1 << (i % 3))).collect();
    let scaling = RopeScaling::Long { factors: factors.clone(), magnitude: 1.5 };
    let long = rope_angles(&Rope { theta: 500_000.0, dims: 128, scaling });
    assert!(plain.iter().zip(&long).zip(factors).all(|((plain, long), factor)| *long == plain / factor as f32));
}

#[test]
fn yarn_scales_what_turns_seldom() {
    let rope = |scaling| Rope { theta: 1_000_000.0, dims: 128, scaling };
    let yarn = Yarn {
        factor: 4.0,
        fast_turns: 32.0,
        slow_turns: 1.0,
        whole_pairs: true,
        original_context: 32_768.0,
        magnitude: 1.0,
    };
    let plain = rope_angles(&rope(RopeScaling::None));
    let scaled = rope_angles(&rope(RopeScaling::Yarn(yarn)));
    let mut between = 0;
    for (plain, scaled) in plain.iter().zip(&scaled) {
        // Rounding to whole pairs widens the bounds by less than the ratio of neighbours, 1.25.
        let turns = 32_768.0 * plain / (2.0 * std::f32::consts::PI);
        if turns > 32.0 * 1.25 {
            assert_eq!(scaled, plain);
        } else if turns < 1.0 / 1.25 {
            assert_eq!(*scaled, plain / 4.0);
        } else {
            between += 1;
            assert!(*scaled <= *plain && *scaled >= plain / 4.0);
        }
    }
    // ln(32) / ln(1.241), and one or two for the whole pairs.
    assert!((16..=18).contains(&between), "{between}");
    let one = Yarn { factor: 1.0, ..yarn };
    assert_eq!(rope_angles(&rope(RopeScaling::Yarn(one))), plain);
}
