//! Grammars of calls, which every form of calls makes of the tools that a request offers.

use super::rules::{Keeping, Rules};
use serde_json::Value;

/// Most calls of an answer that has to call tools.
const CALLS_MAX: usize = 16;

/// A tool that may be called.
pub(super) struct Callable<'a> {
    pub(super) name: &'a str,
    /// The schema of its parameters.
    pub(super) parameters: &'a Value,
    /// How close its arguments have to keep to that.
    pub(super) keeping: Keeping,
}

/// Calls that an answer may have.
pub(super) struct Calls<'a> {
    /// Of these tools, at least one.
    pub(super) tools: Vec<Callable<'a>>,
    /// More than one.
    pub(super) many: bool,
}

/// Calls one after the other, as a form writes them.
pub(super) struct CallRun {
    /// The marker that they begin with, if it tells them from text.
    pub(super) open: Option<&'static str>,
    /// What comes behind it, to the end of the last call.
    pub(super) rest: String,
}

impl Calls<'_> {
    /// Returns one call, where `of` writes a call of a tool.
    pub(super) fn one(&self, rules: &mut Rules<'_>, of: impl Fn(&mut Rules<'_>, &Callable<'_>) -> String) -> String {
        let calls: Vec<String> = self.tools.iter().map(|tool| of(rules, tool)).collect();
        rules.rule(&calls.join(" | "))
    }

    /// Returns as many as there may be of `one`, with `between` between two.
    pub(super) fn repeated(&self, one: &str, between: &str) -> String {
        if self.many { format!("{one} ({between} {one}){{0,{}}}", CALLS_MAX - 1) } else { one.to_owned() }
    }

    /// Returns one call as a JSON object, whose arguments are the value of `key`.
    pub(super) fn object(&self, rules: &mut Rules<'_>, key: &str) -> String {
        self.one(rules, |rules, tool| {
            let head = Rules::literal(&format!("{{\"name\": {}, \"{key}\": ", Value::from(tool.name)));
            format!("{head} {} \"}}\"", tool.arguments(rules))
        })
    }
}

impl Callable<'_> {
    /// Returns its arguments as a JSON object.
    pub(super) fn arguments(&self, rules: &mut Rules<'_>) -> String {
        let mut schema = self.parameters.clone();
        if let Value::Object(schema) = &mut schema {
            schema.entry("type").or_insert_with(|| "object".into());
        }
        rules.json(&schema, self.keeping)
    }

    /// Returns its arguments by name, in the order of the schema, where a form writes each for itself: name, schema and
    /// whether it must be there.
    pub(super) fn by_name(&self) -> Vec<(&str, Value, bool)> {
        let Some(properties) = self.parameters["properties"].as_object() else { return Vec::new() };
        let required =
            |name: &str| self.parameters["required"].as_array().is_some_and(|all| all.iter().any(|it| it == name));
        let of = |(name, schema): (&'_ String, &Value)| {
            let mut schema = schema.clone();
            // What the schemas refer to.
            for definitions in ["$defs", "definitions"] {
                if let (Value::Object(schema), Some(all)) = (&mut schema, self.parameters.get(definitions)) {
                    schema.entry(definitions).or_insert_with(|| all.clone());
                }
            }
            (schema, required(name))
        };
        properties
            .iter()
            .map(|(name, schema)| {
                let (schema, required) = of((name, schema));
                (name.as_str(), schema, required)
            })
            .collect()
    }
}
