//! The fields that say what the text of an answer has to be: OpenAI's, and those of vLLM.

use crate::api::{Fields, Structure, only};
use crate::error::ApiError;
use serde_json::json;
use serde_json::value::RawValue;

/// Takes them. Errors: what the client has to fix.
pub(super) fn take(fields: &mut Fields<'_>) -> Result<Option<Structure>, ApiError> {
    let older = [
        Structure::json(fields, "guided_json")?,
        Structure::regex(fields, "guided_regex")?,
        Structure::choice(fields, "guided_choice")?,
        Structure::grammar(fields, "guided_grammar")?,
    ];
    only([response_format(fields)?, structured_outputs(fields)?].into_iter().chain(older))
}

fn response_format(fields: &mut Fields<'_>) -> Result<Option<Structure>, ApiError> {
    const FIELD: &str = "response_format";
    match fields.raw(FIELD) {
        Some(raw) => format(raw, FIELD, Place::Inside),
        None => Ok(None),
    }
}

/// Where the schema of a format is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In a field `json_schema`, as in chats.
    Inside,
    /// Beside the type, as in responses.
    Beside,
}

/// Reads the format of an answer, which `field` has. `None`: any text. Errors: what the client has to fix.
pub(super) fn format(raw: &RawValue, field: &str, place: Place) -> Result<Option<Structure>, ApiError> {
    const SCHEMA: &str = "json_schema";
    let mut format = Fields::of_field(raw, field)?;
    let kind = format.string("type")?.ok_or_else(|| ApiError::missing(&format.name("type")))?;
    let structure = match (kind.as_str(), place) {
        ("text", _) => None,
        ("json_object", _) => Some(Structure::any_object(field)),
        (SCHEMA, Place::Beside) => Some(schema(&mut format, field)?),
        (SCHEMA, Place::Inside) => {
            let name = format.name(SCHEMA);
            let mut named = Fields::of_field(format.required(SCHEMA)?, &name)?;
            let structure = schema(&mut named, &name)?;
            named.finish()?;
            Some(structure)
        }
        _ => {
            let message = format!("'{field}.type' is '{kind}'; it must be text, json_object or json_schema.");
            return Err(ApiError::field(&format.name("type"), message));
        }
    };
    format.finish()?;
    Ok(structure)
}

/// Takes a schema and what is said about it.
fn schema(fields: &mut Fields<'_>, field: &str) -> Result<Structure, ApiError> {
    fields.string("name")?;
    fields.string("description")?;
    // Every answer keeps to its schema.
    fields.flag("strict")?;
    Ok(Structure::json(fields, "schema")?.unwrap_or_else(|| Structure::any_object(field)))
}

fn structured_outputs(fields: &mut Fields<'_>) -> Result<Option<Structure>, ApiError> {
    const FIELD: &str = "structured_outputs";
    let Some(raw) = fields.raw(FIELD) else { return Ok(None) };
    let mut inner = Fields::of_field(raw, FIELD)?;
    let object = inner.flag("json_object")?.unwrap_or(false);
    let given = [
        Structure::json(&mut inner, "json")?,
        Structure::regex(&mut inner, "regex")?,
        Structure::choice(&mut inner, "choice")?,
        Structure::grammar(&mut inner, "grammar")?,
        object.then(|| Structure::any_object(&inner.name("json_object"))),
    ];
    inner.neutral("structural_tag", &[])?;
    for field in ["disable_fallback", "disable_any_whitespace", "disable_additional_properties"] {
        inner.neutral(field, &[json!(false)])?;
    }
    inner.neutral("whitespace_pattern", &[])?;
    inner.finish()?;
    only(given)
}
