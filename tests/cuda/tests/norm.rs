//! RMS norm against numbers in f64.

use cuda::kernels::{Norm, NormArgs};
use half::bf16;
use proptest::prelude::*;
use tests_cuda::{Draw, Gpu, assert_near, widened};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn rows_are_normed(seed: u64, rows in 1usize..5, steps in 1usize..600, with_add: bool, scale in 0.2f32..3.0) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let (width, mut draw) = (steps * 8, Draw::new(seed));
        let (residual, add) = (draw.normals(rows * width, 2.0), draw.normals(rows * width, 1.0));
        let weight: Vec<f32> = (0..width).map(|_| draw.normal()).collect();
        let (on_residual, on_add, on_weight) = (gpu.upload(&residual), gpu.upload(&add), gpu.upload(&weight));
        let (out, broken) = (gpu.empty::<bf16>(rows * width), gpu.upload(&vec![0_u32; rows]));
        let norm = Norm::load(&gpu.loader).expect("the kernel");
        let args = NormArgs {
            residual: on_residual.address(),
            add: if with_add { on_add.address() } else { 0 },
            weight: on_weight.address(),
            out: out.address(),
            broken: broken.address(),
            from: 0,
            rows: rows as u32,
            width: width as u32,
            eps: 1e-5,
            residual_scale: scale,
        };
        // SAFETY: the buffers are as the arguments say.
        unsafe { norm.launch(&gpu.stream, &args) }.expect("a launch");
        let found = widened(&out.read());
        let stream = widened(&on_residual.read());
        let exact = |at: usize| f64::from(residual[at].to_f32()) + if with_add { f64::from(add[at].to_f32()) * f64::from(scale) } else { 0.0 };
        assert_near(&stream, &(0..rows * width).map(exact).collect::<Vec<_>>(), 1.0 / 256.0, 1e-30, "residual stream");
        for row in 0..rows {
            let own = &stream[row * width..][..width];
            let mean = own.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / width as f64;
            let exact: Vec<f64> = own.iter().zip(&weight).map(|(&v, &w)| f64::from(v) * f64::from(w) / (mean + 1e-5).sqrt()).collect();
            assert_near(&found[row * width..][..width], &exact, 1.0 / 250.0, 1e-30, "normed row");
        }
        prop_assert_eq!(broken.read(), vec![0; rows]);
    }
}

#[test]
fn rows_with_what_is_no_number_are_told() {
    let Some(gpu) = Gpu::open() else { return };
    const WIDTH: usize = 64;
    let mut rows = Draw::new(1).normals(3 * WIDTH, 1.0);
    (rows[WIDTH + 5], rows[2 * WIDTH + 63]) = (bf16::NAN, bf16::NEG_INFINITY);
    let (residual, weight) = (gpu.upload(&rows), gpu.upload(&[1.0_f32; WIDTH]));
    let (out, broken) = (gpu.empty::<bf16>(rows.len()), gpu.upload(&[0_u32; 3]));
    let args = NormArgs {
        residual: residual.address(),
        add: 0,
        weight: weight.address(),
        out: out.address(),
        broken: broken.address(),
        from: 0,
        rows: 3,
        width: WIDTH as u32,
        eps: 1e-5,
        residual_scale: 1.0,
    };
    // SAFETY: the buffers are as the arguments say.
    unsafe { Norm::load(&gpu.loader).expect("the kernel").launch(&gpu.stream, &args) }.expect("a launch");
    assert_eq!(broken.read(), [0, 1, 1]);
}

#[test]
fn some_rows_are_normed_and_the_residual_stream_stays() {
    let Some(gpu) = Gpu::open() else { return };
    // Longer than what a block keeps in registers.
    const WIDTH: usize = 8192 + 64;
    let mut draw = Draw::new(2);
    let (residual, add) = (draw.normals(3 * WIDTH, 1.0), draw.normals(3 * WIDTH, 1.0));
    let norm = Norm::load(&gpu.loader).expect("the kernel");
    let run = |from: &[u32], rows: u32| {
        let (on_residual, on_add) = (gpu.upload(&residual), gpu.upload(&add));
        let (weight, list) = (gpu.upload(&vec![1.5_f32; WIDTH]), gpu.upload(from));
        let (out, broken) = (gpu.empty::<bf16>(rows as usize * WIDTH), gpu.upload(&[0_u32; 3]));
        let args = NormArgs {
            residual: on_residual.address(),
            add: on_add.address(),
            weight: weight.address(),
            out: out.address(),
            broken: broken.address(),
            from: if from.is_empty() { 0 } else { list.address() },
            rows,
            width: WIDTH as u32,
            eps: 1e-6,
            residual_scale: 1.0,
        };
        // SAFETY: the buffers are as the arguments say.
        unsafe { norm.launch(&gpu.stream, &args) }.expect("a launch");
        (out.read(), on_residual.read())
    };
    let (all, sums) = run(&[], 3);
    let (some, same) = run(&[2, 0, 2], 3);
    assert_eq!(same, residual);
    assert_ne!(sums, residual);
    let row = |number: usize| &all[number * WIDTH..][..WIDTH];
    assert_eq!(some, [row(2), row(0), row(2)].concat());
}
