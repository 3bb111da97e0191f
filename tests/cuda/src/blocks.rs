//! Numbers in the quantised formats of GGUF files, as ggml's `ggml-quants.c` lays their blocks. Scales are chosen
//! simply: for tests it matters what blocks mean, and not how near they are to the numbers.

use half::f16;

/// A quantised format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// 32 numbers of 8 bits.
    Q8_0,
    /// 32 numbers of 4 bits.
    Q4_0,
    /// 32 numbers of 4 bits, with an offset.
    Q4_1,
    /// 32 numbers of 5 bits.
    Q5_0,
    /// 256 numbers of 4 bits, with an offset.
    Q4K,
    /// 256 numbers of 6 bits.
    Q6K,
}

impl Blocks {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Q8_0, Self::Q4_0, Self::Q4_1, Self::Q5_0, Self::Q4K, Self::Q6K];

    /// Returns the format's number in a file.
    pub fn kind(self) -> u32 {
        match self {
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q8_0 => 8,
            Self::Q4K => 12,
            Self::Q6K => 14,
        }
    }

    /// Returns a row of whole blocks.
    pub fn quantise(self, numbers: &[f32]) -> Vec<u8> {
        let size = if matches!(self, Self::Q4K | Self::Q6K) { 256 } else { 32 };
        assert!(numbers.len().is_multiple_of(size), "{} numbers of {self:?}", numbers.len());
        numbers.chunks_exact(size).flat_map(|numbers| self.block(numbers)).collect()
    }

    fn block(self, numbers: &[f32]) -> Vec<u8> {
        match self {
            Self::Q8_0 => {
                let d = half(largest(numbers) / 127.0);
                let q = numbers.iter().map(|&number| integer(number, d, -127, 127) as i8 as u8);
                d.to_le_bytes().into_iter().chain(q).collect()
            }
            Self::Q4_0 => {
                let d = half(largest(numbers) / 7.0);
                let q: Vec<u8> = numbers.iter().map(|&number| (integer(number, d, -8, 7) + 8) as u8).collect();
                d.to_le_bytes().into_iter().chain(nibbles(&q)).collect()
            }
            Self::Q5_0 => {
                let d = half(largest(numbers) / 15.0);
                let q: Vec<u8> = numbers.iter().map(|&number| (integer(number, d, -16, 15) + 16) as u8).collect();
                let high = q.iter().enumerate().fold(0_u32, |bits, (i, &q)| bits | u32::from(q >> 4) << i);
                let low = nibbles(&q);
                d.to_le_bytes().into_iter().chain(high.to_le_bytes()).chain(low).collect()
            }
            Self::Q4_1 => {
                let least = numbers.iter().copied().fold(f32::INFINITY, f32::min);
                let most = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let (d, m) = (half((most - least) / 15.0), half(least));
                let q: Vec<u8> = numbers.iter().map(|&number| integer(number - m.to_f32(), d, 0, 15) as u8).collect();
                d.to_le_bytes().into_iter().chain(m.to_le_bytes()).chain(nibbles(&q)).collect()
            }
            Self::Q4K => q4k(numbers),
            Self::Q6K => q6k(numbers),
        }
    }
}

fn q4k(numbers: &[f32]) -> Vec<u8> {
    let parts = || numbers.chunks_exact(32);
    let mins: Vec<f32> = parts().map(|part| part.iter().copied().fold(0.0, f32::min).abs()).collect();
    let tops: Vec<f32> = parts().map(|part| part.iter().copied().fold(0.0, f32::max)).collect();
    let scales: Vec<f32> = mins.iter().zip(&tops).map(|(min, top)| (min + top) / 15.0).collect();
    let (d, dmin) = (half(largest(&scales) / 63.0), half(largest(&mins) / 63.0));
    let six = |of: &[f32], unit: f16| of.iter().map(|&x| integer(x, unit, 0, 63) as u8).collect::<Vec<u8>>();
    let (scales, mins) = (six(&scales, d), six(&mins, dmin));
    let mut block = [d.to_le_bytes(), dmin.to_le_bytes()].concat();
    block.extend((0..4).map(|i| scales[i] | scales[i + 4] >> 4 << 6));
    block.extend((0..4).map(|i| mins[i] | mins[i + 4] >> 4 << 6));
    block.extend((0..4).map(|i| scales[i + 4] & 15 | (mins[i + 4] & 15) << 4));
    let q: Vec<u8> = numbers
        .iter()
        .enumerate()
        .map(|(i, number)| {
            let (scale, min) = (d.to_f32() * f32::from(scales[i / 32]), dmin.to_f32() * f32::from(mins[i / 32]));
            if scale == 0.0 { 0 } else { ((number + min) / scale).round().clamp(0.0, 15.0) as u8 }
        })
        .collect();
    block.extend(q.chunks_exact(64).flat_map(|both| (0..32).map(|i| both[i] | both[i + 32] << 4)));
    block
}

fn q6k(numbers: &[f32]) -> Vec<u8> {
    let parts: Vec<f32> = numbers.chunks_exact(16).map(|part| largest(part) / 31.0).collect();
    let d = half(largest(&parts) / 127.0);
    let scales: Vec<i32> = parts.iter().map(|&scale| integer(scale, d, 0, 127)).collect();
    let q: Vec<u8> = numbers
        .iter()
        .enumerate()
        .map(|(i, number)| {
            let scale = d.to_f32() * scales[i / 16] as f32;
            if scale == 0.0 { 32 } else { ((number / scale).round().clamp(-32.0, 31.0) + 32.0) as u8 }
        })
        .collect();
    let mut block = Vec::new();
    for half in q.chunks_exact(128) {
        block.extend((0..64).map(|l| half[l] & 15 | (half[l + 64] & 15) << 4));
    }
    for half in q.chunks_exact(128) {
        block.extend((0..32).map(|l| (0..4).fold(0, |bits, k| bits | half[32 * k + l] >> 4 << (2 * k))));
    }
    block.extend(scales.iter().map(|&scale| scale as i8 as u8));
    block.extend(d.to_le_bytes());
    block
}

fn half(number: f32) -> f16 {
    f16::from_f32(number)
}

fn largest(numbers: &[f32]) -> f32 {
    numbers.iter().fold(0.0, |largest, number| number.abs().max(largest))
}

fn integer(number: f32, unit: f16, least: i32, most: i32) -> i32 {
    let unit = unit.to_f32();
    if unit == 0.0 { 0 } else { ((number / unit).round() as i32).clamp(least, most) }
}

/// Returns 32 integers of 4 bits: the first 16 are in the lower halves of bytes.
fn nibbles(q: &[u8]) -> Vec<u8> {
    (0..16).map(|i| q[i] & 15 | (q[i + 16] & 15) << 4).collect()
}
