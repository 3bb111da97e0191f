//! The fields that say what the text of an answer has to be: OpenAI's, and those of vLLM.

use crate::api::{Fields, Structure, only};
use crate::error::ApiError;
use serde_json::json;

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
    const SCHEMA: &str = "json_schema";
    let Some(raw) = fields.raw(FIELD) else { return Ok(None) };
    let mut format = Fields::of_field(raw, FIELD)?;
    let kind = format.string("type")?.ok_or_else(|| ApiError::missing(&format.name("type")))?;
    let structure = match kind.as_str() {
        "text" => None,
        "json_object" => Some(Structure::any_object(FIELD)),
        SCHEMA => {
            let name = format.name(SCHEMA);
            let mut named = Fields::of_field(format.required(SCHEMA)?, &name)?;
            named.string("name")?;
            named.string("description")?;
            // Every answer keeps to its schema.
            named.flag("strict")?;
            let schema = Structure::json(&mut named, "schema")?.unwrap_or_else(|| Structure::any_object(&name));
            named.finish()?;
            Some(schema)
        }
        _ => {
            let message = format!("'{FIELD}.type' is '{kind}'; it must be text, json_object or json_schema.");
            return Err(ApiError::field(&format.name("type"), message));
        }
    };
    format.finish()?;
    Ok(structure)
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
