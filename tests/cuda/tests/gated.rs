//! Activated gates against numbers in f64.

use cuda::kernels::{Activation, GateOrder, Gated, GatedArgs};
use half::bf16;
use proptest::prelude::*;
use tests_cuda::{Draw, Gpu, assert_near, widened};

/// What rounding to bf16 is off by at most, and a bit for what an exponential is.
const ROUNDING: f64 = 1.0 / 255.0;
/// Numbers of a group of interleaved gates.
const GROUP: usize = 8;

/// Gates the rows, each of gates and then ups. Returns the results, and which rows are broken.
fn gate(gpu: &Gpu, rows: &[bf16], width: usize, activation: Activation, order: GateOrder) -> (Vec<bf16>, Vec<u32>) {
    let count = rows.len() / (2 * width);
    let laid: Vec<bf16> = match order {
        GateOrder::Halves => rows.to_vec(),
        GateOrder::Groups => rows.chunks(2 * width).flat_map(interleaved).collect(),
    };
    let (from, out, broken) = (gpu.upload(&laid), gpu.empty(count * width), gpu.upload(&vec![0_u32; count]));
    let args = GatedArgs {
        gates_ups: from.address(),
        out: out.address(),
        broken: broken.address(),
        rows: count as u32,
        width: width as u32,
        activation,
        order,
    };
    // SAFETY: the buffers are as the arguments say.
    unsafe { Gated::load(&gpu.loader).expect("the kernel").launch(&gpu.stream, &args) }.expect("a launch");
    (out.read(), broken.read())
}

fn interleaved(row: &[bf16]) -> Vec<bf16> {
    let (gates, ups) = row.split_at(row.len() / 2);
    gates.chunks(GROUP).zip(ups.chunks(GROUP)).flat_map(|(gates, ups)| [gates, ups].concat()).collect()
}

fn exact(activation: Activation, gate: f64, up: f64) -> f64 {
    match activation {
        Activation::Silu => gate / (1.0 + (-gate).exp()) * up,
        Activation::GeluTanh => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044_715 * gate * gate * gate);
            // The same as with a hyperbolic tangent, which loses all places far below zero.
            gate / (1.0 + (-2.0 * u).exp()) * up
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn gates_are_activated(seed: u64, rows in 1usize..6, steps in 1usize..90, size in 0.1f32..12.0) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let (width, mut draw) = (steps * GROUP, Draw::new(seed));
        let input = draw.normals(rows * 2 * width, size);
        let wide = widened(&input);
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let (found, broken) = gate(gpu, &input, width, activation, GateOrder::Halves);
            let number = |i: usize, half: usize| f64::from(wide[(i / width * 2 + half) * width + i % width]);
            let pair = |i: usize| (number(i, 0), number(i, 1));
            let exact: Vec<f64> = (0..rows * width).map(pair).map(|(gate, up)| exact(activation, gate, up)).collect();
            assert_near(&widened(&found), &exact, ROUNDING, 1e-30, "a gate");
            prop_assert_eq!(broken, vec![0; rows]);
            // The order of gates changes no bit, nor do other rows.
            prop_assert_eq!(&gate(gpu, &input, width, activation, GateOrder::Groups).0, &found);
            let alone = gate(gpu, &input[(rows - 1) * 2 * width..], width, activation, GateOrder::Halves).0;
            prop_assert_eq!(&alone[..], &found[(rows - 1) * width..]);
        }
    }
}

#[test]
fn far_numbers_stay_numbers_and_broken_rows_are_told() {
    let Some(gpu) = Gpu::open() else { return };
    const WIDTH: usize = 8;
    let row = |gate: f32, up: f32| {
        let mut row = [bf16::ONE; 2 * WIDTH];
        (row[3], row[WIDTH + 3]) = (bf16::from_f32(gate), bf16::from_f32(up));
        row
    };
    let far = [(1e30, 1.0), (-1e30, 1.0), (88.0, -2.0), (-88.0, 2.0), (-80.0, 1e30), (0.0, 1e38)];
    let nan = [
        (f32::NAN, 1.0),
        (1.0, f32::NAN),
        (f32::INFINITY, 1.0),
        (f32::NEG_INFINITY, 1.0),
        (1.0, f32::INFINITY),
        (-200.0, f32::INFINITY),
        (1e30, 1e30),
    ];
    let rows: Vec<bf16> = far.iter().chain(&nan).flat_map(|&(gate, up)| row(gate, up)).collect();
    for activation in [Activation::Silu, Activation::GeluTanh] {
        let (found, broken) = gate(gpu, &rows, WIDTH, activation, GateOrder::Halves);
        assert_eq!(broken, [vec![0; far.len()], vec![1; nan.len()]].concat(), "{activation:?}");
        let found: Vec<f32> = found.chunks(WIDTH).take(far.len()).map(|row| row[3].to_f32()).collect();
        let exact: Vec<f64> = far
            .iter()
            .map(|&(gate, up)| {
                exact(activation, f64::from(bf16::from_f32(gate).to_f32()), f64::from(bf16::from_f32(up).to_f32()))
            })
            .collect();
        assert_near(&found, &exact, ROUNDING, 1e-12, "a far number");
    }
}
