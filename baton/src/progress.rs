//! Progress of long work: a bar where a person watches, two lines of the log elsewhere.

use crate::output::{human_bytes, stderr_is_terminal};
use indicatif::{ProgressBar, ProgressStyle};

/// The bar.
const TEMPLATE: &str = "{msg} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";

/// Work that is measured in bytes.
pub(crate) struct Progress {
    what: String,
    bar: Option<ProgressBar>,
    total: u64,
}

impl Progress {
    /// Work begins; `what` is a participle: `loading tiny-rust`.
    pub(crate) fn begin(what: impl Into<String>) -> Self {
        let what = what.into();
        let bar = stderr_is_terminal().then(|| {
            let style =
                ProgressStyle::with_template(TEMPLATE).expect("a test renders the template").progress_chars("=> ");
            ProgressBar::new(0).with_style(style).with_message(what.clone())
        });
        if bar.is_none() {
            tracing::info!("{what}");
        }
        Self { what, bar, total: 0 }
    }

    /// `done` of `total` bytes are done.
    pub(crate) fn update(&mut self, done: u64, total: u64) {
        self.total = total;
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
        }
    }

    /// The work is done; the bar goes.
    pub(crate) fn end(self) {
        match self.bar {
            Some(bar) => bar.finish_and_clear(),
            None if self.total > 0 => tracing::info!("{}: done, {}", self.what, human_bytes(self.total)),
            None => tracing::info!("{}: done", self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_renders() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
