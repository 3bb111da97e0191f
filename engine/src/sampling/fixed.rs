//! The numbers of sampling, defined so that every device computes the same ones.
//!
//! Of a token with the logit `l`, in a row whose largest logit is `max`:
//!
//! 1. `difference = max - l` and `scaled = difference * scale`, both in f32 and rounded once to nearest, ties to even.
//!    [`scale`] is a number of the sample, made once. The two must not be contracted, and need no subnormal numbers.
//! 2. `exponent = trunc(scaled)`, at most [`EXPONENT_ZERO`], which is also that of what is no number or minus
//!    infinity. It counts halvings, in units of 2^-24.
//! 3. [`weight`]: 2^-exponent as an integer, of which [`WEIGHT_MAX`] is 1. It takes six products of two words of 32
//!    bits, of which the upper word is kept, six differences and two shifts.
//!
//! All that follows adds, compares and multiplies integers, so no order of sums changes it: a cut is a comparison with
//! a sum of weights, and a draw is the first token, by number, at which the sum of weights passes a point.
//!
//! Weights are within 2^-26 of the power of two, as a share of it, and are cut to multiples of 1 / [`WEIGHT_MAX`].
//! With the roundings of step 1, the weight of a token that is `h` halvings below the most probable one is within
//! `(3 h + 2) * 2^-24` of the exact one, and that multiple.

use crate::models::config::WIDTH_MAX;
use std::f64::consts::{LN_2, LOG2_E};

/// The weight of the most probable token.
pub(super) const WEIGHT_MAX: u64 = 1 << WEIGHT_BITS;

const WEIGHT_BITS: u32 = 39;

/// Bits of an exponent behind the point.
const FRACTION_BITS: u32 = 24;

/// The exponent from which on weights are zero.
pub(super) const EXPONENT_ZERO: u32 = (WEIGHT_BITS + 1) << FRACTION_BITS;

/// Differences that are subnormal, times this, are below 1. Temperatures under 2^-95 count as if they were that.
const SCALE_MAX: f64 = (1u128 << 120) as f64;

/// `2^-t = 1 - t (C0 - t (C1 - ...))` for `t` in `0 .. 1`, in units of 2^-32: the polynomial that is exact at 0 and at
/// the six Chebyshev nodes.
const COEFFICIENTS: [u32; 6] = [2_977_044_447, 1_031_763_206, 238_367_376, 41_218_952, 5_547_538, 493_577];

// The weights of the largest vocabulary have a sum.
const _: () = assert!(WIDTH_MAX <= u64::MAX / WEIGHT_MAX);

/// Returns what differences of logits are multiplied by at a temperature above zero: units of an exponent per unit of a
/// logit.
pub(super) fn scale(temperature: f32) -> f32 {
    let units = f64::from(1u32 << FRACTION_BITS);
    (LOG2_E * units / f64::from(temperature)).min(SCALE_MAX) as f32
}

/// Returns the exponent of a token: at most [`EXPONENT_ZERO`].
#[inline(always)]
pub(super) fn exponent(logit: f32, max: f32, scale: f32) -> u32 {
    const ZERO: f32 = EXPONENT_ZERO as f32;
    let scaled = (max - logit) * scale;
    // What is no number is not below either.
    let scaled = if scaled < ZERO { scaled } else { ZERO };
    // No logit is above the maximum, so this changes none.
    let scaled = if scaled > 0.0 { scaled } else { 0.0 };
    // SAFETY: it is a number between zero and `ZERO`, which an i32 holds. `as` would check it again for each token, and
    // compilers do not see that this is needless: it takes half as long as all else here.
    (unsafe { scaled.to_int_unchecked::<i32>() }) as u32
}

/// Returns `WEIGHT_MAX * 2^-exponent`, rounded down; zero for [`EXPONENT_ZERO`].
#[inline(always)]
pub(super) fn weight(exponent: u32) -> u64 {
    let fraction = exponent << (32 - FRACTION_BITS);
    let [first @ .., last] = COEFFICIENTS;
    let sum = first.iter().rev().fold(last, |sum, coefficient| coefficient - upper(fraction, sum));
    let mantissa = (1 << 32) - u64::from(upper(fraction, sum));
    mantissa << (WEIGHT_BITS - 32) >> (exponent >> FRACTION_BITS)
}

/// Returns the upper word of a product of words.
#[inline(always)]
fn upper(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

/// Returns `share` (in units of 2^-64) of `whole`, rounded down: below `whole` unless that is zero.
pub(super) fn share_below(whole: u64, share: u64) -> u64 {
    ((u128::from(whole) * u128::from(share)) >> 64) as u64
}

/// Returns `share` (in units of 2^-64) of `whole`, rounded up.
pub(super) fn share_above(whole: u64, share: u64) -> u64 {
    (u128::from(whole) * u128::from(share)).div_ceil(1 << 64) as u64
}

/// Returns a share in units of 2^-64, rounded down. Below zero is zero; 1 and above is the largest.
pub(super) fn share(of_one: f32) -> u64 {
    (f64::from(of_one) * (1u128 << 64) as f64) as u64
}

/// Returns the natural logarithm of a sum of weights, at least [`WEIGHT_MAX`], over [`WEIGHT_MAX`].
///
/// The logarithm to base two is cut to multiples of 2^-40, which are found one by one: a square has twice the
/// logarithm. Then one product in f64.
pub(super) fn logarithm(total: u64) -> f64 {
    const BITS: u32 = 40;
    let whole = total.ilog2();
    let mut log = u64::from(whole - WEIGHT_BITS);
    // In `1 .. 2`, in units of 2^-63.
    let mut number = total << (63 - whole);
    for _ in 0..BITS {
        // In units of 2^-62.
        let square = share_below(number, number);
        let doubled = square >> 63;
        number = square << (1 - doubled);
        log = log << 1 | doubled;
    }
    log as f64 / (1u64 << BITS) as f64 * LN_2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One, as an exponent.
    const HALVING: u32 = 1 << FRACTION_BITS;

    #[test]
    fn every_weight_is_as_exact_as_documented_and_none_rises() {
        // A whole halving only shifts, so the fractions are all there is to try; the sum of all of them is what another
        // device compares with.
        let (mut before, mut sum) = (WEIGHT_MAX, 0);
        for fraction in 0..HALVING {
            let weight = weight(fraction);
            let exact = WEIGHT_MAX as f64 * (-f64::from(fraction) / f64::from(HALVING)).exp2();
            let error = (weight as f64 - exact).abs() / exact;
            assert!(error < 2f64.powi(-26), "{fraction}: {weight}, not {exact}, off by {error:e}");
            assert!(fraction == 0 || weight < before, "{fraction}: {weight} after {before}");
            before = weight;
            sum += weight;
        }
        assert_eq!(sum, EVERY_WEIGHT, "the weights are fixed for ever: workers of two versions sample one text");
    }

    /// The sum of the weights of all fractions.
    const EVERY_WEIGHT: u64 = 6_653_256_686_035_999_232;

    #[test]
    fn weights_of_whole_halvings_are_powers_of_two() {
        for halvings in 0..=WEIGHT_BITS {
            let at = halvings << FRACTION_BITS;
            assert_eq!(weight(at), WEIGHT_MAX >> halvings);
            assert!(halvings == 0 || weight(at - 1) >= weight(at), "no step up at {halvings} halvings");
        }
        assert_eq!(weight(EXPONENT_ZERO - 1), 0);
        assert_eq!(weight(EXPONENT_ZERO), 0);
    }

    #[test]
    fn exponents_of_all_logits_are_in_range() {
        let numbers =
            [f32::NAN, f32::NEG_INFINITY, f32::MIN, -1e9, -1.0, -1e-40, -0.0, 0.0, 1e-40, 1e-9, 1.0, f32::MAX];
        for temperature in [f32::from_bits(1), 1e-40, 1e-30, 1e-3, 1.0, 1e3, f32::MAX, f32::INFINITY] {
            let scale = scale(temperature);
            assert!(scale.is_finite() && scale >= 0.0, "{temperature}: {scale}");
            for max in numbers.into_iter().filter(|max| max.is_finite()) {
                assert_eq!(exponent(max, max, scale), 0, "{temperature}: {max}");
                for logit in numbers.into_iter().filter(|&logit| logit.is_nan() || logit <= max) {
                    let exponent = exponent(logit, max, scale);
                    assert!(exponent <= EXPONENT_ZERO, "{temperature}: {logit} below {max}");
                    let impossible = logit.is_nan() || logit == f32::NEG_INFINITY;
                    assert!(!impossible || exponent == EXPONENT_ZERO, "{temperature}: {logit} below {max}");
                }
            }
        }
    }

    #[test]
    fn no_subnormal_number_matters() {
        // What a device that flushes them to zero has in their place gives the same.
        let smallest = f32::MIN_POSITIVE;
        for logit in [smallest / 2.0, f32::from_bits(1), smallest.next_up() - smallest] {
            for scale in [scale(f32::from_bits(1)), scale(1.0), scale(f32::MAX)] {
                assert_eq!(exponent(0.0, logit, scale), 0);
                assert_eq!(exponent(logit, smallest * 2.0, scale), exponent(0.0, smallest * 2.0, scale));
            }
        }
    }

    #[test]
    fn shares_are_rounded_once() {
        assert_eq!((share(0.0), share(-1.0), share(f32::NAN)), (0, 0, 0));
        assert_eq!((share(0.5), share(1.0), share(f32::INFINITY)), (1 << 63, u64::MAX, u64::MAX));
        assert_eq!((share_below(7, 1 << 63), share_above(7, 1 << 63)), (3, 4));
        assert_eq!((share_below(8, 1 << 63), share_above(8, 1 << 63)), (4, 4));
        assert_eq!((share_below(u64::MAX, u64::MAX), share_above(u64::MAX, u64::MAX)), (u64::MAX - 1, u64::MAX));
    }

    #[test]
    fn logarithms_of_powers_of_two_are_whole() {
        for doublings in 0..=24 {
            assert_eq!(logarithm(WEIGHT_MAX << doublings), f64::from(doublings) * LN_2);
        }
    }

    proptest! {
        #[test]
        fn weights_are_those_of_the_distribution(below in 0.0f32..40.0, max in -50.0f32..50.0, temperature in 0.05f32..20.0) {
            let logit = max - below * temperature;
            prop_assume!(logit <= max);
            let nats = (f64::from(max) - f64::from(logit)) / f64::from(temperature);
            let exact = WEIGHT_MAX as f64 * (-nats).exp();
            let found = weight(exponent(logit, max, scale(temperature))) as f64;
            let relative = (3.0 * nats * LOG2_E + 2.0) * 2f64.powi(-24);
            prop_assert!((found - exact).abs() <= exact * relative + 1.0, "{} below: {}, not {}", nats, found, exact);
        }

        #[test]
        fn logarithms_are_as_exact_as_documented(total in WEIGHT_MAX..) {
            let exact = (total as f64 / WEIGHT_MAX as f64).ln();
            prop_assert!((logarithm(total) - exact).abs() < 2f64.powi(-39), "{}: {}, not {}", total, logarithm(total), exact);
        }
    }
}
