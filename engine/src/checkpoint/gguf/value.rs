//! A metadata value. The many widths of integers become one, and so do those of floating-point numbers.

use super::reader::{Broken, Reader};
use std::fmt;

/// Most entries of a list: those of the largest vocabularies and their merges, several times over.
const LIST_MAX: u64 = 1 << 24;

/// Characters of a text that an error shows.
const SHOWN_MAX: usize = 80;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number; those above `i64::MAX` are refused.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A boolean.
    Flag(bool),
    /// A text.
    Text(String),
    /// Whole numbers or booleans.
    Integers(Vec<i64>),
    /// Numbers.
    Numbers(Vec<f64>),
    /// Texts.
    Texts(Vec<String>),
}

/// The types of values, as the file counts them.
mod kind {
    pub(super) const BOOL: u32 = 7;
    pub(super) const TEXT: u32 = 8;
    pub(super) const LIST: u32 = 9;
}

impl Value {
    /// Reads a type and a value of it.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Broken> {
        match reader.u32()? {
            kind::LIST => Self::read_list(reader),
            kind => Self::read_one(reader, kind),
        }
    }

    fn read_one(reader: &mut Reader<'_>, kind: u32) -> Result<Self, Broken> {
        Ok(match kind {
            0 => Self::Integer(u8::from_le_bytes(reader.array()?).into()),
            1 => Self::Integer(i8::from_le_bytes(reader.array()?).into()),
            2 => Self::Integer(u16::from_le_bytes(reader.array()?).into()),
            3 => Self::Integer(i16::from_le_bytes(reader.array()?).into()),
            4 => Self::Integer(u32::from_le_bytes(reader.array()?).into()),
            5 => Self::Integer(i32::from_le_bytes(reader.array()?).into()),
            6 => Self::Number(f32::from_le_bytes(reader.array()?).into()),
            kind::BOOL => match reader.array()? {
                [0] => Self::Flag(false),
                [1] => Self::Flag(true),
                [other] => return Err(reader.broken(format!("the boolean {other}"))),
            },
            kind::TEXT => Self::Text(reader.text()?),
            10 => {
                let number = reader.u64()?;
                let integer = i64::try_from(number);
                Self::Integer(integer.map_err(|_| reader.broken(format!("{number} is too large")))?)
            }
            11 => Self::Integer(i64::from_le_bytes(reader.array()?)),
            12 => Self::Number(f64::from_le_bytes(reader.array()?)),
            other => return Err(reader.broken(format!("a value of type {other}"))),
        })
    }

    fn read_list(reader: &mut Reader<'_>) -> Result<Self, Broken> {
        let kind = reader.u32()?;
        let count = reader.count("entries of a list", LIST_MAX)?;
        let (mut integers, mut numbers, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        // Every entry has a byte at least, so that what is collected is bounded by the file.
        for _ in 0..count {
            match Self::read_one(reader, kind)? {
                Self::Integer(integer) => integers.push(integer),
                Self::Flag(flag) => integers.push(flag.into()),
                Self::Number(number) => numbers.push(number),
                Self::Text(text) => texts.push(text),
                Self::Integers(_) | Self::Numbers(_) | Self::Texts(_) => {}
            }
        }
        Ok(match kind {
            6 | 12 => Self::Numbers(numbers),
            kind::TEXT => Self::Texts(texts),
            _ => Self::Integers(integers),
        })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(integer) => write!(f, "{integer}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Text(text) => write!(f, "{:?}", text.chars().take(SHOWN_MAX).collect::<String>()),
            Self::Integers(list) => write!(f, "a list of {} whole numbers", list.len()),
            Self::Numbers(list) => write!(f, "a list of {} numbers", list.len()),
            Self::Texts(list) => write!(f, "a list of {} texts", list.len()),
        }
    }
}
