//! Weights: what a panel of each format looks like.
//!
//! A panel is a sequence of groups: one block of the format, of all 64 outputs. A group begins with the outputs'
//! f16 scales, and goes on with one *slab* per 32 inputs: 64 bytes of small scales where the format has them, then
//! the integers in `[step][64 outputs][4]`, where a step is 4 consecutive inputs: 32 bits hold what dot products
//! of bytes take at once. Narrow integers share bytes, in such a way that shifting and masking 64 bytes gives a
//! step of 16 outputs.
//!
//! Nothing is added to what the format has but the bits above Q4_K's 6-bit scales.

use super::block::INPUTS;
use super::dot::Dot;
use crate::cpu::kernels::linear::product::PANEL;
use crate::cpu::simd::{LANES, Simd};
use crate::quant::{Q4_0, Q4_1, Q4K, Q6K, Q8_0};
use half::f16;

/// Steps of a slab.
#[cfg(target_arch = "x86_64")]
pub(super) const STEPS: usize = INPUTS / 4;
/// Bytes of a step's weights of 16 outputs.
pub(super) const STEP_BYTES: usize = 4 * LANES;
/// Bytes of the outputs' f16 scales.
const HALVES_BYTES: usize = PANEL * size_of::<f16>();

/// What a slab's weights are multiplied with.
pub(super) enum Scales<V> {
    /// All with one number.
    One(V),
    /// All with the first number; the second, times the sum of the activations, is subtracted.
    Offset(V, V),
    /// Each half of the inputs with its own.
    Halves(V, V),
}

/// A format in panels.
pub(super) trait Weights {
    /// Slabs of a group.
    const SLABS: usize;
    /// Bytes of a group, before the first slab.
    const HEAD: usize;
    /// Bytes of a slab.
    const SLAB: usize;
    /// Bytes of a slab before its integers.
    const INTEGERS: usize;
    /// How the integers lie.
    const KIND: Kind;
    /// A block of the format.
    type Block;

    /// Reads a block's bytes.
    fn read(bytes: &[u8]) -> Self::Block;
    /// Bytes of a block.
    const BLOCK_BYTES: usize;

    /// Writes an output's block into its group.
    fn write(block: &Self::Block, output: usize, group: &mut [u8]);

    /// Widens an output's part of a slab, 32 numbers.
    fn widen(group: &[u8], slab: usize, output: usize, out: &mut [f32]);

    /// Returns the scales of 16 outputs' weights in a slab, the `vector`-th of the panel.
    ///
    /// # Safety
    /// The group and the slab can be read.
    unsafe fn scales<D: Dot>(d: D, group: *const u8, slab: *const u8, vector: usize) -> Scales<<D::S as Simd>::V>;
}

/// How a format's integers lie in a slab, and what was added to make them fit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// 8 bits, signed.
    Bytes,
    /// 4 bits, not negative: in 64 bytes, a step in the low halves and the one four steps later in the high halves.
    Nibbles,
    /// 6 bits, 32 too large: the low 4 as nibbles, then the high 2: in 64 bytes, four consecutive steps from the
    /// lowest bits up.
    Six,
}

/// Returns where group `index` and slab `block` are in a panel.
#[inline(always)]
pub(super) fn place<F: Weights>(block: usize) -> (usize, usize) {
    let group = block / F::SLABS * group_bytes::<F>();
    (group, group + F::HEAD + block % F::SLABS * F::SLAB)
}

const fn group_bytes<F: Weights>() -> usize {
    F::HEAD + F::SLABS * F::SLAB
}

/// Returns the bytes of a panel.
pub(super) fn bytes<F: Weights>(inputs: usize) -> usize {
    inputs / INPUTS / F::SLABS * group_bytes::<F>()
}

/// Writes an output's row into a panel of zeros.
pub(super) fn pack<F: Weights>(row: &[u8], output: usize, panel: &mut [u8]) {
    for (block, group) in row.chunks_exact(F::BLOCK_BYTES).zip(panel.chunks_exact_mut(group_bytes::<F>())) {
        F::write(&F::read(block), output, group);
    }
}

/// Widens an output's row.
pub(super) fn widen<F: Weights>(panel: &[u8], output: usize, out: &mut [f32]) {
    let groups = panel.chunks_exact(group_bytes::<F>());
    for (group, out) in groups.zip(out.chunks_exact_mut(F::SLABS * INPUTS)) {
        for (slab, out) in out.chunks_exact_mut(INPUTS).enumerate() {
            F::widen(group, slab, output, out);
        }
    }
}

/// Returns a step's weights of 16 outputs, as bytes; see [`Kind`].
///
/// # Safety
/// The integers of a slab can be read behind `integers`.
#[inline(always)]
pub(super) unsafe fn step<D: Dot, F: Weights>(d: D, integers: *const u8, step: usize, vector: usize) -> D::W {
    let line = |index: usize| index * PANEL * 4 + vector * STEP_BYTES;
    // SAFETY: as the caller says: the lines are inside the slab.
    unsafe {
        match F::KIND {
            Kind::Bytes => d.load(integers.add(line(step))),
            Kind::Nibbles => d.nibbles(d.load(integers.add(line(step % 4))), step / 4),
            Kind::Six => {
                let low = d.nibbles(d.load(integers.add(line(step % 4))), step / 4);
                d.add_pairs(low, d.load(integers.add(line(4 + step / 4))), step % 4)
            }
        }
    }
}

/// Returns where a slab's integers have the one of this input and output: the byte, and the bit it begins at.
fn nibble(input: usize, output: usize) -> (usize, usize) {
    let step = input / 4;
    ((step % 4 * PANEL + output) * 4 + input % 4, step / 4 * 4)
}

/// Writes an output's nibbles of a slab into integers that are 0.
fn write_nibbles(q: &[u8], output: usize, integers: &mut [u8]) {
    for (input, &q) in q.iter().enumerate() {
        let (byte, bit) = nibble(input, output);
        integers[byte] |= q << bit;
    }
}

/// Returns the nibble of this input and output.
fn read_nibble(integers: &[u8], input: usize, output: usize) -> u8 {
    let (byte, bit) = nibble(input, output);
    integers[byte] >> bit & 15
}

/// As [`nibble`], for the high bits of [`Kind::Six`].
fn pair(input: usize, output: usize) -> (usize, usize) {
    let step = input / 4;
    (((4 + step / 4) * PANEL + output) * 4 + input % 4, step % 4 * 2)
}

/// Returns an output's f16 among those at the beginning of `bytes`.
fn half_at(bytes: &[u8], output: usize) -> f32 {
    f16::from_le_bytes([bytes[2 * output], bytes[2 * output + 1]]).to_f32()
}

fn write_half(bytes: &mut [u8], output: usize, number: f16) {
    bytes[2 * output..2 * output + 2].copy_from_slice(&number.to_le_bytes());
}

/// Q8_0: scales `d`, then the slab's bytes.
pub(super) struct Q8Panel;

impl Weights for Q8Panel {
    const SLABS: usize = 1;
    const HEAD: usize = HALVES_BYTES;
    const SLAB: usize = PANEL * INPUTS;
    const INTEGERS: usize = 0;
    const KIND: Kind = Kind::Bytes;
    const BLOCK_BYTES: usize = Q8_0::BYTES;
    type Block = Q8_0;

    fn read(bytes: &[u8]) -> Q8_0 {
        Q8_0::read(bytes)
    }

    fn write(block: &Q8_0, output: usize, group: &mut [u8]) {
        write_half(group, output, block.d);
        for (input, &q) in block.q.iter().enumerate() {
            group[Self::HEAD + (input / 4 * PANEL + output) * 4 + input % 4] = q as u8;
        }
    }

    fn widen(group: &[u8], _slab: usize, output: usize, out: &mut [f32]) {
        let d = half_at(group, output);
        for (input, out) in out.iter_mut().enumerate() {
            *out = d * f32::from(group[Self::HEAD + (input / 4 * PANEL + output) * 4 + input % 4] as i8);
        }
    }

    #[inline(always)]
    unsafe fn scales<D: Dot>(d: D, group: *const u8, _slab: *const u8, vector: usize) -> Scales<<D::S as Simd>::V> {
        // SAFETY: as the caller says.
        Scales::One(unsafe { d.simd().load_f16(group.cast::<f16>().add(vector * LANES)) })
    }
}

/// Q4_0: scales `d`, then nibbles.
pub(super) struct Q4_0Panel;

impl Weights for Q4_0Panel {
    const SLABS: usize = 1;
    const HEAD: usize = HALVES_BYTES;
    const SLAB: usize = PANEL * INPUTS / 2;
    const INTEGERS: usize = 0;
    const KIND: Kind = Kind::Nibbles;
    const BLOCK_BYTES: usize = Q4_0::BYTES;
    type Block = Q4_0;

    fn read(bytes: &[u8]) -> Q4_0 {
        Q4_0::read(bytes)
    }

    fn write(block: &Q4_0, output: usize, group: &mut [u8]) {
        write_half(group, output, block.d);
        write_nibbles(&block.q, output, &mut group[Self::HEAD..]);
    }

    fn widen(group: &[u8], _slab: usize, output: usize, out: &mut [f32]) {
        let d = half_at(group, output);
        for (input, out) in out.iter_mut().enumerate() {
            *out = d * (f32::from(read_nibble(&group[Self::HEAD..], input, output)) - 8.0);
        }
    }

    #[inline(always)]
    unsafe fn scales<D: Dot>(d: D, group: *const u8, _slab: *const u8, vector: usize) -> Scales<<D::S as Simd>::V> {
        // SAFETY: as the caller says.
        unsafe {
            let s = d.simd();
            let scale = s.load_f16(group.cast::<f16>().add(vector * LANES));
            // The integers are 8 too large. The product is exact.
            Scales::Offset(scale, s.mul(scale, s.splat(8.0)))
        }
    }
}

/// Q4_1: scales `d`, then `-m`; then nibbles.
pub(super) struct Q4_1Panel;

impl Weights for Q4_1Panel {
    const SLABS: usize = 1;
    const HEAD: usize = 2 * HALVES_BYTES;
    const SLAB: usize = PANEL * INPUTS / 2;
    const INTEGERS: usize = 0;
    const KIND: Kind = Kind::Nibbles;
    const BLOCK_BYTES: usize = Q4_1::BYTES;
    type Block = Q4_1;

    fn read(bytes: &[u8]) -> Q4_1 {
        Q4_1::read(bytes)
    }

    fn write(block: &Q4_1, output: usize, group: &mut [u8]) {
        write_half(group, output, block.d);
        // Kernels subtract it.
        write_half(&mut group[HALVES_BYTES..], output, -block.m);
        write_nibbles(&block.q, output, &mut group[Self::HEAD..]);
    }

    fn widen(group: &[u8], _slab: usize, output: usize, out: &mut [f32]) {
        let (d, min) = (half_at(group, output), half_at(&group[HALVES_BYTES..], output));
        for (input, out) in out.iter_mut().enumerate() {
            *out = d * f32::from(read_nibble(&group[Self::HEAD..], input, output)) - min;
        }
    }

    #[inline(always)]
    unsafe fn scales<D: Dot>(d: D, group: *const u8, _slab: *const u8, vector: usize) -> Scales<<D::S as Simd>::V> {
        // SAFETY: as the caller says.
        unsafe {
            let s = d.simd();
            let scale = s.load_f16(group.cast::<f16>().add(vector * LANES));
            Scales::Offset(scale, s.load_f16(group.cast::<f16>().add(PANEL + vector * LANES)))
        }
    }
}

/// Q4_K: scales `d`, then `dmin`; in a slab the 64 outputs' scales, their minima, and nibbles.
pub(super) struct Q4KPanel;

impl Weights for Q4KPanel {
    const SLABS: usize = Q4K::PARTS;
    const HEAD: usize = 2 * HALVES_BYTES;
    const SLAB: usize = Self::INTEGERS + PANEL * INPUTS / 2;
    const INTEGERS: usize = 2 * PANEL;
    const KIND: Kind = Kind::Nibbles;
    const BLOCK_BYTES: usize = Q4K::BYTES;
    type Block = Q4K;

    fn read(bytes: &[u8]) -> Q4K {
        Q4K::read(bytes)
    }

    fn write(block: &Q4K, output: usize, group: &mut [u8]) {
        write_half(group, output, block.d);
        write_half(&mut group[HALVES_BYTES..], output, block.dmin);
        for (part, slab) in group[Self::HEAD..].chunks_exact_mut(Self::SLAB).enumerate() {
            slab[output] = block.scales[part];
            slab[PANEL + output] = block.mins[part];
            write_nibbles(&block.q[part * INPUTS..][..INPUTS], output, &mut slab[Self::INTEGERS..]);
        }
    }

    fn widen(group: &[u8], slab: usize, output: usize, out: &mut [f32]) {
        let (d, dmin) = (half_at(group, output), half_at(&group[HALVES_BYTES..], output));
        let slab = &group[Self::HEAD + slab * Self::SLAB..];
        let (scale, min) = (d * f32::from(slab[output]), dmin * f32::from(slab[PANEL + output]));
        for (input, out) in out.iter_mut().enumerate() {
            *out = scale * f32::from(read_nibble(&slab[Self::INTEGERS..], input, output)) - min;
        }
    }

    #[inline(always)]
    unsafe fn scales<D: Dot>(d: D, group: *const u8, slab: *const u8, vector: usize) -> Scales<<D::S as Simd>::V> {
        // SAFETY: as the caller says.
        unsafe {
            let s = d.simd();
            let factor = s.load_f16(group.cast::<f16>().add(vector * LANES));
            let dmin = s.load_f16(group.cast::<f16>().add(PANEL + vector * LANES));
            let scale = d.load_u8(slab.add(vector * LANES));
            let min = d.load_u8(slab.add(PANEL + vector * LANES));
            Scales::Offset(s.mul(factor, scale), s.mul(dmin, min))
        }
    }
}

/// Q6_K: scales `d`; in a slab the 64 outputs' scales of the first half, those of the second, nibbles, and high bits.
pub(super) struct Q6KPanel;

impl Weights for Q6KPanel {
    const SLABS: usize = Q6K::NUMBERS / INPUTS;
    const HEAD: usize = HALVES_BYTES;
    const SLAB: usize = Self::INTEGERS + PANEL * INPUTS * 3 / 4;
    const INTEGERS: usize = 2 * PANEL;
    const KIND: Kind = Kind::Six;
    const BLOCK_BYTES: usize = Q6K::BYTES;
    type Block = Q6K;

    fn read(bytes: &[u8]) -> Q6K {
        Q6K::read(bytes)
    }

    fn write(block: &Q6K, output: usize, group: &mut [u8]) {
        write_half(group, output, block.d);
        for (part, slab) in group[Self::HEAD..].chunks_exact_mut(Self::SLAB).enumerate() {
            slab[output] = block.scales[2 * part] as u8;
            slab[PANEL + output] = block.scales[2 * part + 1] as u8;
            for input in 0..INPUTS {
                let q = block.q[part * INPUTS + input];
                let (byte, bit) = nibble(input, output);
                slab[Self::INTEGERS + byte] |= (q & 15) << bit;
                let (byte, bit) = pair(input, output);
                slab[Self::INTEGERS + byte] |= q >> 4 << bit;
            }
        }
    }

    fn widen(group: &[u8], slab: usize, output: usize, out: &mut [f32]) {
        let d = half_at(group, output);
        let slab = &group[Self::HEAD + slab * Self::SLAB..];
        for (input, out) in out.iter_mut().enumerate() {
            let scale = d * f32::from(slab[input / (INPUTS / 2) * PANEL + output] as i8);
            let ((low, low_bit), (high, high_bit)) = (nibble(input, output), pair(input, output));
            let (low, high) = (slab[Self::INTEGERS + low] >> low_bit, slab[Self::INTEGERS + high] >> high_bit);
            *out = scale * (f32::from(low & 15 | (high & 3) << 4) - 32.0);
        }
    }

    #[inline(always)]
    unsafe fn scales<D: Dot>(d: D, group: *const u8, slab: *const u8, vector: usize) -> Scales<<D::S as Simd>::V> {
        // SAFETY: as the caller says.
        unsafe {
            let s = d.simd();
            let factor = s.load_f16(group.cast::<f16>().add(vector * LANES));
            let low = d.load_i8(slab.add(vector * LANES).cast());
            let high = d.load_i8(slab.add(PANEL + vector * LANES).cast());
            Scales::Halves(s.mul(factor, low), s.mul(factor, high))
        }
    }
}
