//! Chat templates as Hugging Face means them: `trim_blocks` and `lstrip_blocks`, Python's methods on values, and the
//! functions and filters that transformers adds (`chat_template_utils.py`, `_cached_compile_jinja_template`).
//!
//! What is deliberately absent: the shapes of messages. They reach the template as the client wrote them.

mod json;
pub(super) mod strftime;
#[cfg(test)]
pub(super) mod tests;

use super::config::{TextConfig, TextConfigError, read_text};
use super::gguf;
use crate::checkpoint::gguf::{GgufError, GgufFile};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value as Jinja};
use minijinja::{Environment, ErrorKind};
use minijinja_contrib::pycompat;
use serde_json::{Map, Value};
use std::error::Error as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fmt, fs, io};

/// The template that renders a chat unless another is asked for.
const DEFAULT: &str = "default";
/// The template that renders a chat with tools, where a model keeps one apart.
const TOOL_USE: &str = "tool_use";

/// Variables that say what the messages and the special tokens are, and how the prompt ends: a client's variables
/// cannot take their place.
pub const RESERVED: [&str; 17] = [
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "tokenize",
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
    "additional_special_tokens",
    "raise_exception",
    "strftime_now",
];

/// Marks the end of a message that is left open. The space tells whether the template trims messages.
///
/// Source: Hugging Face transformers, `chat_template_utils.py`, `render_jinja_template`.
const OPEN_END: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// How the prompt of a chat ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PromptEnd {
    /// With the last message.
    Message,
    /// With the beginning of an answer: `add_generation_prompt`.
    Answer,
    /// Inside of the last message, which the answer goes on with: `continue_final_message`.
    OpenMessage,
}

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// Special tokens by name: variables of the template.
    special: Map<String, Value>,
}

/// Why a chat cannot become a prompt.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template itself refuses these messages: the client's mistake, in the template's words.
    #[error("{0}")]
    Raised(String),
    /// The template fails on these messages: most often since they have a shape that it does not expect.
    #[error("the chat template cannot render these messages: {0}")]
    Render(#[source] minijinja::Error),
    /// The last message was to be left open, and the prompt does not show where it ends.
    #[error("the chat template does not show the last message, so that nothing can go on with it")]
    NoOpenEnd,
    /// A file cannot be read, or the template is not valid.
    #[error("the chat template cannot be used: {0}")]
    Invalid(#[source] InvalidTemplate),
}

/// What is wrong with the files of a chat template.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTemplate {
    /// The GGUF file cannot be used.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A file of the model directory cannot be used.
    #[error(transparent)]
    Config(#[from] TextConfigError),
    /// The folder of further templates cannot be listed.
    #[error("additional_chat_templates: {0}")]
    Folder(#[source] io::Error),
    /// `chat_template` has another type.
    #[error("chat_template is neither a string nor a list")]
    NoTemplate,
    /// An entry of the list `chat_template` lacks a field.
    #[error("chat_template: an entry without name or template")]
    Entry,
    /// A template is no Jinja.
    #[error("{name}: {source:#}")]
    Syntax {
        /// The template's name.
        name: String,
        /// Where it goes wrong.
        source: minijinja::Error,
    },
    /// There are named templates, and none that renders a chat without tools.
    #[error("none is named {DEFAULT:?}")]
    NoDefault,
}

/// What a template gave to `raise_exception`: the source by which such an error is told from others.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

impl ChatTemplate {
    /// Opens the template of a GGUF file or of a model directory: chat_template.jinja (with those in
    /// `additional_chat_templates`), else `chat_template` of tokenizer_config.json or chat_template.json, a string or a
    /// list of named ones.
    /// `None`: it has none. Errors: [`TemplateError::Invalid`].
    pub fn open(path: &Path) -> Result<Option<ChatTemplate>, TemplateError> {
        Self::read(path).map_err(TemplateError::Invalid)
    }

    fn read(path: &Path) -> Result<Option<ChatTemplate>, InvalidTemplate> {
        let (templates, special) = if GgufFile::is_at(path) {
            let config = gguf::read_template(path)?;
            (configured_templates(config.chat_template)?, config.named)
        } else {
            let config = TextConfig::open(path)?;
            (templates_of(path, config.chat_template)?, config.named)
        };
        if templates.is_empty() { Ok(None) } else { Self::build(templates, special).map(Some) }
    }

    /// Returns the prompt for `messages`. `extra` holds more variables (`tools`, `enable_thinking`, ...); it may
    /// replace special tokens, but not `messages` and `add_generation_prompt`. Errors: [`TemplateError::Raised`],
    /// [`TemplateError::Render`], [`TemplateError::NoOpenEnd`].
    pub fn render(
        &self,
        messages: &[Value],
        end: PromptEnd,
        extra: &Map<String, Value>,
    ) -> Result<String, TemplateError> {
        // Those that transformers always defines come first, so that `extra` may say more.
        let none = ["tools", "documents"].map(|name| (name.to_owned(), Value::Null));
        let mut variables: Map<String, Value> = none.into_iter().chain(self.special.clone()).collect();
        variables.extend(extra.clone());
        let mut messages = messages.to_vec();
        if end == PromptEnd::OpenMessage {
            mark_end(messages.last_mut()).ok_or(TemplateError::NoOpenEnd)?;
        }
        variables.insert("messages".to_owned(), Value::from(messages));
        variables.insert("add_generation_prompt".to_owned(), Value::from(end == PromptEnd::Answer));
        let name = if variables["tools"].is_null() { DEFAULT } else { TOOL_USE };
        let template = self.environment.get_template(name).or_else(|_| self.environment.get_template(DEFAULT));
        let text = template.and_then(|template| template.render(Serde(&variables))).map_err(classify)?;
        if end == PromptEnd::OpenMessage { until_mark(text).ok_or(TemplateError::NoOpenEnd) } else { Ok(text) }
    }

    /// Returns whether one of the model's templates has `text` in its source.
    pub fn has(&self, text: &str) -> bool {
        self.environment.templates().any(|(_, template)| template.source().contains(text))
    }

    /// From templates by name, and special tokens by name.
    fn build(templates: Vec<(String, String)>, special: Map<String, Value>) -> Result<Self, InvalidTemplate> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.expect("the delimiters are Jinja's own"));
        environment.set_unknown_method_callback(pycompat::unknown_method_callback);
        environment.add_filter("tojson", tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        for (name, source) in templates {
            let source = without_generation_tags(&source);
            environment
                .add_template_owned(name.clone(), source)
                .map_err(|source| InvalidTemplate::Syntax { name, source })?;
        }
        if environment.get_template(DEFAULT).is_err() {
            return Err(InvalidTemplate::NoDefault);
        }
        Ok(Self { environment, special })
    }
}

/// Puts [`OPEN_END`] behind the text of a message; `None`: it has none.
fn mark_end(message: Option<&mut Value>) -> Option<()> {
    let content = message?.get_mut("content")?;
    *content = Value::from(format!("{}{OPEN_END}", content.as_str()?));
    Some(())
}

/// Returns what of a prompt comes before [`OPEN_END`]. Where the template trims messages, so is the end.
fn until_mark(mut prompt: String) -> Option<String> {
    let end = prompt.rfind(OPEN_END.trim_end())?;
    let is_trimmed = !prompt[end..].starts_with(OPEN_END);
    prompt.truncate(if is_trimmed { prompt[..end].trim_end().len() } else { end });
    Some(prompt)
}

/// Returns the templates of the model directory `dir`, by name. `configured`: what tokenizer_config.json says.
fn templates_of(dir: &Path, configured: Option<Value>) -> Result<Vec<(String, String)>, InvalidTemplate> {
    if let Some(source) = read_text(&dir.join("chat_template.jinja"))? {
        let mut templates = vec![(DEFAULT.to_owned(), source)];
        let Ok(files) = fs::read_dir(dir.join("additional_chat_templates")) else { return Ok(templates) };
        for file in files {
            let path = file.map_err(InvalidTemplate::Folder)?.path();
            if let (Some("jinja"), Some(name)) =
                (path.extension().and_then(|e| e.to_str()), path.file_stem().and_then(|n| n.to_str()))
            {
                templates.extend(read_text(&path)?.map(|source| (name.to_owned(), source)));
            }
        }
        return Ok(templates);
    }
    configured_templates(configured)
}

/// The templates that `chat_template` holds, by name.
fn configured_templates(configured: Option<Value>) -> Result<Vec<(String, String)>, InvalidTemplate> {
    let named = |entry: &Value| {
        let text = |key| Some(entry.get(key)?.as_str()?.to_owned());
        text("name").zip(text("template")).ok_or(InvalidTemplate::Entry)
    };
    match configured {
        None => Ok(Vec::new()),
        Some(Value::String(source)) => Ok(vec![(DEFAULT.to_owned(), source)]),
        Some(Value::Array(entries)) => entries.iter().map(named).collect(),
        Some(_) => Err(InvalidTemplate::NoTemplate),
    }
}

/// Tells what the template raised from what went wrong in it.
fn classify(error: minijinja::Error) -> TemplateError {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return TemplateError::Raised(message.clone());
        }
        source = cause.source();
    }
    TemplateError::Render(error)
}

fn raise_exception(message: String) -> Result<Jinja, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// The time now in UTC, which is what a server's clock is best set to.
#[expect(clippy::disallowed_methods, reason = "the date in a prompt is the wall clock's")]
fn strftime_now(format: &str) -> Result<String, minijinja::Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let refused =
        |error: strftime::StrftimeError| minijinja::Error::new(ErrorKind::InvalidOperation, error.to_string());
    strftime::strftime(format, now).map_err(refused)
}

fn tojson(value: &Jinja, options: Kwargs) -> Result<String, minijinja::Error> {
    let invalid = |message: String| minijinja::Error::new(ErrorKind::InvalidOperation, message);
    let separators: Option<Vec<String>> = options.get("separators")?;
    let style = json::Style {
        indent: options.get("indent")?,
        separators: match separators.as_deref() {
            None => None,
            Some([item, key]) => Some((item.clone(), key.clone())),
            Some(_) => return Err(invalid("tojson: separators are two strings".to_owned())),
        },
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    if value.is_undefined() {
        return Err(invalid("tojson: the value is undefined".to_owned()));
    }
    let value = serde_json::to_value(value).map_err(|error| invalid(format!("tojson: {error}")))?;
    Ok(json::dumps(&value, &style))
}

/// `source` with `{% generation %}`, by which transformers marks answers for training, as a plain block. The
/// whitespace around it is treated as before.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open + 2);
        out += before;
        rest = tag;
        let Some(close) = tag.find("%}") else { break };
        let inner = &tag[..close];
        let name = inner.trim_matches(['-', '+']).trim();
        let plain = match name {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => continue,
        };
        out += &inner.replace(name, plain);
        rest = &tag[close..];
    }
    out + rest
}
