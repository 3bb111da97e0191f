//! What is kept of a response.

use keys::Key;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How ids of responses begin.
const PREFIX: &str = "resp_";
/// Random bytes of an id: an id cannot be guessed.
const ID_BYTES: usize = 24;

/// A response that is kept, with all that its prompt was made of. It needs no earlier response to go on from it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Whose it is; see [`owner`].
    pub(crate) owner: String,
    /// As its client got it.
    pub(crate) response: Value,
    /// The items before its output, those of earlier responses included.
    pub(crate) input: Vec<Value>,
}

impl Record {
    /// Returns its id.
    pub(crate) fn id(&self) -> &str {
        self.response["id"].as_str().unwrap_or_default()
    }

    /// Returns when it was made, in seconds since the Unix epoch.
    pub(crate) fn created(&self) -> u64 {
        self.response["created_at"].as_u64().unwrap_or(0)
    }

    /// Returns the conversation up to its end, as items.
    pub(crate) fn conversation(self) -> Vec<Value> {
        let Self { mut response, mut input, .. } = self;
        if let Value::Array(output) = response["output"].take() {
            input.extend(output);
        }
        input
    }
}

/// Returns who may read what `key` has made: its tenant, or the key alone if it has no tenant. Without keys, all
/// clients are one owner.
pub(crate) fn owner(key: Option<&Key>) -> String {
    match key {
        Some(key) if !key.tenant().is_empty() => format!("tenant {}", key.tenant()),
        Some(key) => format!("key {}", key.id()),
        None => "all".to_owned(),
    }
}

/// Draws the id of a response. Errors: the operating system has no random bytes.
pub(crate) fn new_id() -> Result<String, getrandom::Error> {
    let mut bytes = [0; ID_BYTES];
    getrandom::fill(&mut bytes)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{PREFIX}{digits}"))
}

/// Returns whether `id` has the form of ids.
pub(super) fn is_id(id: &str) -> bool {
    let digits = id.strip_prefix(PREFIX).unwrap_or_default();
    digits.len() == 2 * ID_BYTES && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
