//! The tokens of a chat's prompt, in which no message can forge a turn.
//!
//! A template writes special tokens by their names: that a turn begins, say. A message may have the same names in its
//! text, and there they are text. To tell both apart, a mark parts each such name in what is given to the template,
//! and is removed after the special tokens of the prompt were found. Most messages have no such name: then nothing is
//! marked, and the prompt is tokenized as any text.
//!
//! What is deliberately absent: the prompts of completions, whose clients write special tokens themselves.

#[cfg(test)]
mod tests;

use super::template::{ChatTemplate, PromptEnd, TemplateError};
use super::tokenizer::{Tokenizer, TokenizerError};
use domain::Token;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// Characters that Unicode keeps for use inside of programs: one that no message has is the mark.
const MARKS: RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';
/// Variables of a template whose texts others than the client may have written, as they may those of messages.
const TOLD: [&str; 2] = ["tools", "documents"];

/// What the name of a special token is where a message has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WrittenSpecials {
    /// Text.
    #[default]
    Text,
    /// The special token.
    Allow,
}

/// Why a chat has no prompt.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The template does not render it.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The tokenizer does not take what was rendered.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The messages have every character that could be the mark.
    #[error("the messages name special tokens, and have all of the noncharacters U+FDD0 to U+FDEF: leave one out")]
    NoMark,
}

/// Returns the tokens of the prompt that `template` makes of `messages` and `extra`, more variables. Errors:
/// [`PromptError`].
pub fn encode_chat(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    (messages, extra): (&[Value], &Map<String, Value>),
    end: PromptEnd,
    written: WrittenSpecials,
) -> Result<Vec<Token>, PromptError> {
    let is_special = |text: &str| !tokenizer.special_ranges(text).is_empty();
    let mut told = messages.iter().chain(TOLD.iter().filter_map(|name| extra.get(*name)));
    if written == WrittenSpecials::Allow || !told.any(|value| any_text(value, &is_special)) {
        return Ok(tokenizer.encode(&template.render(messages, end, extra)?, false)?);
    }
    let has = |mark: char| {
        messages.iter().chain(extra.values()).any(|value| any_text(value, &|text: &str| text.contains(mark)))
    };
    let mark = MARKS.into_iter().find(|&mark| !has(mark)).ok_or(PromptError::NoMark)?;
    let (mut messages, mut extra) = (messages.to_vec(), extra.clone());
    messages.iter_mut().for_each(|message| mark_value(message, tokenizer, mark));
    for name in TOLD {
        extra.get_mut(name).into_iter().for_each(|value| mark_value(value, tokenizer, mark));
    }
    Ok(tokenizer.encode_marked(&template.render(&messages, end, &extra)?, mark)?)
}

/// Returns whether `is_so` holds for one of the texts of a value, names of fields included.
fn any_text(value: &Value, is_so: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => is_so(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, is_so)),
        Value::Object(fields) => fields.iter().any(|(name, value)| is_so(name) || any_text(value, is_so)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Marks the names of special tokens in all texts of a value.
fn mark_value(value: &mut Value, tokenizer: &Tokenizer, mark: char) {
    match value {
        Value::String(text) => mark_text(text, tokenizer, mark),
        Value::Array(items) => items.iter_mut().for_each(|item| mark_value(item, tokenizer, mark)),
        Value::Object(fields) => {
            let marked = std::mem::take(fields).into_iter().map(|(mut name, mut value)| {
                mark_text(&mut name, tokenizer, mark);
                mark_value(&mut value, tokenizer, mark);
                (name, value)
            });
            *fields = marked.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Parts each name of a special token in `text`. What is left may show another one that overlapped it. A name of one
/// character cannot be parted, and stays.
fn mark_text(text: &mut String, tokenizer: &Tokenizer, mark: char) {
    loop {
        let inside = tokenizer.special_ranges(text).into_iter().filter_map(|range| {
            let name = text[range.clone()].trim_start();
            let begin = range.end - name.len();
            name.trim_end().char_indices().nth(1).map(|(second, _)| begin + second)
        });
        let cuts: Vec<usize> = inside.collect();
        if cuts.is_empty() {
            return;
        }
        let mut marked = String::with_capacity(text.len() + cuts.len() * mark.len_utf8());
        let mut from = 0;
        for cut in cuts {
            marked += &text[from..cut];
            marked.push(mark);
            from = cut;
        }
        marked += &text[from..];
        *text = marked;
    }
}
