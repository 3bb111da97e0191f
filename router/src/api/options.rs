//! What a request asks for besides its prompt, and how fields that several dialects have are read.

use super::fields::{Fields, sort, typed};
use super::structure::{Asked, Structure, asked};
use crate::config::ModelCard;
use crate::error::ApiError;
use crate::output::{Must, OutputForms, OutputParser, Tools, Wanted};
use domain::{SamplingParams, Token};
use engine::text::SpecialTokens;
use serde_json::value::RawValue;
use std::sync::Arc;

/// Most stop strings of a request.
const STOPS_MAX: usize = 16;
/// Longest stop string in bytes.
const STOP_BYTES_MAX: usize = 1024;

/// Tokens of a prompt's end that may say what its answer begins inside of.
const PROMPT_END_TOKENS: usize = 16;

/// What a request asks for besides its prompt.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Options {
    /// How to sample. `max_tokens` is the field of the same name here, resolved with the prompt's length.
    pub(crate) params: SamplingParams,
    /// Most output tokens, where the client says so. 0: the prompt is computed, and nothing of the answer is told.
    pub(crate) max_tokens: Option<u32>,
    /// Sequences per prompt.
    pub(crate) choices: u16,
    /// Strings that end a sequence.
    pub(crate) stops: Vec<String>,
    /// Seed, where the client gives one.
    pub(crate) seed: Option<u64>,
    /// Answer as a stream of events.
    pub(crate) stream: bool,
    /// The stream tells the usage in a last chunk.
    pub(crate) include_usage: bool,
    /// Whether special tokens are part of the answer's text.
    pub(crate) special_tokens: SpecialTokens,
    /// What tells reasoning and calls from text; `None`: all is text.
    pub(crate) output: Option<Output>,
    /// What the text of an answer has to be.
    pub(crate) structure: Option<Structure>,
    /// The grammar that comes of it and of tools that have to be called; that of `params`.
    pub(crate) grammar: Option<Asked>,
    /// The answer's text goes on with that of the prompt, rather than begin a text.
    pub(crate) goes_on: bool,
    /// The ids of tokens are told, next to their text.
    pub(crate) tells_tokens: bool,
    /// What ends an answer is part of its text: a stop string, or the text of a stop token.
    pub(crate) shows_stop: bool,
    /// Only the most probable sequences of each prompt are told. `None`: all are.
    pub(crate) best: Option<Best>,
    /// What the answers to the prompts begin with: the texts of the prompts, or nothing.
    pub(crate) echo: Vec<String>,
    /// Prompts share what is cached only with those of the same salt.
    pub(crate) cache_salt: Option<String>,
    /// What the client calls the request.
    pub(crate) client_id: Option<String>,
}

/// The sequences of a prompt that are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Best {
    /// So many: those with the highest mean log probability of a token.
    pub(crate) choices: u16,
    /// The client asked for log probabilities, too.
    pub(crate) tells_logprobs: bool,
}

/// One answer, of text, whole.
impl Default for Options {
    fn default() -> Self {
        Self {
            params: SamplingParams::default(),
            max_tokens: None,
            choices: 1,
            stops: Vec::new(),
            seed: None,
            stream: false,
            include_usage: false,
            special_tokens: SpecialTokens::Hidden,
            output: None,
            structure: None,
            grammar: None,
            goes_on: false,
            tells_tokens: false,
            shows_stop: false,
            best: None,
            echo: Vec::new(),
            cache_salt: None,
            client_id: None,
        }
    }
}

/// How the text of an answer is taken apart.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Output {
    /// The tools that the model may call.
    pub(crate) tools: Option<Arc<Tools>>,
    /// The answer ends with its first call.
    pub(crate) one_call: bool,
    /// Whether it has to call one.
    pub(crate) must: Must,
}

impl Output {
    /// Shows the markers that are special tokens to what takes the answer apart, unless `special_tokens` shows all.
    pub(crate) fn shows_in(&self, special_tokens: &mut SpecialTokens, card: &ModelCard) {
        let names = card.forms.markers(self.tools.is_some());
        let tokens = names.into_iter().filter_map(|name| card.tokenizer.token_id(name));
        let markers: Vec<Token> = tokens.filter(|&token| card.tokenizer.is_special(token)).collect();
        if *special_tokens == SpecialTokens::Hidden && !markers.is_empty() {
            *special_tokens = SpecialTokens::Some(markers.into());
        }
    }

    /// Returns which tools an answer has to call, and may.
    fn wanted(&self) -> Wanted<'_> {
        let (tools, must) = (self.tools.as_deref(), self.must.clone());
        Wanted { tools, must, one_call: self.one_call, text: None }
    }

    /// Begins to take the answer to `prompt` apart; `None`: all is text.
    pub(crate) fn parser(&self, prompt: &[Token], card: &ModelCard) -> Option<Box<dyn OutputParser>> {
        card.forms.parser(&prompt_end(prompt, card), self.tools.clone())
    }
}

/// Returns the end of a prompt, which may say what its answer begins inside of.
fn prompt_end(prompt: &[Token], card: &ModelCard) -> String {
    let end = &prompt[prompt.len().saturating_sub(PROMPT_END_TOKENS)..];
    card.tokenizer.decode(end, SpecialTokens::Shown)
}

impl Options {
    /// Sets the grammar of the answers to `prompt`. `tools`: the field that tools are from. Errors: what the client has
    /// to fix.
    pub(crate) fn set_grammar(&mut self, tools: &str, prompt: &[Token], card: &ModelCard) -> Result<(), ApiError> {
        let none = OutputForms::default();
        let (forms, wanted) = match &self.output {
            Some(output) => (&card.forms, output.wanted()),
            None => (&none, Wanted::default()),
        };
        let prompt = (&*prompt_end(prompt, card), tools);
        self.grammar = asked(self.structure.as_ref(), wanted, forms, prompt, card)?;
        self.params.grammar = self.grammar.as_ref().map(|asked| asked.grammar.clone());
        Ok(())
    }
}

/// Takes an integer that is at least `least` and fits 32 bits.
pub(crate) fn at_least(fields: &mut Fields<'_>, field: &str, least: u32) -> Result<Option<u32>, ApiError> {
    let value = fields.integer(field, i64::from(least)..=i64::from(u32::MAX))?;
    Ok(value.map(|value| value as u32))
}

/// Takes the strings that end an answer: one, or several.
pub(crate) fn stop_strings(fields: &mut Fields<'_>, field: &str) -> Result<Vec<String>, ApiError> {
    let name = fields.name(field);
    let Some(raw) = fields.raw(field) else { return Ok(Vec::new()) };
    let field = &name;
    let stops: Vec<String> = match raw.get().as_bytes()[0] {
        b'"' => vec![typed(raw, field, "a string")?],
        _ => typed(raw, field, "a string or an array of strings")?,
    };
    if stops.len() > STOPS_MAX {
        return Err(ApiError::field(field, format!("'{field}' has {} strings; {STOPS_MAX} are allowed.", stops.len())));
    }
    if stops.iter().any(String::is_empty) {
        return Err(ApiError::field(
            field,
            format!("'{field}' has an empty string, which would end every answer at once."),
        ));
    }
    if stops.iter().any(|stop| stop.len() > STOP_BYTES_MAX) {
        return Err(ApiError::field(field, format!("A string of '{field}' is longer than {STOP_BYTES_MAX} bytes.")));
    }
    Ok(stops)
}

/// Checks that the model has all `tokens`.
pub(crate) fn in_vocabulary(tokens: &[Token], field: &str, card: &ModelCard) -> Result<(), ApiError> {
    match tokens.iter().find(|&&token| token >= card.shape.vocab) {
        None => Ok(()),
        Some(token) => {
            let message =
                format!("'{field}' has the token {token}; the model's tokens are below {}.", card.shape.vocab);
            Err(ApiError::field(field, message))
        }
    }
}

/// Checks that the request names the model of `card`.
pub(crate) fn model(fields: &mut Fields<'_>, card: &ModelCard) -> Result<(), ApiError> {
    let name = fields.string("model")?.ok_or_else(|| ApiError::missing("model"))?;
    if name == card.name { Ok(()) } else { Err(ApiError::no_model(&name, &card.name)) }
}

/// Reads the text of a message or of one of its parts.
pub(crate) fn text(raw: &RawValue, name: &str) -> Result<String, ApiError> {
    match raw.get().as_bytes()[0] {
        b'"' => typed(raw, name, "a string"),
        b'[' => {
            let parts: Vec<&RawValue> = typed(raw, name, "a string or an array of parts")?;
            let mut text = String::new();
            for (at, part) in parts.iter().enumerate() {
                text.push_str(&part_text(part, &format!("{name}[{at}]"))?);
            }
            Ok(text)
        }
        _ => Err(ApiError::field_type(
            name,
            format!("'{name}' must be a string or an array of parts, not {}.", sort(raw)),
        )),
    }
}

fn part_text(raw: &RawValue, name: &str) -> Result<String, ApiError> {
    let mut part = Fields::of_field(raw, name)?;
    let kind = part.string("type")?.ok_or_else(|| ApiError::missing(&part.name("type")))?;
    if kind != "text" {
        let message = format!("'{name}' is a part of type '{kind}'; this service takes text only.");
        return Err(ApiError::unsupported(name, message));
    }
    let text = part.string("text")?.ok_or_else(|| ApiError::missing(&part.name("text")))?;
    part.finish()?;
    Ok(text)
}
