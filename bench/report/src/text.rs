//! Numbers and texts as pages show them.

/// Returns a number with three significant digits, and thousands apart.
pub fn short(number: f64) -> String {
    match number {
        _ if number >= 1000.0 => {
            let digits = format!("{number:.0}");
            let (head, tail) = digits.split_at(digits.len() % 3);
            let groups = tail.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
            let head = (!head.is_empty()).then(|| head.to_owned());
            head.into_iter().chain(groups).collect::<Vec<_>>().join(",")
        }
        _ if number >= 100.0 => format!("{number:.0}"),
        _ if number >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Returns `text` so that HTML does not read it as markup.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 1.234, 12.34, 123.4, 1234.0, 123_456.0, 1_234_567.0];
        assert_eq!(numbers.map(short), ["0.00", "1.23", "12.3", "123", "1,234", "123,456", "1,234,567"]);
    }

    #[test]
    fn markup_is_text() {
        assert_eq!(escape("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
