//! The tools that a request offers to the model.

use serde_json::Value;
use std::collections::BTreeMap;

/// Names of tools, with the JSON schemas of their parameters.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Tools {
    by_name: BTreeMap<String, Value>,
}

/// What the text of an argument stands for, where a form of calls writes all arguments as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ArgumentType {
    /// A string: the text itself.
    String,
    /// A string, or something else.
    Any,
    /// JSON that is no string.
    Json,
}

impl Tools {
    /// Returns tools by name with the schemas of their parameters.
    pub(crate) fn new(tools: impl IntoIterator<Item = (String, Value)>) -> Self {
        Self { by_name: tools.into_iter().collect() }
    }

    /// Returns whether there is a tool `name`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Returns whether the name of a tool begins with `beginning`.
    pub(super) fn has_beginning(&self, beginning: &str) -> bool {
        let mut from = self.by_name.range(beginning.to_owned()..);
        from.next().is_some_and(|(name, _)| name.starts_with(beginning))
    }

    /// Returns the type of an argument of a tool.
    pub(super) fn argument_type(&self, tool: &str, argument: &str) -> ArgumentType {
        let schema = self.by_name.get(tool).map_or(&Value::Null, |schema| &schema["properties"][argument]);
        match &schema["type"] {
            Value::String(name) if name == "string" => ArgumentType::String,
            Value::String(_) => ArgumentType::Json,
            Value::Array(names) if !names.iter().any(|name| name == "string") => ArgumentType::Json,
            _ => ArgumentType::Any,
        }
    }
}
