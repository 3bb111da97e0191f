//! Text that a parser has not given out yet.

use super::part::{Part, add};

/// The end of the text so far, of which it is not certain what it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    text: String,
}

impl Held {
    /// Adds more text at the end.
    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Returns the text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Takes the first `bytes` of the text.
    pub(super) fn take(&mut self, bytes: usize) -> String {
        let rest = self.text.split_off(bytes);
        std::mem::replace(&mut self.text, rest)
    }

    /// Takes all text.
    pub(super) fn take_all(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Gives out the text before the first of `markers`, as what `kind` makes of it. Returns the index of the marker
    /// that the rest begins with. `None`: there is none yet, and the rest is what may become one. No marker may begin
    /// with another.
    pub(super) fn pass_until(
        &mut self,
        markers: &[&str],
        kind: fn(String) -> Part,
        out: &mut Vec<Part>,
    ) -> Option<usize> {
        let mut end = self.text.len();
        let mut found = None;
        for (at, _) in self.text.char_indices() {
            let rest = &self.text[at..];
            found = markers.iter().position(|marker| rest.starts_with(marker));
            if found.is_some() || begins_any(markers, rest) {
                end = at;
                break;
            }
        }
        add(out, kind(self.take(end)));
        found
    }
}

/// Returns whether `text` is the beginning of one of `markers`, and not all of it.
pub(super) fn begins_any(markers: &[&str], text: &str) -> bool {
    markers.iter().any(|marker| marker.len() > text.len() && marker.starts_with(text))
}

/// Returns the first `bytes` bytes of `text`, or as many fewer as end a character.
pub(super) fn at_most(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let end = (0..=bytes).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}
