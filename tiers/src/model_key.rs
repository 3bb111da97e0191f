//! What records in a tier that outlives its worker are called after.

use domain::KvLayout;
use kv_manager::tiers::header::VERSION;

/// Hexadecimal digits of a model.
const MODEL_DIGITS: usize = 16;

/// What the meaning of a record's bytes depends on beside its identity: the version of records, and in hexadecimal
/// digits the layout, the encoding, what the rank holds, and the weights. A worker with another one never sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelKey(String);

impl ModelKey {
    pub(super) fn of(layout: &KvLayout, weights: &[u8; 32]) -> Self {
        let model =
            blake3::Hasher::new().update(&layout.records_fingerprint().to_le_bytes()).update(weights).finalize();
        Self(model.to_hex()[..MODEL_DIGITS].to_owned())
    }

    /// Returns version and model, with this between them.
    pub(super) fn joined(&self, separator: char) -> String {
        format!("{VERSION}{separator}{}", self.0)
    }
}

/// Returns whether a part of a name is a model, as [`ModelKey`] writes it.
pub(super) fn is_model(text: &str) -> bool {
    is_hex(text, MODEL_DIGITS)
}

/// Returns whether a text is a number of so many hexadecimal digits, as it is written in names.
pub(super) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
