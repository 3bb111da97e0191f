//! The form that an answer is to have: a JSON text of a schema, a text of a regular expression or of a grammar, one of
//! some texts, or calls of tools. It becomes one grammar, which workers sample by.

use super::fields::{Fields, typed};
use crate::config::ModelCard;
use crate::error::ApiError;
use crate::output::{Keeping, Must, NoMarker, OutputForms, Rules, Wanted};
use domain::Grammar;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Most texts of a choice.
const CHOICES_MAX: usize = 1024;

/// What the text of an answer has to be, and the field that says so.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Structure {
    field: String,
    form: Form,
}

#[derive(Clone, PartialEq, Debug)]
enum Form {
    Json(Value),
    Regex(String),
    Choice(Vec<String>),
    Grammar(String),
}

/// A grammar that was not compiled yet, and the field that asks for it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Asked {
    field: String,
    pub(crate) grammar: Grammar,
}

impl Structure {
    /// Makes one of any JSON object.
    pub(crate) fn any_object(field: &str) -> Self {
        Self { field: field.to_owned(), form: Form::Json(json!({ "type": "object" })) }
    }

    /// Takes a JSON schema, which may be written as a string.
    pub(crate) fn json(fields: &mut Fields<'_>, name: &str) -> Result<Option<Self>, ApiError> {
        let field = fields.name(name);
        fields.raw(name).map(|raw| Self::schema(raw, field)).transpose()
    }

    /// Reads a JSON schema, which `field` has. It may be written as a string.
    pub(crate) fn schema(raw: &RawValue, field: String) -> Result<Self, ApiError> {
        let schema: Value = typed(raw, &field, "a JSON schema")?;
        let schema = match schema {
            Value::String(text) => serde_json::from_str(&text)
                .map_err(|error| ApiError::field(&field, format!("'{field}' is a string that is no JSON: {error}.")))?,
            schema => schema,
        };
        if !schema.is_object() && !schema.is_boolean() {
            return Err(ApiError::field_type(&field, format!("'{field}' must be an object, a JSON schema.")));
        }
        Ok(Self { field, form: Form::Json(schema) })
    }

    /// Takes a regular expression.
    pub(crate) fn regex(fields: &mut Fields<'_>, name: &str) -> Result<Option<Self>, ApiError> {
        Self::text(fields, name, Form::Regex)
    }

    /// Takes a grammar in the language of Lark.
    pub(crate) fn grammar(fields: &mut Fields<'_>, name: &str) -> Result<Option<Self>, ApiError> {
        Self::text(fields, name, Form::Grammar)
    }

    fn text(fields: &mut Fields<'_>, name: &str, form: fn(String) -> Form) -> Result<Option<Self>, ApiError> {
        let field = fields.name(name);
        let Some(text) = fields.string(name)? else { return Ok(None) };
        if text.trim().is_empty() {
            return Err(ApiError::field(&field, format!("'{field}' is empty.")));
        }
        Ok(Some(Self { field, form: form(text) }))
    }

    /// Takes texts of which the answer is one.
    pub(crate) fn choice(fields: &mut Fields<'_>, name: &str) -> Result<Option<Self>, ApiError> {
        let field = fields.name(name);
        let raw: Option<&RawValue> = fields.raw(name);
        let Some(raw) = raw else { return Ok(None) };
        let texts: Vec<String> = typed(raw, &field, "an array of strings")?;
        if texts.is_empty() || texts.len() > CHOICES_MAX || texts.iter().any(String::is_empty) {
            let message = format!("'{field}' must have 1 to {CHOICES_MAX} strings, none of them empty.");
            return Err(ApiError::field(&field, message));
        }
        Ok(Some(Self { field, form: Form::Choice(texts) }))
    }

    fn expression(&self, rules: &mut Rules<'_>) -> String {
        match &self.form {
            Form::Json(schema) => rules.json(schema, Keeping::All),
            Form::Regex(regex) => rules.regex(regex),
            Form::Choice(texts) => rules.choice(texts),
            Form::Grammar(grammar) => rules.grammar(grammar),
        }
    }
}

/// Returns the one structure among those that were given, if any was. Errors: there are two.
pub(crate) fn only(given: impl IntoIterator<Item = Option<Structure>>) -> Result<Option<Structure>, ApiError> {
    let mut given = given.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(one), Some(other)) => {
            let message = format!("'{}' and '{}' cannot both say what the answer is.", one.field, other.field);
            Err(ApiError::field(&other.field, message))
        }
        (one, _) => Ok(one),
    }
}

/// Returns the grammar of answers that call tools as `wanted` says, and whose text is of `structure`. `prompt`: the end
/// of what they answer, and the field that the tools are from. `None`: an answer may be anything. Errors: what the
/// client has to fix.
pub(super) fn asked(
    structure: Option<&Structure>,
    mut wanted: Wanted<'_>,
    forms: &OutputForms,
    (prompt, tools): (&str, &str),
    card: &ModelCard,
) -> Result<Option<Asked>, ApiError> {
    let mut rules = Rules::new(&card.tokenizer);
    wanted.text = structure.map(|structure| structure.expression(&mut rules));
    let start = forms.grammar(&mut rules, prompt, &wanted).map_err(|NoMarker| {
        let message = format!(
            "'{tools}': 'strict' needs a 'tool_choice' that forces a call, since calls of '{}' begin with no marker.",
            card.name
        );
        ApiError::unsupported(tools, message)
    })?;
    let Some(start) = start else { return Ok(None) };
    let is_call = wanted.must != Must::May;
    let field = structure.filter(|_| !is_call).map_or(tools, |structure| &structure.field).to_owned();
    let grammar = Grammar::new(rules.finish(&start))
        .map_err(|error| ApiError::field(&field, format!("'{field}' makes {error}.")))?;
    Ok(Some(Asked { field, grammar }))
}

impl Asked {
    /// Checks that workers will take it: `have_grammars`, all of them know grammars, and this is one. May take as long
    /// as a grammar may take to be compiled. Errors: what the client has to fix.
    pub(crate) fn check(&self, card: &ModelCard, have_grammars: bool) -> Result<(), ApiError> {
        let Self { field, grammar } = self;
        if !have_grammars {
            let message =
                format!("'{field}' is not supported: a worker of this service cannot keep answers to a form.");
            return Err(ApiError::unsupported(field, message));
        }
        match card.grammars.compile(grammar) {
            Ok(_) => Ok(()),
            Err(error) => Err(ApiError::field(field, format!("'{field}' cannot be kept to: {error}."))),
        }
    }
}
