//! Sums of rows in fixed point, bit for bit as the host makes them.

use cuda::kernels::{HiddenSums, HiddenSumsArgs, SummedRows};
use domain::plan::{HIDDEN_BITS, HiddenSum};
use half::bf16;
use proptest::prelude::*;
use tests_cuda::{Draw, Gpu};

/// Adds up rows, beside the sums that are there. Returns the sums, and which rows are broken.
fn sum(gpu: &Gpu, rows: &[bf16], width: usize, lists: &[SummedRows], before: &[i64]) -> (Vec<i64>, Vec<u32>) {
    let words: Vec<u32> = lists.iter().flat_map(|list| list.words()).chain([u32::MAX; 3]).collect();
    let before: Vec<u64> = before.iter().map(|&sum| sum as u64).collect();
    let (normed, on_lists, count) = (gpu.upload(rows), gpu.upload(&words), gpu.upload(&[lists.len() as u32]));
    let (sums, broken) = (gpu.upload(&before), gpu.upload(&vec![0_u32; rows.len() / width]));
    let args = HiddenSumsArgs {
        normed: normed.address(),
        lists: on_lists.address(),
        count: count.address(),
        sums: sums.address(),
        broken: broken.address(),
        width: width as u32,
    };
    // SAFETY: the buffers are as the arguments say.
    unsafe { HiddenSums::load(&gpu.loader).expect("the kernel").launch(&gpu.stream, &args) }.expect("a launch");
    (sums.read().into_iter().map(|sum| sum as i64).collect(), broken.read())
}

/// What the host makes of a number (`engine`, `add_hidden`).
fn fixed(number: bf16) -> i64 {
    (f64::from(number.to_f32()) * (1_u64 << HIDDEN_BITS) as f64).round() as i64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn sums_are_the_hosts_in_any_cut(seed: u64, rows in 1usize..50, steps in 1usize..40, size in -12i32..8) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let (width, mut draw) = (steps * 8, Draw::new(seed));
        let input = draw.normals(rows * width, 2_f32.powi(size));
        let cut = draw.below(rows + 1);
        let before: Vec<i64> = (0..3 * width).map(|_| draw.bits() as i64 >> 20).collect();
        let lists = [
            SummedRows { first: 0, count: rows as u32, sum: 2 },
            SummedRows { first: 0, count: cut as u32, sum: 0 },
            SummedRows { first: cut as u32, count: (rows - cut) as u32, sum: 1 },
        ];
        let (found, broken) = sum(gpu, &input, width, &lists, &before);
        prop_assert_eq!(broken, vec![0; rows]);
        for list in lists {
            let own = list.sum as usize * width..(list.sum as usize + 1) * width;
            let mut exact = HiddenSum { rows: 0, sums: before[own.clone()].to_vec() };
            for row in input.chunks(width).skip(list.first as usize).take(list.count as usize) {
                exact.add(&HiddenSum { rows: 1, sums: row.iter().copied().map(fixed).collect() });
            }
            prop_assert_eq!(&found[own], &exact.sums[..]);
        }
    }
}

#[test]
fn every_number_is_rounded_as_the_host_does() {
    let Some(gpu) = Gpu::open() else { return };
    const WIDTH: usize = 1 << 11;
    let all: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    let rows = all.len() / WIDTH;
    let lists: Vec<SummedRows> = (0..rows as u32).map(|row| SummedRows { first: row, count: 1, sum: row }).collect();
    let (found, broken) = sum(gpu, &all, WIDTH, &lists, &vec![0; all.len()]);
    for (number, found) in all.iter().zip(found) {
        assert_eq!(found, fixed(*number), "{number} ({:#x})", number.to_bits());
    }
    let without = all.chunks(WIDTH).map(|row| u32::from(!row.iter().all(|number| number.is_finite())));
    assert_eq!(broken, without.collect::<Vec<u32>>());
}

#[test]
fn too_much_stays_at_the_largest_number_and_more_lists_than_blocks_are_taken() {
    let Some(gpu) = Gpu::open() else { return };
    let input: Vec<bf16> =
        [2_f32.powi(30), -(2_f32.powi(30)), 1.0, 0.0].repeat(2 * 20).into_iter().map(bf16::from_f32).collect();
    let list = SummedRows { first: 0, count: 20, sum: 0 };
    let (found, broken) = sum(gpu, &input, 8, &[list], &[0; 8]);
    assert_eq!(found, [i64::MAX, i64::MIN, 20 << HIDDEN_BITS, 0].repeat(2));
    assert_eq!(broken, [0; 20]);
    let lists: Vec<SummedRows> = (0..20).map(|row| SummedRows { first: row, count: 1, sum: 19 - row }).collect();
    assert_eq!(
        sum(gpu, &input, 8, &lists, &[1; 160]).0,
        [1 << 62 | 1, 1 - (1 << 62), (1 << HIDDEN_BITS) + 1, 1].repeat(40)
    );
}
