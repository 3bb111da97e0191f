//! Why bytes are not a message.

/// Why bytes were refused. Names the field as the `.proto` file spells it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Not protobuf, or a field of another type.
    #[error("the bytes are not a message: {0}")]
    Malformed(#[from] prost::DecodeError),
    /// A message or a oneof that must be there is not.
    #[error("{field} is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A value that the field cannot have.
    #[error("{field} is invalid: {reason}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl WireError {
    pub(crate) fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }
}
