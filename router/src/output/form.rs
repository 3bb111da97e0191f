//! What is known of a form of calls of tools.

use super::part::OutputParser;
use super::tools::Tools;
use engine::text::ChatTemplate;
use std::sync::Arc;

/// A form of calls of tools.
pub(super) struct ToolForm {
    /// Its name in settings.
    pub(super) name: &'static str,
    /// Its markers that models have as special tokens. The text that is parsed has to show them, and no others.
    pub(super) markers: &'static [&'static str],
    /// Returns whether a chat template shows it.
    pub(super) is_in: fn(&dyn Template) -> bool,
    /// Makes its parser, for a request that offers these tools.
    pub(super) parser: fn(Arc<Tools>) -> Box<dyn OutputParser>,
}

/// The text of a chat template.
pub(crate) trait Template {
    /// Returns whether `text` is in it.
    fn has(&self, text: &str) -> bool;
}

impl Template for ChatTemplate {
    fn has(&self, text: &str) -> bool {
        self.has(text)
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl Template for &str {
    fn has(&self, text: &str) -> bool {
        self.contains(text)
    }
}
