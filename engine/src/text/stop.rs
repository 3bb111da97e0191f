//! Stop strings over a stream of text.
//!
//! The stream ends where a stop string is complete for the first time, character by character, so that the result does
//! not depend on how the text was cut into pieces. Where several are complete at the same character, the longest
//! counts. The stop string itself is not shown; text that may yet become one is held back.
//!
//! Source of the matching: Knuth, Morris, Pratt, "Fast pattern matching in strings", 1977; one automaton per stop
//! string.

#[cfg(test)]
mod tests;

/// Watches a stream of text for stop strings.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<Automaton>,
    /// The end of the text so far that begins a stop string, as long as the longest such.
    held: String,
    stopped: bool,
}

/// What came out of a [`StopStrings::push`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Text that is safe to show.
    pub text: String,
    /// Index of the stop string that ended the text; nothing follows.
    pub stopped: Option<usize>,
}

impl StopStrings {
    /// Watches for `stops`; empty ones never match.
    pub fn new(stops: Vec<String>) -> Self {
        Self { stops: stops.into_iter().map(Automaton::new).collect(), held: String::new(), stopped: false }
    }

    /// Takes more text. After a match nothing comes out any more.
    pub fn push(&mut self, text: &str) -> Watched {
        if self.stopped {
            return Watched::default();
        }
        let before = self.held.len();
        self.held.push_str(text);
        for (offset, byte) in text.bytes().enumerate() {
            if let Some(stopped) = self.step(byte) {
                let begin = before + offset + 1 - self.stops[stopped].bytes.len();
                self.held.truncate(begin);
                self.stopped = true;
                return Watched { text: std::mem::take(&mut self.held), stopped: Some(stopped) };
            }
        }
        let keep = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
        // A stop string begins with the first byte of a character, so this cuts between characters.
        let rest = self.held.split_off(self.held.len() - keep);
        Watched { text: std::mem::replace(&mut self.held, rest), stopped: None }
    }

    /// The end of the stream: the text that was held back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
    /// Moves all automata; the longest stop string that is complete now, the earlier of two that are equal.
    fn step(&mut self, byte: u8) -> Option<usize> {
        let mut complete: Option<usize> = None;
        for index in 0..self.stops.len() {
            let longer = |best: usize| self.stops[index].bytes.len() > self.stops[best].bytes.len();
            let is_best = complete.is_none_or(longer);
            if self.stops[index].step(byte) && is_best {
                complete = Some(index);
            }
        }
        complete
    }
}

/// The matcher of one stop string.
#[derive(Clone, Debug)]
struct Automaton {
    bytes: Vec<u8>,
    /// `borders[n]`: length of the longest proper prefix of the stop string that ends its first `n + 1` bytes.
    borders: Vec<usize>,
    /// How many of its bytes end the text so far.
    matched: usize,
}

impl Automaton {
    fn new(stop: String) -> Self {
        let bytes = stop.into_bytes();
        let mut borders = vec![0; bytes.len()];
        let mut border = 0;
        for end in 1..bytes.len() {
            while border > 0 && bytes[end] != bytes[border] {
                border = borders[border - 1];
            }
            border += usize::from(bytes[end] == bytes[border]);
            borders[end] = border;
        }
        Self { bytes, borders, matched: 0 }
    }

    /// Returns whether the stop string is complete with `byte`.
    fn step(&mut self, byte: u8) -> bool {
        if self.bytes.is_empty() {
            return false;
        }
        while self.matched > 0 && self.bytes[self.matched] != byte {
            self.matched = self.borders[self.matched - 1];
        }
        self.matched += usize::from(self.bytes[self.matched] == byte);
        // The stream ends at the first match: a complete automaton never moves again.
        self.matched == self.bytes.len()
    }
}
