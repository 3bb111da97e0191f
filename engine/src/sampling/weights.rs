//! Numbers of a row: its maximum, and probabilities relative to it. The same bits on every machine, since nothing here
//! comes from the system's mathematics library and nothing is contracted or reordered.

/// Lanes of a reduction, so that the compiler may use vectors.
const LANES: usize = 16;

/// Below this the exponential is zero: the result would be subnormal.
const EXP_ZERO: f32 = -87.0;

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

/// Fills `weights` with `exp((logit - max) / temperature)`: 1 for the maximum, 0 for what is impossible.
pub(super) fn fill(weights: &mut Vec<f32>, row: &[f32], max: f32, temperature: f32) {
    weights.clear();
    weights.extend(row.iter().map(|&logit| exp((logit - max) / temperature)));
}

/// Sum in token order.
pub(super) fn sum(weights: &[f32]) -> f64 {
    weights.iter().map(|&weight| f64::from(weight)).sum()
}

/// `e^x` for `x <= 0`, to within 2e-7 of the value; zero below [`EXP_ZERO`] and for what is no number.
///
/// Cody-Waite reduction to `|r| <= ln(2) / 2` and the polynomial of Cephes' `expf` (Moshier).
#[inline]
fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Adding this rounds to an integer, which is then in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let inside = if x > EXP_ZERO { x } else { EXP_ZERO };
    let rounded = inside * LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = inside - n * LN_2_HIGH - n * LN_2_LOW;
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + c;
    }
    let power = f32::from_bits(rounded.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23);
    let value = (p * r * r + r + 1.0) * power;
    if x > EXP_ZERO { value } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_as_exact_as_documented() {
        assert_eq!(exp(0.0), 1.0);
        for step in 0..870_000 {
            let x = -(step as f32) * 1e-4;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) - exact).abs() <= 2e-7 * exact, "exp({x}) = {}, not {exact}", exp(x));
        }
        for x in [EXP_ZERO, -1e30, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(exp(x), 0.0, "exp({x})");
        }
    }

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
}
