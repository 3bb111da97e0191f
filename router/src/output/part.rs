//! What an answer is made of, and what makes it from text.

use std::fmt::Debug;

/// A piece of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Text for the reader.
    Text(String),
    /// What the model thinks before it answers.
    Reasoning(String),
    /// A call of a tool begins. Its arguments follow.
    ToolBegin {
        /// Name of the tool.
        name: String,
    },
    /// More of the arguments of the call that began last. All of them together are JSON, if the model wrote JSON.
    ToolArguments(String),
    /// The call that began last is complete.
    ToolEnd,
}

/// Turns the text of one sequence, as it streams, into parts. How the text is cut changes nothing about the parts,
/// once neighbours of the same kind are joined. Text that turns out to be no call comes out as text.
pub(crate) trait OutputParser: Send + Debug {
    /// Takes more text and adds the parts that are certain now to `out`.
    fn push(&mut self, text: &str, out: &mut Vec<Part>);
    /// Takes the end of the sequence. Adds what was held back, and the end of a call that is open.
    fn finish(&mut self, out: &mut Vec<Part>);
}

/// Adds `part` to `out`. It is joined to a last part of the same kind; an empty one is left out.
pub(crate) fn add(out: &mut Vec<Part>, part: Part) {
    match (out.last_mut(), &part) {
        (_, Part::Text(more) | Part::Reasoning(more) | Part::ToolArguments(more)) if more.is_empty() => {}
        (Some(Part::Text(last)), Part::Text(more))
        | (Some(Part::Reasoning(last)), Part::Reasoning(more))
        | (Some(Part::ToolArguments(last)), Part::ToolArguments(more)) => last.push_str(more),
        _ => out.push(part),
    }
}

/// Adds a whole call to `out`.
pub(super) fn add_call(out: &mut Vec<Part>, name: String, arguments: String) {
    add(out, Part::ToolBegin { name });
    add(out, Part::ToolArguments(arguments));
    add(out, Part::ToolEnd);
}
