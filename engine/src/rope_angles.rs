//! Cosines and sines of rotary embeddings: the same on every device.

use crate::spec::{Rope, RopeScaling, Yarn};

/// The rotary embeddings that the layers of a model have, each of them once.
pub(crate) struct Rotations {
    /// In the order in which layers have them first.
    pub(crate) all: Vec<Rotation>,
    /// Which of them each layer has.
    pub(crate) of_layer: Vec<usize>,
}

/// One rotary embedding.
pub(crate) struct Rotation {
    /// Angles of a head's pairs at position 1.
    angles: Vec<f32>,
    /// Multiplies cosines and sines.
    magnitude: f64,
}

impl Rotations {
    /// Makes those of the layers, which have these.
    pub(crate) fn of(ropes: &[Rope]) -> Self {
        let mut distinct: Vec<&Rope> = Vec::new();
        let index = |rope| {
            distinct.iter().position(|known| *known == rope).unwrap_or_else(|| {
                distinct.push(rope);
                distinct.len() - 1
            })
        };
        let of_layer = ropes.iter().map(index).collect();
        let rotation = |rope: &&Rope| Rotation { angles: rope_angles(rope), magnitude: rope.magnitude() };
        Self { all: distinct.iter().map(rotation).collect(), of_layer }
    }
}

impl Rotation {
    /// Returns how many pairs of numbers of a head it turns.
    pub(crate) fn pairs(&self) -> usize {
        self.angles.len()
    }

    /// Returns the cosine and the sine of each pair at a position.
    #[inline]
    pub(crate) fn at(&self, position: u32) -> impl Iterator<Item = (f32, f32)> + '_ {
        self.angles.iter().map(move |angle| {
            let (sin, cos) = f64::from(position as f32 * angle).sin_cos();
            ((cos * self.magnitude) as f32, (sin * self.magnitude) as f32)
        })
    }
}

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
