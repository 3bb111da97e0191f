//! A row at once: its maximum, and the weights of its tokens.

use super::fixed::{exponent, weight};

/// Lanes of a reduction, so that the compiler may use vectors.
const LANES: usize = 16;

/// Returns the largest of `row`; what is no number is passed over. Minus infinity if nothing is left.
pub(super) fn max(row: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, x);
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| larger(a, b))
}

/// Fills `weights` with those of the tokens of `row`, whose maximum is `max`.
pub(super) fn fill(weights: &mut Vec<u64>, row: &[f32], max: f32, scale: f32) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        unsafe { fill_avx2(weights, row, max, scale) };
        return;
    }
    fill_plain(weights, row, max, scale);
}

/// Does as [`fill`]. The compiler makes vectors of the loop, which take half the time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fill_avx2(weights: &mut Vec<u64>, row: &[f32], max: f32, scale: f32) {
    fill_plain(weights, row, max, scale);
}

#[inline(always)]
fn fill_plain(weights: &mut Vec<u64>, row: &[f32], max: f32, scale: f32) {
    weights.resize(row.len(), 0);
    for (slot, &logit) in weights.iter_mut().zip(row) {
        *slot = weight(exponent(logit, max, scale));
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixed;
    use super::*;

    #[test]
    fn the_maximum_passes_over_what_is_no_number() {
        let mut row = vec![f32::NAN; 37];
        assert_eq!(max(&row), f32::NEG_INFINITY);
        for at in [0, 15, 16, 36] {
            row[at] = at as f32;
            assert_eq!(max(&row), at as f32);
        }
        assert_eq!(max(&[]), f32::NEG_INFINITY);
    }

    #[test]
    fn vectors_change_no_weight() {
        let row: Vec<f32> = (0..1003u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9))).collect();
        let max = row.iter().copied().filter(|x| x.is_finite()).fold(f32::MIN, f32::max);
        let row: Vec<f32> = row.into_iter().chain((0..500).map(|i| max - i as f32 * max / 1e3)).collect();
        let row: Vec<f32> = row.into_iter().map(|x| if x > max { f32::NAN } else { x }).collect();
        for temperature in [max / 100.0, max / 3.0, 1.0] {
            let scale = fixed::scale(temperature);
            let (mut filled, mut plain) = (Vec::new(), Vec::new());
            fill(&mut filled, &row, max, scale);
            fill_plain(&mut plain, &row, max, scale);
            assert_eq!(filled, plain);
        }
    }
}
