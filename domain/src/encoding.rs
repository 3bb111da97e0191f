//! How records are kept in the tiers below the device, and may travel: as they are, or smaller, with one byte for
//! each number.
//!
//! A smaller record has the same order. Of each section of it come first the scales of its groups, little-endian
//! `f32`, then the codes, a byte for each number; a number is the value of its code times the scale of its group. So a
//! layer slice is contiguous here as well, and a range of heads in it is one piece.
//!
//! | kind | sections | groups |
//! | --- | --- | --- |
//! | `Heads` | the keys of a head, and its values | [`GROUP_TOKENS`] consecutive tokens, or those that are left |
//! | `Latent` | the latent of a token, and its rotated key | all of a section |
//! | `State` | not encoded: it stays as it is | |
//!
//! What is finite comes back finite and about as it was, zeros as zeros. A group with an infinity in it, or with
//! what is no number, comes back as no numbers at all: what is broken does not get to look sound. What comes back
//! and goes down again loses nothing more, but for numbers that are subnormal in the format of the pool.
//!
//! What is deliberately absent: which part of a worker encodes, and when; and instructions that not every processor
//! has. Everything is inlined, so that it is compiled for the instructions of its caller.

mod number;
mod small;
#[cfg(test)]
mod tests;

use crate::dtype::Dtype;
use number::{Bf16, Bytes, F16, F32, Number};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Tokens that share a scale. Few, since the first tokens of a context often have far larger keys than all others.
pub const GROUP_TOKENS: u32 = 4;

/// Bytes of a scale.
const SCALE: usize = 4;
/// Groups without a number as large as this are taken for zeros: scales, and what divides by them, stay normal numbers.
const LEAST: f32 = f32::from_bits((127 - 100) << 23);

/// How records are kept in the tiers below the device, and may travel between workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// As they are.
    #[default]
    Exact,
    /// Whole numbers from -127 to 127, the largest number of a group being one of these two: none is off by more
    /// than half a step.
    Int8,
    /// Floats of 8 bits, E4M3 (the form without infinities of the Open Compute Project's specification), the
    /// largest number of a group being 448: none but the very small ones is off by more than a sixteenth of
    /// itself.
    Fp8,
}

impl Encoding {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Int8 => "int8",
            Self::Fp8 => "fp8",
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Numbers that are encoded by themselves: the keys of a head, say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Section {
    pub(crate) numbers: usize,
    /// Numbers of a group, which share a scale; above 0 where there are numbers.
    pub(crate) group: usize,
}

impl Section {
    fn scales_bytes(self) -> usize {
        if self.numbers == 0 { 0 } else { self.numbers.div_ceil(self.group) * SCALE }
    }

    fn stored_bytes(self) -> usize {
        self.scales_bytes() + self.numbers
    }
}

/// Sections of a part, at most: keys and values, or a latent and a rotated key.
const SECTIONS: usize = 2;

/// The smallest piece of a layer slice that can be encoded by itself. A layer slice is some of them, one behind the
/// other, and so are a record and a pool: the keys, or the values, of one head; both, where they differ in width; the
/// latent of a token; a state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KvPart {
    bytes: usize,
    dtype: Dtype,
    encoding: Encoding,
    /// In their order; those that there are not have no numbers. All of an opaque part.
    sections: [Section; SECTIONS],
}

impl KvPart {
    /// Parts of these sections.
    pub(crate) fn new(dtype: Dtype, encoding: Encoding, of: &[Section]) -> Self {
        let mut sections = [Section::default(); SECTIONS];
        sections[..of.len()].copy_from_slice(of);
        let numbers: usize = of.iter().map(|section| section.numbers).sum();
        Self { bytes: numbers * dtype.bytes(), dtype, encoding, sections }
    }

    /// Parts of so many bytes that stay as they are, whatever the encoding of others.
    pub(crate) fn opaque(bytes: usize) -> Self {
        Self { bytes, dtype: Dtype::F32, encoding: Encoding::Exact, sections: [Section::default(); SECTIONS] }
    }

    /// Returns the bytes of one on the device.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Bytes of one that is encoded.
    pub fn stored_bytes(self) -> usize {
        match self.encoding {
            Encoding::Exact => self.bytes(),
            Encoding::Int8 | Encoding::Fp8 => self.sections.into_iter().map(Section::stored_bytes).sum(),
        }
    }

    /// Bytes of as many parts as have `bytes` on the device, encoded.
    pub fn stored_bytes_of(self, bytes: usize) -> usize {
        bytes / self.bytes().max(1) * self.stored_bytes()
    }

    /// Returns how they are encoded.
    pub fn encoding(self) -> Encoding {
        self.encoding
    }

    /// Returns the format of its numbers on the device.
    pub fn dtype(self) -> Dtype {
        self.dtype
    }

    /// Returns what is encoded by itself in one: the numbers of each section, and how many of them share a scale. Those
    /// that there are not have no numbers.
    pub fn sections(self) -> [(usize, usize); SECTIONS] {
        self.sections.map(|section| (section.numbers, section.group))
    }

    /// Tells parts apart that two ends must not mix.
    pub fn fingerprint(self) -> u32 {
        let mut hasher = blake3::Hasher::new();
        let of = |section: Section| [section.numbers as u64, section.group as u64];
        let formats = [self.dtype as u64, self.encoding as u64];
        let words: Vec<u64> = match self.sections {
            // Release 0.2.0 has parts of one section alone, and these words of them.
            [one, Section { numbers: 0, .. }] if one.numbers > 0 => formats.into_iter().chain(of(one)).collect(),
            sections => {
                [self.bytes as u64].into_iter().chain(formats).chain(sections.into_iter().flat_map(of)).collect()
            }
        };
        for word in words {
            hasher.update(&word.to_le_bytes());
        }
        u32::from_le_bytes(hasher.finalize().as_bytes()[..4].try_into().expect("a digest has 32 bytes"))
    }

    /// Encodes some parts, one behind the other.
    ///
    /// # Panics
    /// `parts` is not a whole number of them, or `stored` not of as many.
    #[inline(always)]
    pub fn encode(self, parts: &[u8], stored: &mut [u8]) {
        self.check(parts, stored);
        match self.encoding {
            Encoding::Exact => stored.copy_from_slice(parts),
            Encoding::Int8 => encode_in::<Int8>(self, parts, stored),
            Encoding::Fp8 => encode_in::<Fp8>(self, parts, stored),
        }
    }

    /// Writes some parts as the device has them. Any bytes are some parts.
    ///
    /// # Panics
    /// As [`KvPart::encode`].
    #[inline(always)]
    pub fn decode(self, stored: &[u8], parts: &mut [u8]) {
        self.check(parts, stored);
        match self.encoding {
            Encoding::Exact => parts.copy_from_slice(stored),
            Encoding::Int8 => decode_in::<Int8>(self, stored, parts),
            Encoding::Fp8 => decode_in::<Fp8>(self, stored, parts),
        }
    }

    fn check(self, parts: &[u8], stored: &[u8]) {
        assert!(parts.len().is_multiple_of(self.bytes().max(1)), "whole parts of {} bytes", self.bytes());
        assert_eq!(stored.len(), self.stored_bytes_of(parts.len()), "the same parts, {}", self.encoding);
    }
}

/// What a byte stands for.
trait Code {
    /// The largest value.
    const LARGEST: f32;

    /// Returns the code of the nearest value, ties to even. The number is not larger than [`Code::LARGEST`], except
    /// for rounding.
    fn of(number: f32) -> u8;

    /// Returns the value of a code.
    fn value(code: u8) -> f32;
}

struct Int8;

impl Code for Int8 {
    const LARGEST: f32 = 127.0;

    #[inline(always)]
    fn of(number: f32) -> u8 {
        // The last bit of a float of this size is worth 1, so adding rounds, and the last byte is the number in
        // two's complement.
        const WHOLE: f32 = 12_582_912.0;
        (number + WHOLE).to_bits() as u8
    }

    #[inline(always)]
    fn value(code: u8) -> f32 {
        f32::from(code as i8)
    }
}

struct Fp8;

impl Code for Fp8 {
    const LARGEST: f32 = 448.0;

    #[inline(always)]
    fn of(number: f32) -> u8 {
        small::narrow::<4, 3>(number) as u8
    }

    #[inline(always)]
    fn value(code: u8) -> f32 {
        small::widen::<4, 3>(code.into())
    }
}

#[inline(always)]
fn encode_in<C: Code>(part: KvPart, parts: &[u8], stored: &mut [u8]) {
    match part.dtype {
        Dtype::F32 => encode_parts::<F32, C>(part, parts, stored),
        Dtype::F16 => encode_parts::<F16, C>(part, parts, stored),
        Dtype::Bf16 => encode_parts::<Bf16, C>(part, parts, stored),
    }
}

#[inline(always)]
fn decode_in<C: Code>(part: KvPart, stored: &[u8], parts: &mut [u8]) {
    match part.dtype {
        Dtype::F32 => decode_parts::<F32, C>(part, stored, parts),
        Dtype::F16 => decode_parts::<F16, C>(part, stored, parts),
        Dtype::Bf16 => decode_parts::<Bf16, C>(part, stored, parts),
    }
}

#[inline(always)]
fn encode_parts<N: Number, C: Code>(part: KvPart, parts: &[u8], stored: &mut [u8]) {
    let parts = parts.chunks_exact(part.bytes());
    for (mut numbers, mut stored) in parts.zip(stored.chunks_exact_mut(part.stored_bytes())) {
        for section in part.sections {
            let (these, others) = numbers.split_at(section.numbers * size_of::<N::Bytes>());
            let (kept, rest) = stored.split_at_mut(section.stored_bytes());
            encode_section::<N, C>(section, these, kept);
            (numbers, stored) = (others, rest);
        }
    }
}

#[inline(always)]
fn encode_section<N: Number, C: Code>(section: Section, numbers: &[u8], stored: &mut [u8]) {
    let (scales, codes) = stored.split_at_mut(section.scales_bytes());
    let group = section.group.max(1);
    let groups = N::Bytes::split(numbers).chunks(group).zip(codes.chunks_mut(group));
    for ((numbers, codes), scale) in groups.zip(scales.as_chunks_mut::<SCALE>().0) {
        *scale = encode_group::<N, C>(numbers, codes).to_le_bytes();
    }
}

#[inline(always)]
fn decode_parts<N: Number, C: Code>(part: KvPart, stored: &[u8], parts: &mut [u8]) {
    let parts = parts.chunks_exact_mut(part.bytes());
    for (mut numbers, mut stored) in parts.zip(stored.chunks_exact(part.stored_bytes())) {
        for section in part.sections {
            let (these, others) = numbers.split_at_mut(section.numbers * size_of::<N::Bytes>());
            let (kept, rest) = stored.split_at(section.stored_bytes());
            decode_section::<N, C>(section, kept, these);
            (numbers, stored) = (others, rest);
        }
    }
}

#[inline(always)]
fn decode_section<N: Number, C: Code>(section: Section, stored: &[u8], numbers: &mut [u8]) {
    let (scales, codes) = stored.split_at(section.scales_bytes());
    let group = section.group.max(1);
    let groups = N::Bytes::split_mut(numbers).chunks_mut(group).zip(codes.chunks(group));
    for ((numbers, codes), &scale) in groups.zip(scales.as_chunks::<SCALE>().0) {
        decode_group::<N, C>(f32::from_le_bytes(scale), codes, numbers);
    }
}

/// Writes the codes of a group. Its scale, which is no number where the group has something that is not finite.
#[inline(always)]
fn encode_group<N: Number, C: Code>(numbers: &[N::Bytes], codes: &mut [u8]) -> f32 {
    // Without their signs numbers are in the order of their bits, and what is not finite comes after them.
    let largest = numbers.iter().fold(0, |largest, &number| N::magnitude(number).max(largest));
    if largest >= N::INFINITY {
        codes.fill(0);
        return f32::NAN;
    }
    let scale = scale(N::value_of(largest), C::LARGEST);
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    for (code, &number) in codes.iter_mut().zip(numbers) {
        *code = C::of(N::value(number) * inverse);
    }
    scale
}

#[inline(always)]
fn decode_group<N: Number, C: Code>(scale: f32, codes: &[u8], numbers: &mut [N::Bytes]) {
    if scale.is_nan() {
        return numbers.fill(N::NAN);
    }
    for (number, &code) in numbers.iter_mut().zip(codes) {
        *number = N::nearest(C::value(code) * scale);
    }
}

/// Returns the factor that makes about `largest`, and no more, of the largest code. It has so few bits that the
/// product with any code is exact. So the largest number of a group that came back has the same scale again.
#[inline(always)]
fn scale(largest: f32, code: f32) -> f32 {
    const DROPPED: u32 = 0x7F;
    if largest < LEAST { 0.0 } else { f32::from_bits((largest / code).to_bits() & !DROPPED) }
}
