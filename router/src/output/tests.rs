//! Every form on outputs that its model's authors publish, or that its published template writes, and on what is
//! nearly such an output. Each is cut everywhere.

mod forms;
mod laws;
mod reasoning;

use super::checks::{parse, parser, tools};
use super::*;

/// Returns `text` in one piece, in two pieces in all ways, and character by character.
pub(super) fn cuts(text: &str) -> Vec<Vec<&str>> {
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let two = ends.iter().map(|&at| vec![&text[..at], &text[at..]]);
    let all = ends.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
    two.chain([vec![text], all]).collect()
}

/// Checks that `text` becomes `wanted` however it is cut.
fn check_prompted(tool_form: &str, reasoning_form: &str, prompt: &str, text: &str, wanted: &[Part]) {
    for pieces in cuts(text) {
        let parts = parse(parser(tool_form, reasoning_form, prompt), pieces.clone());
        assert_eq!(parts, wanted, "{tool_form}, {reasoning_form}: {pieces:?}");
    }
}

/// Checks that `text` becomes `wanted` in this form of calls.
fn check(form: &str, text: &str, wanted: &[Vec<Part>]) {
    check_prompted(form, "none", "", text, &wanted.concat());
}

fn text(text: &str) -> Vec<Part> {
    vec![Part::Text(text.to_owned())]
}

fn thought(text: &str) -> Vec<Part> {
    vec![Part::Reasoning(text.to_owned())]
}

fn call(name: &str, arguments: &str) -> Vec<Part> {
    vec![Part::ToolBegin { name: name.to_owned() }, Part::ToolArguments(arguments.to_owned()), Part::ToolEnd]
}
