//! `POST /v1/completions`.

use super::completion_writer::CompletionWriter;
use super::options;
use crate::answer::Writer;
use crate::api::{Best, Fields, Limits, Options, ParsedRequest, at_least, in_vocabulary, model, sort, typed};
use crate::config::ModelCard;
use crate::dialects::{Dialect, Head};
use crate::error::ApiError;
use domain::{RequestId, Token};
use engine::text::SpecialTokens;
use serde_json::json;
use serde_json::value::RawValue;

/// Most alternatives per token in a completion's log probabilities.
const LOGPROBS_MAX: i64 = 5;

/// Tokens of an answer if the request has no limit, as in OpenAI's API.
const MAX_TOKENS_DEFAULT: u32 = 16;

/// Most bytes of prompts that all choices of an answer begin with, together.
const ECHO_BYTES_MAX: usize = 16 << 20;

/// The field that holds the prompts.
const PROMPT: &str = "prompt";

/// Completions.
#[derive(Debug)]
pub(crate) struct Completion;

impl Dialect for Completion {
    fn path(&self) -> &'static str {
        "/v1/completions"
    }

    fn operation(&self) -> &'static str {
        "text_completion"
    }

    fn prompt_field(&self) -> &'static str {
        PROMPT
    }

    fn answer_id(&self, id: RequestId) -> String {
        format!("cmpl-{:016x}", id.0)
    }

    fn has_tokens(&self, body: &[u8]) -> bool {
        let prompt = Fields::of_body(body).ok().and_then(|mut fields| fields.raw(PROMPT));
        prompt.is_some_and(|raw| {
            let mut head = raw.get().bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'[');
            head.next().is_some_and(|byte| byte.is_ascii_digit())
        })
    }

    fn parse(
        &self,
        mut fields: Fields<'_>,
        card: &ModelCard,
        limits: &Limits,
    ) -> Result<(Vec<Vec<Token>>, Options), ApiError> {
        model(&mut fields, card)?;
        let prompt = fields.required(PROMPT)?;
        let echoes = fields.flag("echo")?.unwrap_or(false);
        // A client that gets its prompt back may ask for nothing behind it.
        let least = if echoes { 0 } else { 1 };
        let max_tokens = at_least(&mut fields, "max_tokens", least)?.or(Some(MAX_TOKENS_DEFAULT));
        let logprobs = fields.integer("logprobs", 0..=LOGPROBS_MAX)?.map(|top| top as u32);
        if echoes && logprobs.is_some() {
            let message = "'echo' with 'logprobs' asks for those of the prompt, which this service does not tell.";
            return Err(ApiError::unsupported("logprobs", message));
        }
        let mut options = options::take(&mut fields, card, limits, max_tokens, logprobs)?;
        best_of(&mut fields, &mut options, limits)?;
        let adds_special = fields.flag("add_special_tokens")?.unwrap_or(true);
        fields.neutral("suffix", &[json!("")])?;
        fields.finish()?;
        let (prompts, texts) = prompts(prompt, adds_special, card, limits)?;
        if echoes {
            options.echo = echo(&prompts, texts, options.choices, card)?;
        }
        options.goes_on = true;
        options.set_grammar(PROMPT, &[], card)?;
        Ok((prompts, options))
    }

    fn writer(&self, head: Head, asked: &ParsedRequest, card: &ModelCard) -> Box<dyn Writer> {
        Box::new(CompletionWriter::new(head, asked, card))
    }

    fn error(&self, error: &ApiError, _request: RequestId) -> Vec<u8> {
        super::error(error)
    }
}

/// Returns what the answers to `prompts` begin with: their `texts`, or those of their tokens.
fn echo(prompts: &[Vec<Token>], texts: Vec<String>, choices: u16, card: &ModelCard) -> Result<Vec<String>, ApiError> {
    let named = |tokens: &Vec<Token>| card.tokenizer.decode(tokens, SpecialTokens::Shown);
    let texts = if texts.is_empty() { prompts.iter().map(named).collect() } else { texts };
    let bytes = usize::from(choices) * texts.iter().map(String::len).sum::<usize>();
    if bytes <= ECHO_BYTES_MAX {
        return Ok(texts);
    }
    let message = format!("'echo' asks for {bytes} bytes of prompts in all choices; {ECHO_BYTES_MAX} are allowed.");
    Err(ApiError::field("echo", message))
}

/// Takes `best_of`: of how many sequences of a prompt the most probable `n` are told.
fn best_of(fields: &mut Fields<'_>, options: &mut Options, limits: &Limits) -> Result<(), ApiError> {
    const BEST_OF: &str = "best_of";
    let Some(of) = fields.integer(BEST_OF, 1..=i64::from(limits.choices_max))? else { return Ok(()) };
    let (of, told) = (of as u16, options.choices);
    if of < told {
        return Err(ApiError::field(BEST_OF, format!("'{BEST_OF}' ({of}) must not be below 'n' ({told}).")));
    }
    if of == told {
        return Ok(());
    }
    if options.stream {
        let message = format!("'{BEST_OF}' above 'n' cannot be streamed: what is told is known at the end.");
        return Err(ApiError::field(BEST_OF, message));
    }
    let tells_logprobs = options.params.logprobs.is_some();
    options.params.logprobs.get_or_insert(0);
    options.best = Some(Best { choices: told, tells_logprobs });
    options.choices = of;
    Ok(())
}

/// Reads the tokens of the field `prompt`: a text, tokens, or several of either. Returns also the texts, where they
/// are texts.
fn prompts(
    raw: &RawValue,
    adds_special: bool,
    card: &ModelCard,
    limits: &Limits,
) -> Result<(Vec<Vec<Token>>, Vec<String>), ApiError> {
    const WANTED: &str = "a string, an array of strings, an array of token ids, or an array of such arrays";
    let encode = |text: &String| {
        let tokens = card.tokenizer.encode(text, adds_special);
        tokens.map_err(|error| ApiError::internal(format!("The tokenizer failed: {error}")))
    };
    // The kind is in the first characters, so that each is read straight into what it is.
    let mut head = raw.get().bytes().filter(|byte| !byte.is_ascii_whitespace());
    let mut texts: Vec<String> = Vec::new();
    let tokens = match (head.next(), head.next()) {
        (Some(b'"'), _) => {
            texts = vec![typed(raw, PROMPT, WANTED)?];
            vec![encode(&texts[0])?]
        }
        (Some(b'['), Some(b']')) => return Err(ApiError::field(PROMPT, "'prompt' is empty.")),
        (Some(b'['), Some(b'"')) => {
            texts = typed(raw, PROMPT, WANTED)?;
            fits_batch(texts.len(), limits)?;
            texts.iter().map(encode).collect::<Result<_, _>>()?
        }
        (Some(b'['), Some(b'[')) => {
            let batch: Vec<Vec<Token>> = typed(raw, PROMPT, WANTED)?;
            fits_batch(batch.len(), limits)?;
            batch
        }
        (Some(b'['), Some(_)) => vec![typed(raw, PROMPT, WANTED)?],
        _ => return Err(ApiError::field_type(PROMPT, format!("'{PROMPT}' must be {WANTED}, not {}.", sort(raw)))),
    };
    for prompt in &tokens {
        if prompt.is_empty() {
            return Err(ApiError::field(PROMPT, "'prompt' is empty; there must be at least one token."));
        }
        in_vocabulary(prompt, PROMPT, card)?;
    }
    Ok((tokens, texts))
}

fn fits_batch(prompts: usize, limits: &Limits) -> Result<(), ApiError> {
    let most = limits.prompts_max;
    if prompts <= most {
        return Ok(());
    }
    Err(ApiError::field("prompt", format!("'prompt' has {prompts} prompts; {most} are allowed in one request.")))
}
