//! Server-sent events, as the HTML standard has them: lines end with LF, CRLF or CR, a blank line ends an event,
//! several `data` lines are one text, lines that begin with a colon are comments. Events may be cut anywhere into
//! pieces.
//!
//! What is deliberately absent: the fields `event`, `id` and `retry`, which no server of this API uses.

/// Most bytes of an event; a stream with a larger one is broken.
const EVENT_BYTES_MAX: usize = 4 << 20;

/// Bytes of a stream on their way to becoming events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The line that has begun.
    line: Vec<u8>,
    /// The data of the event that has begun; `None`: it has none yet.
    data: Option<Vec<u8>>,
    /// The last line ended with CR: an LF that follows belongs to it.
    after_cr: bool,
}

/// An event is larger than [`EVENT_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Events {
    /// Takes the next bytes and hands over the data of every event that they end.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut event: impl FnMut(&[u8])) -> Result<(), TooLarge> {
        if std::mem::take(&mut self.after_cr) && bytes.first() == Some(&b'\n') {
            bytes = &bytes[1..];
        }
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n' || byte == b'\r') {
            self.line.extend_from_slice(&bytes[..end]);
            self.end_line(&mut event);
            let crlf = bytes[end] == b'\r' && bytes.get(end + 1) == Some(&b'\n');
            self.after_cr = bytes[end] == b'\r' && end + 1 == bytes.len();
            bytes = &bytes[end + 1 + usize::from(crlf)..];
        }
        self.line.extend_from_slice(bytes);
        let size = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
        if size > EVENT_BYTES_MAX { Err(TooLarge) } else { Ok(()) }
    }

    fn end_line(&mut self, event: &mut impl FnMut(&[u8])) {
        if self.line.is_empty() {
            if let Some(data) = self.data.take() {
                event(&data);
            }
        } else if let Some(value) = self.line.strip_prefix(b"data") {
            let value = match value {
                [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
                [] => Some(value),
                // Another field, whose name only begins like this one.
                _ => None,
            };
            match (&mut self.data, value) {
                (Some(data), Some(value)) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                (data @ None, Some(value)) => *data = Some(value.to_vec()),
                (_, None) => {}
            }
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events are the same however the bytes are cut.
    #[track_caller]
    fn check(stream: &str, expect: &[&str]) {
        let bytes = stream.as_bytes();
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let mut events = Events::default();
                let mut got = Vec::new();
                for piece in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                    events
                        .feed(piece, |data| got.push(String::from_utf8(data.to_vec()).expect("text")))
                        .expect("events are small");
                }
                assert_eq!(got, expect, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn events_are_found_whatever_ends_their_lines() {
        check("data: a\n\ndata: [DONE]\n\n", &["a", "[DONE]"]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check("data: a\r\rdata:b\r\r", &["a", "b"]);
        check("data: ä\n\n", &["ä"]);
    }

    #[test]
    fn comments_other_fields_and_blank_lines_say_nothing() {
        check(": ping\n\n\n\nevent: x\nid: 1\ndata: a\ndatabase: b\n\n: end\n", &["a"]);
        check("data: a\n", &[]);
    }

    #[test]
    fn several_lines_of_data_are_one_text() {
        check("data: a\ndata:  b\ndata\ndata:\n\n", &["a\n b\n\n"]);
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut events = Events::default();
        assert_eq!(events.feed(&vec![b'x'; EVENT_BYTES_MAX], |_| {}), Ok(()));
        assert_eq!(events.feed(b"x", |_| {}), Err(TooLarge));
    }
}
