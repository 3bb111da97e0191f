//! Checks and small conversions that both message families share.

use crate::WireError;
use domain::{BlockHash, Choice};
use std::time::Duration;

/// Bytes of a block identity.
const HASH_BYTES: usize = 16;

/// Returns the value of a field that must be there.
pub(crate) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, WireError> {
    value.ok_or(WireError::Missing { field })
}

/// Checks that a choice is in its range.
pub(crate) fn choice(value: u32, field: &'static str) -> Result<Choice, WireError> {
    let narrow =
        u16::try_from(value).map_err(|_| WireError::invalid(field, format!("{value} is over {}", u16::MAX)))?;
    Ok(Choice(narrow))
}

/// Checks that there are `N` bytes.
pub(crate) fn array<const N: usize>(bytes: &[u8], field: &'static str) -> Result<[u8; N], WireError> {
    bytes.try_into().map_err(|_| WireError::invalid(field, format!("{} bytes instead of {N}", bytes.len())))
}

/// Checks that a float is neither infinite nor NaN.
pub(crate) fn finite(value: f32, field: &'static str) -> Result<f32, WireError> {
    if value.is_finite() { Ok(value) } else { Err(WireError::invalid(field, format!("{value} is not finite"))) }
}

/// Checks that a list is not empty.
pub(crate) fn not_empty<T>(list: &[T], field: &'static str) -> Result<(), WireError> {
    if list.is_empty() { Err(WireError::invalid(field, "it is empty")) } else { Ok(()) }
}

/// Checks that a column has as many entries as its table has rows.
pub(crate) fn column<T>(column: &[T], rows: usize, field: &'static str) -> Result<(), WireError> {
    match column.len() {
        n if n == rows => Ok(()),
        n => Err(WireError::invalid(field, format!("{n} entries in a table of {rows} rows"))),
    }
}

/// Returns a column, or an empty one if all its entries are zero.
pub(crate) fn sparse_column(column: Vec<u32>) -> Vec<u32> {
    if column.iter().all(|&value| value == 0) { Vec::new() } else { column }
}

/// Returns nanoseconds, saturating at about 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes identities, one after the other.
pub(crate) fn hashes_to_bytes(hashes: &[BlockHash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.0).collect()
}

/// Reads the identities in `bytes`.
pub(crate) fn hashes_from_bytes(bytes: &[u8], field: &'static str) -> Result<Vec<BlockHash>, WireError> {
    let (hashes, rest) = bytes.as_chunks::<HASH_BYTES>();
    if !rest.is_empty() {
        return Err(WireError::invalid(field, format!("{} bytes do not divide by {HASH_BYTES}", bytes.len())));
    }
    Ok(hashes.iter().map(|&hash| BlockHash(hash)).collect())
}
