//! The model as Anthropic's API describes it.

use crate::config::ModelCard;
use crate::dialects::time::rfc3339_of_seconds;
use serde_json::{Value, json};

/// Describes the model.
pub(crate) fn model(card: &ModelCard) -> Value {
    let created = rfc3339_of_seconds(card.created);
    json!({ "type": "model", "id": card.name, "display_name": card.name, "created_at": created })
}

/// Lists the model, if the client may ask it.
pub(crate) fn models(card: &ModelCard, may_ask: bool) -> Value {
    let (name, models) = match may_ask {
        true => (Some(&card.name), vec![model(card)]),
        false => (None, Vec::new()),
    };
    json!({ "data": models, "has_more": false, "first_id": name, "last_id": name })
}
