//! Values that are written with a unit.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A number of bytes, written as `1GiB`, `500MB` or `4096`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Bytes(pub(crate) u64);

/// Units, larger before smaller, so that printing takes the largest that divides.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1000),
    ("B", 1),
];

/// Not a number of bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a number of bytes; write it as 512MiB, 4GiB or 4096 (units: B, KB, KiB, MB, MiB, GB, GiB, TB, TiB)"
)]
pub(crate) struct BytesError(String);

impl FromStr for Bytes {
    type Err = BytesError;
    fn from_str(text: &str) -> Result<Self, BytesError> {
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let unit = unit.trim();
        let factor = match unit {
            "" => Some(1),
            _ => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor),
        };
        let bytes = number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
        bytes.map(Bytes).ok_or_else(|| BytesError(text.to_owned()))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |&&(_, factor): &&(&str, u64)| self.0 >= factor && self.0.is_multiple_of(factor);
        let (unit, factor) = UNITS.iter().find(divides).copied().unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl TryFrom<String> for Bytes {
    type Error = BytesError;
    fn try_from(text: String) -> Result<Self, BytesError> {
        text.parse()
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> String {
        bytes.to_string()
    }
}

/// A number of bytes, or `auto`: what there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum BytesOrAuto {
    Auto,
    Bytes(Bytes),
}

/// Neither a number of bytes nor `auto`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; or as auto")]
pub(crate) struct BytesOrAutoError(#[from] BytesError);

impl TryFrom<String> for BytesOrAuto {
    type Error = BytesOrAutoError;
    fn try_from(text: String) -> Result<Self, BytesOrAutoError> {
        if text.trim() == AUTO {
            return Ok(Self::Auto);
        }
        Ok(Self::Bytes(text.parse()?))
    }
}

impl From<BytesOrAuto> for String {
    fn from(bytes: BytesOrAuto) -> String {
        match bytes {
            BytesOrAuto::Auto => AUTO.to_owned(),
            BytesOrAuto::Bytes(bytes) => bytes.to_string(),
        }
    }
}

/// What stands for as many bytes as there are.
const AUTO: &str = "auto";

/// Gigabytes, written as `12.5`.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Gigabytes(pub(crate) f64);

/// Not a number of gigabytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a number of gigabytes, such as 12.5, of at most {GIGABYTES_MAX}")]
pub(crate) struct GigabytesError(String);

/// More of them are a mistake.
const GIGABYTES_MAX: f64 = 100_000.0;

impl TryFrom<String> for Gigabytes {
    type Error = GigabytesError;
    fn try_from(text: String) -> Result<Self, GigabytesError> {
        let number = text.trim().parse::<f64>().ok().filter(|number| (0.0..=GIGABYTES_MAX).contains(number));
        number.map(Self).ok_or(GigabytesError(text))
    }
}

impl From<Gigabytes> for String {
    fn from(gigabytes: Gigabytes) -> Self {
        gigabytes.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gigabytes_are_read() {
        for (text, number) in [("0", 0.0), ("12.5", 12.5), (" 400 ", 400.0)] {
            assert_eq!(Gigabytes::try_from(text.to_owned()), Ok(Gigabytes(number)), "{text}");
        }
        for text in ["", "-1", "nan", "inf", "1e9", "12.5GB"] {
            assert_eq!(Gigabytes::try_from(text.to_owned()), Err(GigabytesError(text.to_owned())));
        }
        assert_eq!(String::from(Gigabytes(12.5)), "12.5");
    }

    #[test]
    fn units_are_read() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("1GiB", 1 << 30), (" 5 mb ", 5_000_000), ("3kib", 3072)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GiB", "1.5GiB", "-1", "1 GiBs", "99999999999TiB"] {
            assert_eq!(text.parse::<Bytes>(), Err(BytesError(text.to_owned())));
        }
    }

    #[test]
    fn as_many_as_there_are_is_a_number_of_bytes() {
        let read = |text: &str| BytesOrAuto::try_from(text.to_owned());
        assert_eq!(read(" auto "), Ok(BytesOrAuto::Auto));
        assert_eq!(read("2GiB"), Ok(BytesOrAuto::Bytes(Bytes(2 << 30))));
        for bytes in [BytesOrAuto::Auto, BytesOrAuto::Bytes(Bytes(4096))] {
            assert_eq!(read(&String::from(bytes)), Ok(bytes));
        }
        let error = read("all").expect_err("it is neither").to_string();
        assert!(error.starts_with("\"all\" is not a number of bytes; ") && error.ends_with("; or as auto"), "{error}");
    }

    #[test]
    fn what_is_printed_is_read_back() {
        for bytes in [0, 1, 1000, 1024, 1536, 1 << 30, 5_000_000_000, u64::MAX] {
            assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }
        assert_eq!(Bytes(1 << 30).to_string(), "1GiB");
    }
}
