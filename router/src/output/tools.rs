//! The tools that a request offers to the model.

use super::calls::{Callable, Calls};
use super::rules::Keeping;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Names of tools, with the JSON schemas of their parameters.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Tools {
    by_name: BTreeMap<String, Value>,
    strict: BTreeSet<String>,
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
        Self { by_name: tools.into_iter().collect(), strict: BTreeSet::new() }
    }

    /// Says of which tools the arguments have to keep to all of the schema.
    pub(crate) fn with_strict(self, names: impl IntoIterator<Item = String>) -> Self {
        Self { strict: names.into_iter().collect(), ..self }
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
        argument_type(self.by_name.get(tool).map_or(&Value::Null, |schema| &schema["properties"][argument]))
    }

    /// Returns whether arguments have to keep to all of the schema of a tool.
    pub(crate) fn has_strict(&self) -> bool {
        !self.strict.is_empty()
    }

    /// Returns calls of the tool `named`, or of any. `many`: more than one.
    pub(super) fn calls(&self, named: Option<&str>, many: bool) -> Calls<'_> {
        let wanted = self.by_name.iter().filter(|(name, _)| named.is_none_or(|named| named == *name));
        let tools = wanted.map(|(name, parameters)| {
            let keeping = if self.strict.contains(name) { Keeping::All } else { Keeping::WhatIsKnown };
            Callable { name, parameters, keeping }
        });
        Calls { tools: tools.collect(), many }
    }
}

/// Returns what the text of an argument with this schema stands for.
pub(super) fn argument_type(schema: &Value) -> ArgumentType {
    match &schema["type"] {
        Value::String(name) if name == "string" => ArgumentType::String,
        Value::String(_) => ArgumentType::Json,
        Value::Array(names) if !names.iter().any(|name| name == "string") => ArgumentType::Json,
        _ => ArgumentType::Any,
    }
}
