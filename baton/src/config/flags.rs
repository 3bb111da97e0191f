//! The flags of a command, as a layer of the configuration.

use std::path::PathBuf;

/// What the flags of a command say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// Name, key of the setting, value.
    pub(crate) given: Vec<(&'static str, &'static str, String)>,
    /// `KEY=VALUE`, of `--set`.
    pub(crate) set: Vec<String>,
    /// The TOML file.
    pub(crate) config: Option<PathBuf>,
    /// Whether the process ends with its input.
    pub(crate) until_closed: bool,
}
