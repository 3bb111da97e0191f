//! Makes a matrix of its tensors: which of them there must be, of which shapes, and what their dimensions stand for.

use super::codes::{CodeOrder, Codes};
use super::matrix::{BLOCK, Groups, Lines, Numbers, Packing, QuantisedMatrix, Scales, Zeros};
use super::{Quantisation, QuantisedError};
use crate::checkpoint::Tensor;
use crate::checkpoint::files::WeightsFile;
use domain::Dtype;
use memmap2::Mmap;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bits of a word that integers are packed into.
const WORD_BITS: usize = 32;
/// Sizes of integers that are read.
const BITS: [usize; 4] = [2, 3, 4, 8];

type Result<T> = std::result::Result<T, QuantisedError>;

/// The tensors of a matrix.
pub(super) struct Parts<'a> {
    pub(super) files: &'a [WeightsFile],
    pub(super) tensors: &'a BTreeMap<&'static str, Tensor>,
}

/// One of them.
#[derive(Clone)]
struct Part<'a> {
    name: &'static str,
    tensor: &'a Tensor,
    map: &'a Mmap,
}

/// Makes the matrix that these tensors are. As what it is packed is yet to be chosen.
pub(super) fn matrix<'a>(quantisation: Quantisation, parts: &Parts<'a>) -> Result<QuantisedMatrix<'a>> {
    match quantisation {
        Quantisation::Gptq { zero_offset } => gptq(parts, zero_offset),
        Quantisation::Awq => awq(parts),
        Quantisation::Scaled { block } => scaled(parts, block),
    }
}

/// Makes a matrix of GPTQ. `qweight` has a stream of bits for each output, whose words lie side by side with those of
/// the others: `[words, outputs]`. `scales` are `[groups, outputs]`, `qzeros` `[groups, words]`. `g_idx` has the group
/// of each input.
fn gptq<'a>(parts: &Parts<'a>, zero_offset: u8) -> Result<QuantisedMatrix<'a>> {
    let (weight, zeros, scales) = (parts.need("qweight")?, parts.need("qzeros")?, parts.need("scales")?);
    let (words, outputs) = weight.matrix_of("I32")?;
    let (groups, zero_words) = zeros.matrix_of("I32")?;
    let bits = bits_of(&zeros, zero_words, outputs)?;
    let inputs = words * WORD_BITS / bits;
    if !(words * WORD_BITS).is_multiple_of(bits) {
        return Err(weight.shape_error(format!("rows for whole integers of {bits} bits")));
    }
    let (groups, group_count) = parts.groups("g_idx", inputs, groups, &zeros)?;
    Ok(QuantisedMatrix {
        outputs,
        inputs: checked_inputs(inputs)?,
        numbers: Numbers::Unsigned,
        codes: weight.codes(bits, 4, 4 * outputs, CodeOrder::AsStored),
        lines: Lines::Outputs,
        scales: scales.by_group(group_count, outputs)?,
        zeros: Zeros::Packed { codes: zeros.codes(bits, 4 * zero_words, 4, CodeOrder::AsStored), offset: zero_offset },
        groups,
        group_count,
        parts: parts.ranges(&weight),
        packing: Packing::Widened,
    })
}

/// Makes a matrix of AWQ: `qweight` is `[inputs, words]`, `qzeros` `[groups, words]`, `scales` `[groups, outputs]`.
fn awq<'a>(parts: &Parts<'a>) -> Result<QuantisedMatrix<'a>> {
    let (weight, zeros, scales) = (parts.need("qweight")?, parts.need("qzeros")?, parts.need("scales")?);
    let (inputs, words) = weight.matrix_of("I32")?;
    let (groups, zero_words) = zeros.matrix_of("I32")?;
    let (_, outputs) = scales.matrix()?;
    let bits = bits_of(&weight, words, outputs)?;
    if bits != 4 {
        return Err(QuantisedError::Bits { part: weight.name, bits: bits.to_string() });
    }
    if zero_words != words {
        return Err(zeros.shape_error(format!("[groups, {words}]")));
    }
    let (groups, group_count) = parts.groups("g_idx", inputs, groups, &zeros)?;
    Ok(QuantisedMatrix {
        outputs,
        inputs: checked_inputs(inputs)?,
        numbers: Numbers::Unsigned,
        codes: weight.codes(bits, 4 * words, 4, CodeOrder::EvenFirst),
        lines: Lines::Inputs,
        scales: scales.by_group(group_count, outputs)?,
        zeros: Zeros::Packed { codes: zeros.codes(bits, 4 * words, 4, CodeOrder::EvenFirst), offset: 0 },
        groups,
        group_count,
        parts: parts.ranges(&weight),
        packing: Packing::Widened,
    })
}

/// Makes a matrix of a weight of 8 bits, `[outputs, inputs]`, or of `weight_packed`, `[outputs, words]`, which has the
/// shape that `weight_shape` says. Scales are one, `[outputs, groups]`, or one for each block.
fn scaled<'a>(parts: &Parts<'a>, block: Option<[usize; 2]>) -> Result<QuantisedMatrix<'a>> {
    let packed = parts.find("weight_packed");
    let weight = packed.clone().map_or_else(|| parts.need("weight"), Ok)?;
    let (outputs, columns) = weight.matrix()?;
    let (numbers, inputs, bits) = match &packed {
        Some(weight) => {
            let (_, words) = weight.matrix_of("I32")?;
            let inputs = parts.need("weight_shape")?.inputs(outputs)?;
            (Numbers::Unsigned, inputs, bits_of(weight, words, inputs)?)
        }
        None if weight.tensor.is("I8") => (Numbers::Signed, columns, 8),
        None => (Numbers::Float8, columns, 8),
    };
    let inputs = checked_inputs(inputs)?;
    let scale = match parts.find("weight_scale_inv") {
        Some(scale) => scale,
        None => parts.need("weight_scale")?,
    };
    let (scales, size) = scale.scales(outputs, inputs, block)?;
    let mut group_count = inputs.div_ceil(size);
    let mut groups = Groups::Size(size);
    // A list that was never filled has -1.
    if parts.find("weight_g_idx").is_some_and(|list| list.integers().all(|group| group >= 0)) {
        (groups, group_count) = parts.groups("weight_g_idx", inputs, group_count, &scale)?;
    }
    let zeros = match parts.find("weight_zero_point") {
        None if numbers == Numbers::Float8 => Zeros::Same(0),
        None => Zeros::Same(1 << (bits - 1)),
        Some(zeros) if numbers == Numbers::Float8 => {
            zeros.expect_format(&[], "absent: floats have no zero point")?;
            Zeros::Same(0)
        }
        Some(zeros) => zeros.zeros(bits, outputs, group_count)?,
    };
    let line = if packed.is_some() { 4 * columns } else { columns };
    Ok(QuantisedMatrix {
        outputs,
        inputs,
        numbers,
        codes: weight.codes(bits, line, 4, CodeOrder::AsStored),
        lines: Lines::Outputs,
        scales,
        zeros,
        groups,
        group_count,
        parts: parts.ranges(&weight),
        packing: Packing::Widened,
    })
}

/// Returns the bits of an integer where so many are packed into so many words.
fn bits_of(part: &Part<'_>, words: usize, integers: usize) -> Result<usize> {
    let bits = words * WORD_BITS / integers;
    if BITS.contains(&bits) && words * WORD_BITS == bits * integers {
        return Ok(bits);
    }
    let bits = if (words * WORD_BITS).is_multiple_of(integers) {
        bits.to_string()
    } else {
        format!("{words} * {WORD_BITS} / {integers}")
    };
    Err(QuantisedError::Bits { part: part.name, bits })
}

/// Refuses rows that are no whole blocks.
fn checked_inputs(inputs: usize) -> Result<usize> {
    if inputs.is_multiple_of(BLOCK) { Ok(inputs) } else { Err(QuantisedError::Inputs { inputs }) }
}

impl<'a> Parts<'a> {
    fn find(&self, name: &'static str) -> Option<Part<'a>> {
        let (name, tensor) = self.tensors.get_key_value(name)?;
        Some(Part { name, tensor, map: &self.files[tensor.file].map })
    }

    fn need(&self, name: &'static str) -> Result<Part<'a>> {
        self.find(name).ok_or(QuantisedError::Missing { part: name })
    }

    /// Returns where in which file the parts are: first this one.
    fn ranges(&self, first: &Part<'a>) -> Vec<(&'a Mmap, Range<usize>)> {
        let place = |tensor: &'a Tensor| (&self.files[tensor.file].map, tensor.range.clone());
        let others = self.tensors.iter().filter(|(name, _)| **name != first.name);
        std::iter::once(place(first.tensor)).chain(others.map(|(_, tensor)| place(tensor))).collect()
    }

    /// Returns the group of each input, and how many groups there are: `count`, which `scales` implies. Without the
    /// list `name`, groups are consecutive inputs and equally large.
    fn groups(&self, name: &'static str, inputs: usize, count: usize, scales: &Part<'_>) -> Result<(Groups, usize)> {
        let size = inputs / count;
        let whole = inputs.is_multiple_of(count);
        let Some(list) = self.find(name) else {
            let expected = || format!("a number of groups that divides {inputs} inputs");
            return if whole { Ok((Groups::Size(size), count)) } else { Err(scales.shape_error(expected())) };
        };
        list.expect_format(&["I32"], "I32")?;
        list.expect_shape(&[inputs])?;
        if let Some(group) =
            list.integers().find(|group| usize::try_from(*group).is_ok_and(|group| group >= count) || *group < 0)
        {
            return Err(QuantisedError::Group { part: name, group, groups: count });
        }
        let groups: Vec<u32> = list.integers().map(|group| group as u32).collect();
        let in_order = whole && groups.iter().enumerate().all(|(input, group)| input / size == *group as usize);
        Ok((if in_order { Groups::Size(size) } else { Groups::List(groups) }, count))
    }
}

impl<'a> Part<'a> {
    fn bytes(&self) -> &'a [u8] {
        &self.map[self.tensor.range.clone()]
    }

    fn shape_error(&self, expected: String) -> QuantisedError {
        QuantisedError::Shape { part: self.name, found: self.tensor.shape.clone(), expected }
    }

    fn expect_format(&self, formats: &[&str], expected: &'static str) -> Result<()> {
        if formats.iter().any(|format| self.tensor.is(format)) {
            return Ok(());
        }
        Err(QuantisedError::Format { part: self.name, found: self.tensor.format.to_string(), expected })
    }

    fn expect_shape(&self, shape: &[usize]) -> Result<()> {
        if self.tensor.shape == shape { Ok(()) } else { Err(self.shape_error(format!("{shape:?}"))) }
    }

    /// Returns both dimensions, neither of them 0.
    fn matrix(&self) -> Result<(usize, usize)> {
        match self.tensor.shape[..] {
            [rows, columns] if rows > 0 && columns > 0 => Ok((rows, columns)),
            _ => Err(self.shape_error("two dimensions above 0".to_owned())),
        }
    }

    /// As [`Part::matrix`], of numbers in this format.
    fn matrix_of(&self, format: &'static str) -> Result<(usize, usize)> {
        self.expect_format(&[format], format)?;
        self.matrix()
    }

    fn codes(&self, bits: usize, line_stride: usize, word_stride: usize, order: CodeOrder) -> Codes<'a> {
        Codes { bytes: self.bytes(), bits: bits as u32, line_stride, word_stride, order }
    }

    /// Returns the numbers of a list of I32.
    fn integers(&self) -> impl Iterator<Item = i32> + use<'a> {
        self.bytes().chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Reads `weight_shape`: the inputs of a matrix with so many outputs.
    fn inputs(&self, outputs: usize) -> Result<usize> {
        self.expect_format(&["I64", "I32"], "I64 or I32")?;
        self.expect_shape(&[2])?;
        let (rows, inputs) = self.bytes().split_at(self.bytes().len() / 2);
        let number = |bytes: &[u8]| match *bytes {
            [a, b, c, d] => usize::try_from(i32::from_le_bytes([a, b, c, d])).ok(),
            _ => usize::try_from(i64::from_le_bytes(bytes.try_into().expect("eight bytes"))).ok(),
        };
        let (rows, inputs) = (number(rows), number(inputs));
        let inputs = inputs.filter(|inputs| *inputs > 0 && rows == Some(outputs));
        inputs.ok_or_else(|| self.shape_error(format!("the values [{outputs}, inputs above 0]")))
    }

    fn dtype(&self) -> Result<Dtype> {
        self.expect_format(&["F16", "BF16", "F32"], "F16, BF16 or F32")?;
        let known = [("F16", Dtype::F16), ("BF16", Dtype::Bf16)].into_iter().find(|(name, _)| self.tensor.is(name));
        Ok(known.map_or(Dtype::F32, |(_, dtype)| dtype))
    }

    /// Reads scales that are `[groups, outputs]`.
    fn by_group(&self, groups: usize, outputs: usize) -> Result<Scales<'a>> {
        self.expect_shape(&[groups, outputs])?;
        let (bytes, dtype) = (self.bytes(), self.dtype()?);
        Ok(Scales { bytes, dtype, outputs_per: 1, output_stride: 1, group_stride: outputs })
    }

    /// Reads scales of a matrix, and the inputs that one is for: all, those of a group, or those of a block. `block`:
    /// its outputs and inputs.
    fn scales(&self, outputs: usize, inputs: usize, block: Option<[usize; 2]>) -> Result<(Scales<'a>, usize)> {
        let (shape, dtype) = (&self.tensor.shape[..], self.dtype()?);
        let (outputs_per, output_stride, size) = match *shape {
            [] | [1] | [1, 1] => (1, 0, inputs),
            [count] if count == outputs => (1, 1, inputs),
            [count, groups] if count == outputs && inputs.is_multiple_of(groups) => (1, groups, inputs / groups),
            [rows, columns] if rows > 0 && columns > 0 => {
                // Without a word about blocks they are equally large.
                let whole = outputs.is_multiple_of(rows) && inputs.is_multiple_of(columns);
                let [height, width] = block.or(whole.then(|| [outputs / rows, inputs / columns])).unwrap_or([1, 1]);
                if [rows, columns] != [outputs.div_ceil(height), inputs.div_ceil(width)] {
                    let fits = format!("a scale for each {height} outputs and {width} inputs of [{outputs}, {inputs}]");
                    return Err(self.shape_error(fits));
                }
                (height, columns, width)
            }
            _ => return Err(self.shape_error(format!("scales of {outputs} outputs"))),
        };
        Ok((Scales { bytes: self.bytes(), dtype, outputs_per, output_stride, group_stride: 1 }, size))
    }

    /// Reads zero points of integers of `bits` bits: bytes with a sign, or packed along outputs with 0 in the middle.
    fn zeros(&self, bits: usize, outputs: usize, groups: usize) -> Result<Zeros<'a>> {
        if self.tensor.is("I32") {
            self.expect_shape(&[(outputs * bits).div_ceil(WORD_BITS), groups])?;
            return Ok(Zeros::Packed { codes: self.codes(bits, 4, 4 * groups, CodeOrder::AsStored), offset: 0 });
        }
        self.expect_format(&["I8"], "I32 or I8, and beside integers alone")?;
        let stride = match self.tensor.shape[..] {
            [] | [1] | [1, 1] if groups == 1 => 0,
            [count] if count == outputs && groups == 1 => 1,
            [count, of_each] if count == outputs && of_each == groups => groups,
            _ => return Err(self.shape_error(format!("[{outputs}, {groups}]"))),
        };
        let (bytes, middle) = (self.bytes(), 1 << (bits - 1));
        let beyond = |byte: &u8| !(-middle..middle).contains(&i32::from(*byte as i8));
        match bytes.iter().find(|byte| beyond(byte)) {
            Some(zero) => Err(QuantisedError::Zero { part: self.name, zero: *zero as i8, bits: bits as u32 }),
            None => Ok(Zeros::Signed { bytes, stride, offset: middle as u8 }),
        }
    }
}
