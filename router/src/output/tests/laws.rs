//! What holds for every parser and every text.

use super::*;
use crate::output::checks::{CHAINS, check_grammar};
use proptest::prelude::*;

/// Pieces of which texts are made that come near to calls.
const PIECES: [&str; 48] = [
    "<tool_call>",
    "</tool_call>",
    "<function=get_weather>",
    "</function>",
    "<parameter=city>",
    "<parameter=days>",
    "</parameter>",
    "{\"name\": \"get_weather\", \"arguments\": ",
    "{\"name\": \"get_time\", \"parameters\": ",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "\"",
    "'",
    "\\",
    ",",
    ":",
    ";",
    "=",
    "\n",
    " ",
    "{}",
    "{\"a\": [1, 2]}",
    "[TOOL_CALLS]",
    "[ARGS]",
    "get_weather",
    "get_time(",
    "city=",
    "[get_time()",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "function",
    "```json\n",
    "```",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|start|>assistant",
    "analysis",
    " to=functions.f",
    "<think>",
    "</think>",
];

/// Returns texts of pieces and words that occur once each: `w0w`, `w1w`, and so on.
fn texts() -> impl Strategy<Value = (String, usize)> {
    proptest::collection::vec(0..PIECES.len() + 6, 0..24).prop_map(|choices| {
        let mut text = String::new();
        let mut words = 0;
        for choice in choices {
            match PIECES.get(choice) {
                Some(piece) => text.push_str(piece),
                None => {
                    text.push_str(&format!("w{words}w"));
                    words += 1;
                }
            }
        }
        (text, words)
    })
}

fn content(parts: &[Part]) -> String {
    parts
        .iter()
        .map(|part| match part {
            Part::Text(text) | Part::Reasoning(text) | Part::ToolArguments(text) => text,
            Part::ToolBegin { name } => name,
            Part::ToolEnd => "",
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_cuts_change_nothing((text, words) in texts(), at in any::<prop::sample::Index>()) {
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let (before, after) = text.split_at(ends[at.index(ends.len())]);
        for (tool_form, reasoning_form, prompt) in CHAINS {
            let of = || parser(tool_form, reasoning_form, prompt);
            let parts = parse(of(), [text.as_str()]);
            check_grammar(&parts);
            let content = content(&parts);
            let mut from = 0;
            for word in (0..words).map(|word| format!("w{word}w")) {
                let found = content[from..].find(&word);
                prop_assert!(found.is_some(), "{tool_form}: {word} of {text:?} is lost or moved: {parts:?}");
                from += found.expect("it was checked");
            }
            prop_assert_eq!(&parse(of(), [before, after]), &parts, "{}", tool_form);
            prop_assert_eq!(&parse(of(), ends.windows(2).map(|pair| &text[pair[0]..pair[1]])), &parts, "{}", tool_form);
        }
    }

    #[test]
    fn text_without_markers_is_text(text in "[a-zA-Z0-9 .,;:!?(){}\\n\"'é🦀-]{0,80}") {
        for (tool_form, reasoning_form, prompt) in CHAINS {
            let parts = parse(parser(tool_form, reasoning_form, prompt), [text.as_str()]);
            if prompt.is_empty() {
                prop_assert_eq!(content(&parts), text.as_str(), "{}", tool_form);
                prop_assert!(parts.len() <= 1, "{}: {:?}", tool_form, parts);
            }
        }
    }
}
