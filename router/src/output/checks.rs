//! What property tests and fuzzers check of every form.

use super::part::add;
use super::{OutputForms, OutputParser, Part, Tools};
use serde_json::json;
use std::sync::Arc;

/// Settings of the chains of parsers that are tried, with what their prompts end in: `(form of calls, form of
/// reasoning, prompt)`.
pub(crate) const CHAINS: [(&str, &str, &str); 11] = [
    ("hermes", "think", ""),
    ("hermes", "none", ""),
    ("qwen3_coder", "none", ""),
    ("llama3_json", "none", ""),
    ("pythonic", "none", ""),
    ("mistral", "mistral", ""),
    ("deepseek", "think", "<think>\n"),
    ("json", "none", ""),
    ("harmony", "harmony", ""),
    ("harmony", "none", ""),
    ("none", "harmony", ""),
];

/// Returns some tools.
pub(crate) fn tools() -> Arc<Tools> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string" },
            "days": { "type": "integer" },
            "hourly": { "type": "boolean" },
            "note": { "type": ["string", "null"] },
            "places": { "type": "array" },
        },
    });
    let names = ["get_weather", "get_time", "get_user_info"];
    Arc::new(Tools::new(names.map(|name| (name.to_owned(), parameters.clone()))))
}

/// Returns the parser for settings, of an answer to `prompt` with some tools.
pub(crate) fn parser(tool_form: &str, reasoning_form: &str, prompt: &str) -> Box<dyn OutputParser> {
    let forms = OutputForms::find(tool_form, reasoning_form, &"").expect("they are known");
    forms.parser(prompt, Some(tools())).expect("there is something to parse")
}

/// Returns the parts of `pieces`, one after the other, with neighbours joined.
pub(crate) fn parse<'a>(mut parser: Box<dyn OutputParser>, pieces: impl IntoIterator<Item = &'a str>) -> Vec<Part> {
    let mut parts = Vec::new();
    for piece in pieces {
        let mut more = Vec::new();
        parser.push(piece, &mut more);
        more.into_iter().for_each(|part| add(&mut parts, part));
    }
    let mut more = Vec::new();
    parser.finish(&mut more);
    more.into_iter().for_each(|part| add(&mut parts, part));
    parts
}

/// Asserts that arguments and ends are inside of calls, and that every call ends.
pub(crate) fn check_grammar(parts: &[Part]) {
    let mut is_open = false;
    for part in parts {
        match part {
            Part::ToolBegin { name } => assert!(!is_open && !name.is_empty(), "{parts:?}"),
            Part::ToolArguments(_) | Part::ToolEnd => assert!(is_open, "{parts:?}"),
            Part::Text(_) | Part::Reasoning(_) => assert!(!is_open, "{parts:?}"),
        }
        is_open = matches!(part, Part::ToolBegin { .. }) || (is_open && *part != Part::ToolEnd);
    }
    assert!(!is_open, "{parts:?}");
}
