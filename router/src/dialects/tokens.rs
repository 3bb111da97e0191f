//! What `/tokenize` and `/detokenize` answer, in vLLM's form: the tokens of a text or of a chat, and the text of
//! tokens.

use super::openai::{MESSAGES, conversation};
use crate::api::{Fields, in_vocabulary, model, typed};
use crate::config::ModelCard;
use crate::error::ApiError;
use domain::Token;
use engine::text::SpecialTokens;
use serde_json::{Value, json};

/// Returns the tokens of a body's `prompt` or `messages`, as the model gets them. Takes time with its length.
/// `context`: the longest that workers serve, if it is known. Errors: what the client has to fix.
pub(crate) fn tokenize(body: &[u8], card: &ModelCard, context: Option<u32>) -> Result<Value, ApiError> {
    let mut fields = Fields::of_body(body)?;
    named_model(&mut fields, card)?;
    let with_texts = fields.flag("return_token_strs")?.unwrap_or(false);
    let tokens = if fields.has(MESSAGES) {
        let (conversation, _) = conversation(&mut fields, card)?;
        // A template writes the special tokens itself.
        fields.neutral("add_special_tokens", &[json!(false)])?;
        fields.finish()?;
        conversation.tokens(MESSAGES, card)?
    } else {
        let prompt = fields.string("prompt")?.ok_or_else(|| ApiError::missing("prompt"))?;
        let special = fields.flag("add_special_tokens")?.unwrap_or(true);
        fields.finish()?;
        let tokens = card.tokenizer.encode(&prompt, special);
        tokens.map_err(|error| ApiError::internal(format!("The tokenizer failed: {error}")))?
    };
    let texts: Option<Vec<String>> =
        with_texts.then(|| tokens.iter().map(|&token| card.tokenizer.token_text(token)).collect());
    Ok(json!({ "count": tokens.len(), "max_model_len": context, "tokens": tokens, "token_strs": texts }))
}

/// Returns the text of a body's `tokens`, special ones by their names. Errors: what the client has to fix.
pub(crate) fn detokenize(body: &[u8], card: &ModelCard) -> Result<Value, ApiError> {
    const TOKENS: &str = "tokens";
    let mut fields = Fields::of_body(body)?;
    named_model(&mut fields, card)?;
    let tokens: Vec<Token> = typed(fields.required(TOKENS)?, TOKENS, "an array of token ids")?;
    fields.finish()?;
    in_vocabulary(&tokens, TOKENS, card)?;
    Ok(json!({ "prompt": card.tokenizer.decode(&tokens, SpecialTokens::Shown) }))
}

/// Checks the model where it is named: there is one.
fn named_model(fields: &mut Fields<'_>, card: &ModelCard) -> Result<(), ApiError> {
    if fields.has("model") { model(fields, card) } else { Ok(()) }
}
