//! Which part of a run is under way: a bar where a person watches, a line for each kind of part elsewhere.

use crate::output::stderr_is_terminal;
use indicatif::{ProgressBar, ProgressStyle};

/// The bar.
const TEMPLATE: &str = "[{bar:24}] {pos}/{len} {elapsed} {msg}";

/// Shows which part of a run is under way.
pub(super) struct Parts {
    bar: Option<ProgressBar>,
    /// The last line that was printed, if standard error is no terminal.
    said: String,
}

impl Parts {
    /// A run begins.
    pub(super) fn begin() -> Self {
        let bar = stderr_is_terminal().then(|| {
            let style = ProgressStyle::with_template(TEMPLATE).expect("a test renders the template");
            ProgressBar::new(0).with_style(style.progress_chars("=> "))
        });
        Self { bar, said: String::new() }
    }

    /// This is under way.
    pub(super) fn show(&mut self, what: &str, done: usize, total: usize) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
                bar.set_message(what.to_owned());
                bar.tick();
            }
            None if self.said != what => {
                eprintln!("{done} of {total}: {what}");
                what.clone_into(&mut self.said);
            }
            None => {}
        }
    }

    /// The run ended; the bar goes.
    pub(super) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
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
