//! Small floats: a sign, `EXPONENT` bits of exponent with the usual bias, `MANTISSA` bits, and subnormal numbers,
//! as IEEE 754 has them. Without branches, so that many are done at once.
//!
//! What is deliberately absent: infinities and what is no number. Callers have none.

const SIGN: u32 = 1 << 31;

/// Returns the bits of the small float that is nearest to `value`, ties to even. `value` is finite, and it is not
/// beyond the largest small float except for rounding.
#[inline(always)]
pub(super) fn narrow<const EXPONENT: u32, const MANTISSA: u32>(value: f32) -> u32 {
    let (lift, dropped) = (lift(EXPONENT), 23 - MANTISSA);
    let bits = value.to_bits();
    let magnitude = bits & !SIGN;
    let rounded = magnitude + ((1 << (dropped - 1)) - 1) + ((magnitude >> dropped) & 1);
    let normal = (rounded >> dropped).wrapping_sub(lift << MANTISSA);
    // The last bit of this number is worth the smallest subnormal, so adding it rounds to a count of those.
    let counter = f32::from_bits((lift + 1 + dropped) << 23);
    let subnormal = (f32::from_bits(magnitude) + counter).to_bits() - counter.to_bits();
    let narrow = if magnitude < least_normal(EXPONENT) { subnormal } else { normal };
    narrow | (bits & SIGN) >> (31 - EXPONENT - MANTISSA)
}

/// Returns the value of a small float.
#[inline(always)]
pub(super) fn widen<const EXPONENT: u32, const MANTISSA: u32>(bits: u32) -> f32 {
    let (lift, dropped) = (lift(EXPONENT), 23 - MANTISSA);
    let magnitude = bits & ((1 << (EXPONENT + MANTISSA)) - 1);
    let normal = f32::from_bits((magnitude << dropped) + (lift << 23));
    // With the exponent of the smallest normal number, which is taken off again.
    let least = least_normal(EXPONENT);
    let subnormal = f32::from_bits((magnitude << dropped) + least) - f32::from_bits(least);
    let value = if magnitude < 1 << MANTISSA { subnormal } else { normal };
    f32::from_bits(value.to_bits() | (bits << (31 - EXPONENT - MANTISSA)) & SIGN)
}

/// Returns how much larger the bias of `f32` is.
const fn lift(exponent: u32) -> u32 {
    127 - ((1 << (exponent - 1)) - 1)
}

/// Returns the smallest normal number, in the bits of an `f32`.
const fn least_normal(exponent: u32) -> u32 {
    (lift(exponent) + 1) << 23
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By the definition, in double precision.
    fn defined(bits: u32, exponent: u32, mantissa: u32) -> f64 {
        let sign = if bits >> (exponent + mantissa) & 1 == 1 { -1.0 } else { 1.0 };
        let power = (bits >> mantissa & ((1 << exponent) - 1)) as i32;
        let fraction = f64::from(bits & ((1 << mantissa) - 1)) / f64::from(1 << mantissa);
        let bias = (1 << (exponent - 1)) - 1;
        match power {
            0 => sign * fraction * 2_f64.powi(1 - bias),
            _ => sign * (1.0 + fraction) * 2_f64.powi(power - bias),
        }
    }

    /// Every code stands for what the definition says, and is its own nearest.
    fn check<const EXPONENT: u32, const MANTISSA: u32>() {
        for bits in 0..1 << (1 + EXPONENT + MANTISSA) {
            let value = widen::<EXPONENT, MANTISSA>(bits);
            assert_eq!(f64::from(value), defined(bits, EXPONENT, MANTISSA), "{bits:x}");
            assert_eq!(narrow::<EXPONENT, MANTISSA>(value), bits, "{value}");
        }
    }

    /// The neighbours of what was chosen are not nearer, and at a tie it is the even one.
    fn check_nearest<const EXPONENT: u32, const MANTISSA: u32>(value: f32) {
        let chosen = narrow::<EXPONENT, MANTISSA>(value);
        let off = |bits: u32| (defined(bits, EXPONENT, MANTISSA) - f64::from(value)).abs();
        let sign = 1 << (EXPONENT + MANTISSA);
        assert_eq!(chosen & sign != 0, value.is_sign_negative(), "{value}");
        let neighbours = [chosen.wrapping_sub(1), chosen + 1].into_iter().filter(|bits| bits & sign == chosen & sign);
        for other in neighbours.filter(|bits| bits >> (1 + EXPONENT + MANTISSA) == 0) {
            let nearer = off(other) < off(chosen) || off(other) == off(chosen) && chosen % 2 == 1;
            assert!(!nearer, "{value}: {other:x} is nearer than {chosen:x}");
        }
    }

    #[test]
    fn all_small_floats_are_what_they_stand_for() {
        check::<4, 3>();
        check::<5, 10>();
    }

    proptest! {
        #[test]
        fn the_nearest_is_taken(value in -448.0_f32..448.0, power in -40..0_i32, eighths in 0..4096_u32) {
            for value in [value, value * 2_f32.powi(power), eighths as f32 / 8192.0, eighths as f32 / 16.0] {
                check_nearest::<4, 3>(value);
                check_nearest::<5, 10>(value);
            }
        }
    }
}
