//! A quantised matrix in a file: what its bytes mean, and as what it is packed.

use super::codes::Codes;
use crate::checkpoint::files::let_go;
use crate::quant::{Q4_0, Q4_1, Q8_0, WeightFormat, plain};
use domain::Dtype;
use float8::F8E4M3;
use half::f16;
use memmap2::Mmap;
use std::ops::Range;

/// Inputs of a block of the formats that it becomes.
pub(super) const BLOCK: usize = 32;

/// A matrix `[outputs, inputs]` whose numbers are `scale * (code - zero)`, or `scale * code` of floats.
#[derive(Clone, Debug)]
pub(in crate::checkpoint) struct QuantisedMatrix<'a> {
    pub(in crate::checkpoint) outputs: usize,
    /// A multiple of [`BLOCK`].
    pub(in crate::checkpoint) inputs: usize,
    pub(super) numbers: Numbers,
    pub(super) codes: Codes<'a>,
    /// Whether a line of the codes is an output or an input.
    pub(super) lines: Lines,
    pub(super) scales: Scales<'a>,
    pub(super) zeros: Zeros<'a>,
    pub(super) groups: Groups,
    /// Groups of an output.
    pub(super) group_count: usize,
    /// Files and which bytes of them it is made of: first the codes.
    pub(super) parts: Vec<(&'a Mmap, Range<usize>)>,
    pub(super) packing: Packing,
}

/// What a code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// An integer from 0.
    Unsigned,
    /// An integer of 8 bits with a sign; it is read with 128 added.
    Signed,
    /// A float of 8 bits, E4M3 without infinities.
    Float8,
}

/// The dimension that a line of codes stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// A line has all inputs of an output.
    Outputs,
    /// A line has all outputs of an input.
    Inputs,
}

/// Scales in a file, one for each group of an output.
#[derive(Clone, Debug)]
pub(super) struct Scales<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) dtype: Dtype,
    /// Consecutive outputs that have the same scales.
    pub(super) outputs_per: usize,
    /// Numbers from an output's first scale to that of the next that has others.
    pub(super) output_stride: usize,
    /// Numbers from a group's scale to that of the next group.
    pub(super) group_stride: usize,
}

/// Zero points, one for each group of an output: the codes of 0.
#[derive(Clone, Debug)]
pub(super) enum Zeros<'a> {
    /// All the same.
    Same(u8),
    /// Packed as the codes are, a line for each group; `offset` is added and what then exceeds the bits is cut off.
    Packed {
        /// The stored ones.
        codes: Codes<'a>,
        /// Added to each.
        offset: u8,
    },
    /// Bytes with a sign, `[outputs, groups]`, to which `offset` is added.
    Signed {
        /// The stored ones.
        bytes: &'a [u8],
        /// Groups of an output, or 0: all outputs have the same zero point.
        stride: usize,
        /// Added to each.
        offset: u8,
    },
}

/// Which group an input is in.
#[derive(Clone, Debug)]
pub(super) enum Groups {
    /// So many consecutive inputs are a group.
    Size(usize),
    /// The group of each input.
    List(Vec<u32>),
}

/// As what a matrix is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// Its integers are those of Q4_0.
    Q4_0,
    /// Its integers are those of Q4_1.
    Q4_1,
    /// Its integers are those of Q8_0.
    Q8_0,
    /// It is widened and quantised as Q8_0.
    Widened,
}

impl QuantisedMatrix<'_> {
    /// Returns the format that [`QuantisedMatrix::rows`] gives.
    pub(in crate::checkpoint) fn format(&self) -> WeightFormat {
        match self.packing {
            Packing::Q4_0 => WeightFormat::Q4_0,
            Packing::Q4_1 => WeightFormat::Q4_1,
            Packing::Q8_0 | Packing::Widened => WeightFormat::Q8_0,
        }
    }

    /// Returns what people call its number format.
    pub(in crate::checkpoint) fn name(&self) -> String {
        match self.numbers {
            Numbers::Float8 => "FP8".to_owned(),
            Numbers::Signed | Numbers::Unsigned => format!("INT{}", self.codes.bits),
        }
    }

    /// Returns some rows, packed.
    pub(in crate::checkpoint) fn rows(&self, rows: Range<usize>) -> Vec<Vec<u8>> {
        if self.packing == Packing::Widened {
            let pack = |numbers: &[f32]| Q8_0::pack(numbers, |_, numbers| Q8_0::scale_of(numbers));
            return self.widened(rows).chunks_exact(self.inputs).map(pack).collect();
        }
        let codes = self.codes_of(rows.clone());
        let pack = |(codes, output): (&[u8], usize)| {
            let groups = self.groups_of(output);
            let mut row = Vec::with_capacity(self.inputs / BLOCK * Q8_0::BYTES);
            for (block, codes) in codes.chunks_exact(BLOCK).enumerate() {
                let (scale, zero) = groups[self.groups.of(block * BLOCK)];
                self.packing.write(codes.try_into().expect("a block's codes"), scale, zero, &mut row);
            }
            row
        };
        codes.chunks_exact(self.inputs).zip(rows).map(pack).collect()
    }

    /// Returns the numbers of some rows. A product of an integer and a scale in f16 or bf16 is exact; others are
    /// rounded once.
    pub(in crate::checkpoint) fn widened(&self, rows: Range<usize>) -> Vec<f32> {
        let codes = self.codes_of(rows.clone());
        let floats: [f32; 256] = std::array::from_fn(|code| F8E4M3::from_bits(code as u8).to_f32());
        let group_of: Vec<usize> = (0..self.inputs).map(|input| self.groups.of(input)).collect();
        let mut numbers = Vec::with_capacity(codes.len());
        for (codes, output) in codes.chunks_exact(self.inputs).zip(rows) {
            let groups = self.groups_of(output);
            numbers.extend(codes.iter().zip(&group_of).map(|(&code, &group)| {
                let (scale, zero) = groups[group];
                match self.numbers {
                    Numbers::Float8 => scale * floats[usize::from(code)],
                    Numbers::Signed | Numbers::Unsigned => scale * (f32::from(code) - f32::from(zero)),
                }
            }));
        }
        numbers
    }

    /// Returns whether the codes of a row lie in one piece.
    pub(in crate::checkpoint) fn is_by_rows(&self) -> bool {
        self.codes.word_stride == 4 && self.lines == Lines::Outputs
    }

    /// Returns the bytes of all its tensors.
    pub(in crate::checkpoint) fn stored_bytes(&self) -> usize {
        self.parts.iter().map(|(_, range)| range.len()).sum()
    }

    /// Returns whether it is widened and quantised again, which changes its numbers.
    pub(in crate::checkpoint) fn is_widened(&self) -> bool {
        self.packing == Packing::Widened
    }

    /// Lets the codes of rows go. Where these lie side by side, only all can go.
    pub(in crate::checkpoint) fn let_go(&self, rows: Range<usize>) {
        let (map, codes) = &self.parts[0];
        if rows == (0..self.outputs) {
            self.parts.iter().for_each(|(map, range)| let_go(map, range.clone()));
        } else if self.is_by_rows() {
            let stride = self.codes.line_stride;
            let_go(map, codes.start + rows.start * stride..codes.start + rows.end * stride);
        }
    }

    /// Chooses what loses least: integers stay what they are if a block of 32 inputs has one scale, so that only
    /// scales are rounded to f16.
    pub(super) fn choose_packing(&self) -> Packing {
        if self.numbers == Numbers::Float8 || !self.groups.are_blocks() {
            return Packing::Widened;
        }
        let (mut lowest, mut highest) = (u8::MAX, 0);
        let largest = ((1u32 << self.codes.bits) - 1) as u8;
        let all_the_same = matches!(self.zeros, Zeros::Same(_));
        for output in 0..if all_the_same { 1 } else { self.outputs } {
            for group in 0..if all_the_same { 1 } else { self.group_count } {
                let zero = self.zeros.at(output, group);
                (lowest, highest) = (lowest.min(zero), highest.max(zero));
            }
        }
        // What a code stands for is from `-highest` to `largest - lowest`.
        if highest <= 8 && largest.saturating_sub(lowest) <= 7 {
            Packing::Q4_0
        } else if self.codes.bits <= 4 {
            Packing::Q4_1
        } else if highest <= 128 && largest.saturating_sub(lowest) <= 127 {
            Packing::Q8_0
        } else {
            Packing::Widened
        }
    }

    /// Returns the codes of some rows, row by row.
    fn codes_of(&self, rows: Range<usize>) -> Vec<u8> {
        let mut codes = vec![0; rows.len() * self.inputs];
        match self.lines {
            Lines::Outputs => {
                for (row, out) in rows.zip(codes.chunks_exact_mut(self.inputs)) {
                    self.codes.read_line(row, out);
                }
            }
            Lines::Inputs => self.codes.read_columns(rows, self.inputs, &mut codes),
        }
        if self.numbers == Numbers::Signed {
            codes.iter_mut().for_each(|code| *code ^= 0x80);
        }
        codes
    }

    /// Returns scale and zero point of each group of an output.
    fn groups_of(&self, output: usize) -> Vec<(f32, u8)> {
        (0..self.group_count).map(|group| (self.scales.at(output, group), self.zeros.at(output, group))).collect()
    }
}

impl Packing {
    /// Appends a block with these codes.
    fn write(self, codes: &[u8; BLOCK], scale: f32, zero: u8, to: &mut Vec<u8>) {
        let d = f16::from_f32(scale);
        match self {
            Self::Q4_0 => Q4_0 { d, q: codes.map(|code| code + 8 - zero) }.write(to),
            Self::Q4_1 => Q4_1 { d, m: f16::from_f32(-scale * f32::from(zero)), q: *codes }.write(to),
            Self::Q8_0 | Self::Widened => Q8_0 { d, q: codes.map(|code| code.wrapping_sub(zero) as i8) }.write(to),
        }
    }
}

impl Scales<'_> {
    fn at(&self, output: usize, group: usize) -> f32 {
        let at = output / self.outputs_per * self.output_stride + group * self.group_stride;
        plain(self.dtype, &self.bytes[at * self.dtype.bytes()..(at + 1) * self.dtype.bytes()])
    }
}

impl Zeros<'_> {
    fn at(&self, output: usize, group: usize) -> u8 {
        match self {
            Self::Same(zero) => *zero,
            Self::Packed { codes, offset } => {
                (codes.at(group, output).wrapping_add(*offset)) & ((1u32 << codes.bits) - 1) as u8
            }
            Self::Signed { bytes, stride, offset } => bytes[output * stride + group].wrapping_add(*offset),
        }
    }
}

impl Groups {
    /// Returns the group of an input.
    fn of(&self, input: usize) -> usize {
        match self {
            Self::Size(size) => input / size,
            Self::List(groups) => groups[input] as usize,
        }
    }

    /// Returns whether each block of 32 inputs lies in one group.
    fn are_blocks(&self) -> bool {
        match self {
            Self::Size(size) => size.is_multiple_of(BLOCK),
            Self::List(groups) => groups.chunks(BLOCK).all(|block| block.iter().all(|group| *group == block[0])),
        }
    }
}
