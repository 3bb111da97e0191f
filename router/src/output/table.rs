//! All forms of output, and which of them a model has.

use super::chain::Chain;
use super::form::{Template, ToolForm};
use super::harmony::{self, Harmony};
use super::part::OutputParser;
use super::thinking::{Markers, Thinking};
use super::tools::Tools;
use super::{deepseek, hermes, json_text, llama3_json, mistral, pythonic, qwen3_coder};
use engine::text::ChatTemplate;
use std::fmt;
use std::sync::Arc;

/// Name of the form that is one of reasoning and of calls.
const HARMONY: &str = "harmony";
/// Name that means the form that the chat template shows.
const AUTO: &str = "auto";
/// Name that means no form.
const NONE: &str = "none";

/// A model without a template.
struct NoTemplate;

impl Template for NoTemplate {
    fn has(&self, _text: &str) -> bool {
        false
    }
}

/// Forms of calls. Where a template shows several, the first counts.
const TOOL_FORMS: [ToolForm; 8] = [
    ToolForm {
        name: HARMONY,
        markers: harmony::MARKERS,
        is_in: |template| template.has("<|channel|>analysis"),
        parser: |_| Box::new(Harmony::new(true, false)),
    },
    qwen3_coder::QWEN3_CODER,
    hermes::HERMES,
    mistral::MISTRAL,
    deepseek::DEEPSEEK,
    pythonic::PYTHONIC,
    llama3_json::LLAMA3_JSON,
    json_text::JSON,
];

/// Forms of reasoning between a pair of markers: name, opening and closing marker.
const REASONING_FORMS: [(&str, &str, &str); 2] = [("think", "<think>", "</think>"), ("mistral", "[THINK]", "[/THINK]")];

/// The forms of a model's output.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OutputForms {
    /// Index in [`TOOL_FORMS`].
    tools: Option<usize>,
    reasoning: Option<Reasoning>,
}

/// Names both forms, as the settings do.
impl fmt::Display for OutputForms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools = self.tools.map_or(NONE, |form| TOOL_FORMS[form].name);
        write!(f, "tool calls: {tools}, reasoning: ")?;
        match &self.reasoning {
            None => f.write_str(NONE),
            Some(Reasoning::Harmony) => f.write_str(HARMONY),
            Some(Reasoning::Marked(Markers { open, close })) => write!(f, "{open} {close}"),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Reasoning {
    Harmony,
    Marked(Markers),
}

/// Why there is no such form.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnknownForm {
    /// No form of calls has this name.
    #[error("no tool parser is named {name:?}; there are auto, none, {}", tool_names().join(", "))]
    Tools {
        /// The name.
        name: String,
    },
    /// No form of reasoning has this name.
    #[error(
        "no reasoning parser is named {name:?}; there are auto, none, {}, and pairs of markers such as \"<think> </think>\"",
        reasoning_names().join(", ")
    )]
    Reasoning {
        /// The name.
        name: String,
    },
}

/// Returns the names of all forms of calls.
pub(crate) fn tool_names() -> Vec<&'static str> {
    TOOL_FORMS.iter().map(|form| form.name).collect()
}

/// Returns the names of all forms of reasoning that have one.
pub(crate) fn reasoning_names() -> Vec<&'static str> {
    REASONING_FORMS.iter().map(|form| form.0).chain([HARMONY]).collect()
}

impl OutputForms {
    /// Returns the forms that the settings name. `auto` is what `template` shows, and none without a template; `none`
    /// is none. Errors: no form has this name.
    pub fn of(tools: &str, reasoning: &str, template: Option<&ChatTemplate>) -> Result<Self, UnknownForm> {
        match template {
            Some(template) => Self::find(tools, reasoning, template),
            None => Self::find(tools, reasoning, &NoTemplate),
        }
    }

    /// Does what [`Self::of`] says.
    pub(crate) fn find(tools: &str, reasoning: &str, template: &dyn Template) -> Result<Self, UnknownForm> {
        let tools = match tools {
            AUTO => TOOL_FORMS.iter().position(|form| (form.is_in)(template)),
            NONE => None,
            name => {
                let form = TOOL_FORMS.iter().position(|form| form.name == name);
                Some(form.ok_or_else(|| UnknownForm::Tools { name: name.to_owned() })?)
            }
        };
        let marked =
            |open: &str, close: &str| Reasoning::Marked(Markers { open: open.to_owned(), close: close.to_owned() });
        let reasoning = match reasoning {
            AUTO if template.has("<|channel|>analysis") => Some(Reasoning::Harmony),
            AUTO => {
                let form = REASONING_FORMS.iter().find(|(_, open, close)| template.has(open) && template.has(close));
                form.map(|(_, open, close)| marked(open, close))
            }
            NONE => None,
            HARMONY => Some(Reasoning::Harmony),
            name => match REASONING_FORMS.iter().find(|form| form.0 == name) {
                Some((_, open, close)) => Some(marked(open, close)),
                None => match name.split_whitespace().collect::<Vec<_>>()[..] {
                    [open, close] if open != close => Some(marked(open, close)),
                    _ => return Err(UnknownForm::Reasoning { name: name.to_owned() }),
                },
            },
        };
        Ok(Self { tools, reasoning })
    }

    /// Returns whether calls have to have ids of nine letters and digits, which templates of Mistral ask for.
    pub(crate) fn has_short_ids(&self) -> bool {
        self.tools.is_some_and(|form| TOOL_FORMS[form].name == mistral::NAME)
    }

    /// Returns whether the model has a form of reasoning.
    pub(crate) fn has_reasoning(&self) -> bool {
        self.reasoning.is_some()
    }

    /// Returns whether the model has a form of calls.
    pub(crate) fn has_tools(&self) -> bool {
        self.tools.is_some()
    }

    /// Returns the markers that the text has to show where they are special tokens, and no others. `tools`: the
    /// request offers some.
    pub(crate) fn markers(&self, tools: bool) -> Vec<&str> {
        let mut markers = Vec::new();
        if let Some(form) = self.tools.filter(|_| tools) {
            markers.extend_from_slice(TOOL_FORMS[form].markers);
        }
        match &self.reasoning {
            None => {}
            Some(Reasoning::Harmony) => markers.extend_from_slice(harmony::MARKERS),
            Some(Reasoning::Marked(Markers { open, close })) => markers.extend([open.as_str(), close.as_str()]),
        }
        markers.sort_unstable();
        markers.dedup();
        markers
    }

    /// Begins to parse the answer to `prompt`. `tools`: those that the request offers. `None`: all of the answer is
    /// text.
    pub(crate) fn parser(&self, prompt: &str, tools: Option<Arc<Tools>>) -> Option<Box<dyn OutputParser>> {
        let form = self.tools.map(|form| &TOOL_FORMS[form]).filter(|_| tools.is_some());
        let calls_in_channels = form.is_some_and(|form| form.name == HARMONY);
        let mut parsers: Vec<Box<dyn OutputParser>> = Vec::new();
        match &self.reasoning {
            None => {}
            // One parser reads all channels.
            Some(Reasoning::Harmony) => parsers.push(Box::new(Harmony::new(calls_in_channels, true))),
            Some(Reasoning::Marked(markers)) => {
                let is_open = prompt.trim_end().ends_with(&markers.open);
                parsers.push(Box::new(Thinking::new(markers.clone(), is_open)));
            }
        }
        if let (Some(form), Some(tools)) = (form, tools)
            && !(calls_in_channels && self.reasoning == Some(Reasoning::Harmony))
        {
            parsers.push((form.parser)(tools));
        }
        if parsers.is_empty() { None } else { Some(Box::new(Chain::new(parsers))) }
    }
}
