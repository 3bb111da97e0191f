//! The angles of rotary embeddings: the same on every device.

use crate::spec::{Rope, RopeScaling, Yarn};

/// Returns the angles per position of each pair of numbers of a head.
///
/// Source: Hugging Face transformers, `modeling_rope_utils.py`. As there, an angle is a product in single precision
/// (what the models were trained with); only here its sine and cosine are exact before they are rounded.
pub(crate) fn rope_angles(rope: &Rope) -> Vec<f32> {
    let angle = |i: usize| {
        let angle = rope.theta.powf(-((2 * i) as f64) / rope.dims as f64);
        match &rope.scaling {
            RopeScaling::None => angle,
            RopeScaling::Linear { factor } => angle / factor,
            RopeScaling::Long { factors, .. } => angle / factors[i],
            RopeScaling::Yarn(yarn) => {
                let (first, last) = yarn_ramp(yarn, rope);
                let share = ((i as f64 - first) / (last - first)).clamp(0.0, 1.0);
                angle / yarn.factor * share + angle * (1.0 - share)
            }
            &RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let wavelength = 2.0 * std::f64::consts::PI / angle;
                if wavelength < original_context / high_freq_factor {
                    angle
                } else if wavelength > original_context / low_freq_factor {
                    angle / factor
                } else {
                    let range = high_freq_factor - low_freq_factor;
                    let smooth = (original_context / wavelength - low_freq_factor) / range;
                    (1.0 - smooth) * angle / factor + smooth * angle
                }
            }
        }
    };
    (0..rope.dims / 2).map(|i| angle(i) as f32).collect()
}

/// Returns the index of the last frequency that YaRN leaves as it is, and of the first one that it scales in full;
/// neither needs to be whole.
fn yarn_ramp(yarn: &Yarn, rope: &Rope) -> (f64, f64) {
    let dims = rope.dims as f64;
    let index = |turns: f64| {
        dims * (yarn.original_context / (turns * 2.0 * std::f64::consts::PI)).ln() / (2.0 * rope.theta.ln())
    };
    let (first, last) = (index(yarn.fast_turns), index(yarn.slow_turns));
    let (first, last) = if yarn.whole_pairs { (first.floor(), last.ceil()) } else { (first, last) };
    let (first, last) = (first.max(0.0), last.min(dims - 1.0));
    // Transformers keeps them apart by as much.
    (first, if first == last { last + 0.001 } else { last })
}
