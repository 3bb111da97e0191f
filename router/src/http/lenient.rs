//! What clients write beside JSON's rules, and what they mean.
//!
//! Python and JavaScript write half of a pair of UTF-16 as an escape, such as `\ud83d` where a text was cut within a
//! character. It means no character: U+FFFD, as their own encoders of UTF-8 have it. Windows' tools begin a text with a
//! byte order mark.

/// The mark of byte order, in UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";
/// The escape that takes the place of half a pair; it is as long.
const REPLACEMENT: &[u8] = b"\\ufffd";
/// Bytes of an escape by number.
const ESCAPE: usize = 6;

/// Takes the mark of byte order away, and replaces escapes that are half a pair.
pub(super) fn repair(json: &mut Vec<u8>) {
    if json.starts_with(BOM) {
        json.drain(..BOM.len());
    }
    let mut at = 0;
    while let Some(found) = json[at..].iter().position(|&byte| byte == b'\\') {
        at += found;
        at += match unit(&json[at..]) {
            Some(0xd800..0xdc00) if matches!(unit(&json[at + ESCAPE..]), Some(0xdc00..0xe000)) => 2 * ESCAPE,
            Some(0xd800..0xe000) => {
                json[at..at + ESCAPE].copy_from_slice(REPLACEMENT);
                ESCAPE
            }
            // What follows a backslash is no backslash of its own.
            _ => 2,
        };
        at = at.min(json.len());
    }
}

/// Returns the unit of UTF-16 that an escape at the beginning of `json` stands for.
fn unit(json: &[u8]) -> Option<u16> {
    let digits = json.strip_prefix(b"\\u")?.get(..4)?;
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(json: &str, expect: &str) {
        let mut bytes = json.as_bytes().to_vec();
        repair(&mut bytes);
        assert_eq!(String::from_utf8(bytes).expect("it stays text"), expect, "{json}");
    }

    #[test]
    fn half_a_pair_is_no_character() {
        check(r#""\ud800""#, r#""\ufffd""#);
        check(r#""\uDFFFx\uD83D""#, r#""\ufffdx\ufffd""#);
        check(r#""\ud83d\ud83d\ude00\ude00""#, r#""\ufffd\ud83d\ude00\ufffd""#);
        check(r#""\ud83d\u0041""#, r#""\ufffd\u0041""#);
        // A backslash that is text itself begins no escape.
        check(r#""\\ud800 \\\ud800 \"\ud83d\ude00""#, r#""\\ud800 \\\ufffd \"\ud83d\ude00""#);
        // What is no JSON stays so.
        for broken in [r"\", r"\u", r"\ud80", r"\ud8zz", r"\ud800\", "", r"\u+d80"] {
            check(broken, &broken.replace(r"\ud800", r"\ufffd"));
        }
    }

    #[test]
    fn a_mark_of_byte_order_is_no_part_of_a_text() {
        check("\u{feff}{}", "{}");
        check("{}\u{feff}", "{}\u{feff}");
        check("", "");
    }

    proptest! {
        #[test]
        fn what_serde_json_writes_is_the_same_after(text in ".*") {
            let json = serde_json::to_string(&text).expect("a string");
            check(&json, &json);
        }

        #[test]
        fn every_string_of_escapes_can_be_read_after(units in proptest::collection::vec(any::<u16>(), 0..8)) {
            let escapes: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let mut json = format!("\"{escapes}\"").into_bytes();
            repair(&mut json);
            let text: String = serde_json::from_slice(&json).expect("it is JSON");
            prop_assert_eq!(text, String::from_utf16_lossy(&units));
        }
    }
}
