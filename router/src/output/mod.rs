//! What models write, taken apart: text, reasoning and calls of tools.
//!
//! Models write calls and reasoning as text in a form that they were trained on. A parser reads one such form while
//! the text streams. [`OutputForms`] says which forms a model has, and chains their parsers: reasoning first, then
//! calls in the text that is left.
//!
//! - A parser holds back only what may be the beginning of a call, within a bound. Arguments pass as they come.
//! - Text that turns out to be no call comes out as text. Nothing but markers, the ids that some forms give to calls,
//!   and white space next to markers is left out.
//! - A call ends with its JSON. A call that is cut off ends with the answer.
//!
//! What is deliberately absent: tokens, and the ids and indexes of calls, which are the API's.

mod chain;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod checks;
mod deepseek;
mod form;
mod harmony;
mod held;
mod hermes;
mod json;
mod json_calls;
mod json_text;
mod llama3_json;
mod marked_json;
mod mistral;
mod part;
mod python;
mod pythonic;
mod qwen3_coder;
mod table;
mod thinking;
mod tools;

pub(crate) use part::{OutputParser, Part, add};
pub use table::{OutputForms, UnknownForm};
pub(crate) use tools::Tools;

#[cfg(test)]
mod tests;
