//! Grammars: which tokens an output may go on with.
//!
//! A [`Grammar`] is compiled for the tokens of a model, and a [`Guide`] follows it along the tokens of one output. What
//! a guide says is a function of the grammar and of these tokens alone. So it is no state that moves with a sequence:
//! the same tokens give the same guide.
//!
//! The library is `llguidance`. Its costs are bounded by the constants here: a grammar beyond them is refused when it
//! is compiled, and an output that needs more fails alone.
//!
//! What is deliberately absent: forms of grammars that APIs have (the router's), and sampling (`sampling`).

mod guide;
#[cfg(test)]
mod tests;

pub use guide::{Guide, GuideError};

use crate::locks::lock;
use crate::text::Tokenizer;
use domain::Grammar;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex};

/// Compiled grammars that are kept. Above: the one that was not asked for longest is forgotten.
pub const COMPILED_MAX: usize = 64;
/// Bytes that they take together, as [`CompiledGrammar::bytes`] estimates them. Above: the same, but for the last one.
pub const COMPILED_BYTES_MAX: usize = 256 << 20;
/// Bytes that a compiled grammar is counted as for each byte of its text, next to the tables of its lexer.
const BYTES_PER_TEXT_BYTE: usize = 64;
/// States of a lexer, for one output. Beyond it the output fails. A state has one to two kilobytes.
pub const LEXER_STATES_MAX: usize = 16 << 10;
/// Work for the lexer of a grammar, about 50 units a microsecond. Beyond it the grammar is refused.
pub const COMPILE_FUEL: u64 = 1_000_000;
/// Symbols of a compiled grammar. Beyond it the grammar is refused.
pub const SYMBOLS_MAX: usize = 200_000;
/// Work for the lexer of one mask, about 14 units a microsecond. Beyond it the output fails.
pub const MASK_FUEL: u64 = 200_000;
/// Items of the parser for one mask, about 20 a microsecond. Beyond it the output fails.
pub const MASK_ITEMS_MAX: usize = 50_000;
/// Items of a row of the parser: in how many ways a text may go on. Beyond it the output fails.
pub const ROW_ITEMS_MAX: usize = 2000;
/// Stack of the thread that compiles: it is as deep as references of a grammar of the largest size are.
const COMPILE_STACK_BYTES: usize = 256 << 20;
/// Longest reason that is told.
const REASON_BYTES_MAX: usize = 600;

/// Compiles grammars for the tokens of a model, and keeps what it compiled. Any number of threads may use it.
pub struct Grammars {
    tokens: LazyLock<Tokens, Box<dyn FnOnce() -> Tokens + Send>>,
    compiled: Mutex<Compiled>,
    vocab: usize,
}

/// Compiled grammars by the hash of their text, the last asked for at the back.
#[derive(Default)]
struct Compiled {
    kept: VecDeque<([u8; 32], Arc<CompiledGrammar>)>,
    /// Bytes of those that are kept.
    bytes: usize,
}

/// The tokens of a model, as the library looks for them.
struct Tokens {
    factory: Result<ParserFactory, GrammarError>,
}

/// A grammar that was compiled for the tokens of a model.
pub struct CompiledGrammar {
    /// At the beginning of an output.
    begin: Mutex<Matcher>,
    /// Size of the model's vocabulary.
    vocab: usize,
    bytes: usize,
}

/// Why a text is no grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GrammarError(String);

impl Grammars {
    /// Makes one for a model with `vocab` tokens, of which `tokenizer` says what they spell. A token that it does not
    /// know is in no output. The first grammar takes longer, unless [`Self::prepare`] was called.
    pub fn new(tokenizer: &Tokenizer, vocab: usize) -> Self {
        let tokenizer = tokenizer.clone();
        let tokens: Box<dyn FnOnce() -> Tokens + Send> = Box::new(move || Tokens::of(&tokenizer, vocab));
        Self { tokens: LazyLock::new(tokens), compiled: Mutex::default(), vocab }
    }

    /// Returns the size of the model's vocabulary.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Does now what the first grammar would have to wait for.
    pub fn prepare(&self) {
        LazyLock::force(&self.tokens);
    }

    /// Returns the compiled grammar, of those that are kept or made now. Errors: it is none, or costs too much.
    pub fn compile(&self, grammar: &Grammar) -> Result<Arc<CompiledGrammar>, GrammarError> {
        if let Some(kept) = self.kept(grammar) {
            return Ok(kept);
        }
        let made = Arc::new(self.make(grammar)?);
        lock(&self.compiled).keep(hash(grammar), made.clone());
        Ok(made)
    }

    /// Returns the compiled grammar, if it is kept.
    pub fn kept(&self, grammar: &Grammar) -> Option<Arc<CompiledGrammar>> {
        lock(&self.compiled).get(&hash(grammar))
    }

    fn make(&self, grammar: &Grammar) -> Result<CompiledGrammar, GrammarError> {
        let tokens = &*self.tokens;
        let factory = tokens.factory.as_ref().map_err(GrammarError::clone)?;
        let make = || factory.create_parser(TopLevelGrammar::from_lark(grammar.text().to_owned()));
        let parser = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("grammar".to_owned()).stack_size(COMPILE_STACK_BYTES);
            let thread = thread.spawn_scoped(scope, make).map_err(|error| GrammarError(error.to_string()))?;
            let made = thread.join().map_err(|_| GrammarError("its compiler failed".to_owned()))?;
            made.map_err(|error| GrammarError(told(&format!("{error:#}"))))
        });
        let parser = parser?;
        let bytes = parser.parser.lexer_stats().num_bytes + BYTES_PER_TEXT_BYTE * grammar.text().len();
        let begin = Matcher::new(Ok(parser));
        match begin.get_error() {
            None => Ok(CompiledGrammar { begin: Mutex::new(begin), vocab: self.vocab, bytes }),
            Some(error) => Err(GrammarError(told(&error))),
        }
    }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grammars({} compiled)", lock(&self.compiled).kept.len())
    }
}

impl fmt::Debug for CompiledGrammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompiledGrammar")
    }
}

impl Compiled {
    fn get(&mut self, hash: &[u8; 32]) -> Option<Arc<CompiledGrammar>> {
        let at = self.kept.iter().position(|(kept, _)| kept == hash)?;
        let kept = self.kept.remove(at)?;
        let grammar = kept.1.clone();
        self.kept.push_back(kept);
        Some(grammar)
    }

    fn keep(&mut self, hash: [u8; 32], grammar: Arc<CompiledGrammar>) {
        if self.get(&hash).is_some() {
            // Another thread compiled it meanwhile.
            return;
        }
        self.bytes += grammar.bytes;
        self.kept.push_back((hash, grammar));
        while self.kept.len() > COMPILED_MAX || (self.bytes > COMPILED_BYTES_MAX && self.kept.len() > 1) {
            let Some((_, oldest)) = self.kept.pop_front() else { return };
            self.bytes -= oldest.bytes;
        }
    }
}

fn hash(grammar: &Grammar) -> [u8; 32] {
    *blake3::hash(grammar.text().as_bytes()).as_bytes()
}

impl CompiledGrammar {
    /// Returns about how many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns what follows an output from its beginning. It shares nothing with others, so that what it costs, and
    /// whether that is too much, depends on its own output alone.
    fn begin(&self) -> Matcher {
        lock(&self.begin).deep_clone()
    }
}

impl Tokens {
    fn of(tokenizer: &Tokenizer, vocab: usize) -> Self {
        let spelled = (0..vocab as u32).map(|token| {
            let bytes = tokenizer.token_bytes(token);
            // No text spells a special token. A grammar may name it.
            let mark: &[u8] = if tokenizer.is_special(token) { &[TokTrie::SPECIAL_TOKEN_MARKER] } else { &[] };
            [mark, bytes].concat()
        });
        // The library wants a token that ends an output. Which ones do is said by each request, so this one is behind
        // those of the model: it says in a mask that the output may end.
        // It has a name of its own: the marker alone would begin every special token, and be allowed with each.
        let end = [&[TokTrie::SPECIAL_TOKEN_MARKER], &b"end of the output"[..]].concat();
        let words: Vec<Vec<u8>> = spelled.chain([end]).collect();
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, vocab as u32), &words);
        let env: llguidance::toktrie::TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices).map(|mut factory| {
            factory.quiet();
            *factory.limits_mut() = ParserLimits {
                max_items_in_row: ROW_ITEMS_MAX,
                initial_lexer_fuel: COMPILE_FUEL,
                step_lexer_fuel: MASK_FUEL,
                step_max_items: MASK_ITEMS_MAX,
                max_lexer_states: LEXER_STATES_MAX,
                max_grammar_size: SYMBOLS_MAX,
                precompute_large_lexemes: false,
                verbose_errors: false,
            };
            factory
        });
        Self { factory: factory.map_err(|error| GrammarError(format!("{error:#}"))) }
    }
}

/// Returns the part of a reason that is told: its first line, without the excerpt behind it, within a bound.
fn told(reason: &str) -> String {
    let reason = reason.split('\n').next().unwrap_or(reason).trim();
    match reason.char_indices().find(|(at, _)| *at >= REASON_BYTES_MAX) {
        Some((at, _)) => format!("{} ...", &reason[..at]),
        None => reason.to_owned(),
    }
}
