//! Why a quantised matrix cannot be read.

/// Why a quantised matrix cannot be read. A part is named by the end of its tensor's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantisedError {
    /// A tensor of it is not there.
    #[error("there is no {part} beside it")]
    Missing {
        /// The tensor.
        part: &'static str,
    },
    /// A tensor is in another number format.
    #[error("its {part} is stored as {found}, but must be {expected}")]
    Format {
        /// The tensor.
        part: &'static str,
        /// Its number format, as the file spells it.
        found: String,
        /// Those that are read.
        expected: &'static str,
    },
    /// A tensor does not fit the others.
    #[error("its {part} has the shape {found:?}, but must have {expected}")]
    Shape {
        /// The tensor.
        part: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// What would fit.
        expected: String,
    },
    /// Its integers have a size that is not read.
    #[error("its {part} implies integers of {bits} bits; read are 2, 3, 4 and 8 (4 for AWQ)")]
    Bits {
        /// The tensor that implies it.
        part: &'static str,
        /// The size, where it is a whole one.
        bits: String,
    },
    /// Its rows are no whole blocks.
    #[error("it has {inputs} inputs; read are multiples of 32")]
    Inputs {
        /// Numbers of a row.
        inputs: usize,
    },
    /// A list of groups names one that is not there.
    #[error("its {part} names group {group}, but there are {groups}")]
    Group {
        /// The list.
        part: &'static str,
        /// What it names.
        group: i32,
        /// How many there are.
        groups: usize,
    },
    /// A zero point is beyond what the integers can be.
    #[error("its {part} has a zero point of {zero}, which integers of {bits} bits do not reach")]
    Zero {
        /// The tensor.
        part: &'static str,
        /// The zero point.
        zero: i8,
        /// Bits of an integer.
        bits: u32,
    },
}
