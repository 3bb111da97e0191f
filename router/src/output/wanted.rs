//! What an answer has to be.

use super::calls::{CallRun, Calls};
use super::rules::Rules;
use super::tools::Tools;

/// What an answer has to be, behind its reasoning.
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// The tools that it may call.
    pub(crate) tools: Option<&'a Tools>,
    /// Whether it has to.
    pub(crate) must: Must,
    /// It may have one call only.
    pub(crate) one_call: bool,
    /// What it is where it calls no tool, as an expression. `None`: it may be anything.
    pub(crate) text: Option<String>,
}

/// Whether an answer has to call a tool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Must {
    /// It need not.
    #[default]
    May,
    /// It has to call one.
    Call,
    /// It has to call this one.
    Name(String),
}

/// Calls of this form begin with no marker, so text cannot be told from them while it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoMarker;

impl Wanted<'_> {
    /// Returns the calls that its grammar has to know: all, where some must be, or where text is bound or calls are.
    pub(super) fn calls(&self) -> Option<Calls<'_>> {
        let tools = self.tools?;
        let many = !self.one_call;
        match &self.must {
            Must::Name(name) => Some(tools.calls(Some(name), false)),
            Must::Call => Some(tools.calls(None, many)),
            Must::May if tools.has_strict() || self.text.is_some() => Some(tools.calls(None, many)),
            Must::May => None,
        }
    }

    /// Returns the answer, of which `run` is what calls are.
    pub(super) fn answer(&self, rules: &mut Rules<'_>, run: Option<CallRun>) -> Result<String, NoMarker> {
        let Some(CallRun { open, rest }) = run else { return Ok(self.text.clone().unwrap_or_default()) };
        let marked = |rules: &Rules<'_>| match open {
            Some(open) => format!("{} {rest}", rules.marker(open)),
            None => rest.clone(),
        };
        match (&self.must, &self.text, open) {
            (Must::May, Some(text), _) => Ok(format!("{} | {text}", marked(rules))),
            (Must::May, None, Some(open)) => {
                let (before, behind) = (rules.until(open), rules.without(open));
                Ok(format!("({before} {rest})? {behind}"))
            }
            (Must::May, None, None) => Err(NoMarker),
            _ => Ok(marked(rules)),
        }
    }
}
