//! Rows of the embedding, bit for bit.

use cuda::kernels::{Embed, EmbedArgs, WeightForm};
use half::bf16;
use proptest::prelude::*;
use tests_cuda::{Draw, Gpu};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn rows_are_those_of_their_tokens(seed: u64, rows in 1usize..9, steps in 1usize..80, vocab in 1usize..40) {
        let Some(gpu) = Gpu::open() else { return Ok(()) };
        let (width, mut draw) = (steps * 8, Draw::new(seed));
        let scale = draw.normal();
        let table = draw.normals(vocab * width, 1.0);
        // What no sample is, and tokens behind the last one, are among them.
        let sampled: Vec<u32> = (0..5).map(|i| if i == 3 { u32::MAX } else { draw.below(vocab) as u32 }).collect();
        let tokens: Vec<i32> = (0..rows).map(|_| draw.below(vocab + 7) as i32 - 5).collect();
        let named = |row: usize| match usize::try_from(tokens[row]) {
            Ok(token) => token,
            Err(_) => sampled[(-1 - tokens[row]) as usize] as usize,
        };

        let (on_table, on_tokens, on_sampled) = (gpu.upload(&table), gpu.upload(&tokens), gpu.upload(&sampled));
        let (out, broken) = (gpu.empty::<bf16>(rows * width), gpu.upload(&vec![0_u32; rows]));
        let args = EmbedArgs {
            table: on_table.address(),
            tokens: on_tokens.address(),
            sampled: on_sampled.address(),
            out: out.address(),
            broken: broken.address(),
            rows: rows as u32,
            width: width as u32,
            vocab: vocab as u32,
            scale,
        };
        // SAFETY: the buffers are as the arguments say.
        unsafe { Embed::load(&gpu.loader, WeightForm::Bf16).expect("the kernel").launch(&gpu.stream, &args) }.expect("a launch");
        let found = out.read();
        for row in 0..rows {
            let exact = match table.chunks(width).nth(named(row)) {
                Some(numbers) => numbers.iter().map(|x| bf16::from_f32(x.to_f32() * scale)).collect(),
                None => vec![bf16::ZERO; width],
            };
            prop_assert_eq!(&found[row * width..][..width], exact, "row {} of token {}", row, named(row));
        }
        let without: Vec<u32> = (0..rows).map(|row| u32::from(named(row) >= vocab)).collect();
        prop_assert_eq!(broken.read(), without);
    }
}
