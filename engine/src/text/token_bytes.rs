//! The bytes of every token, worked out once from the vocabulary and the `decoder` of tokenizer.json.
//!
//! With them the text of a sequence is the concatenation of its tokens' bytes, whatever the style of the tokenizer, and
//! one token costs a look-up. What is deliberately absent: decoders that join tokens by other rules than concatenation
//! (WordPiece, CTC); they are refused by name.

use domain::Token;
use serde::Deserialize;

/// The `decoder` of tokenizer.json, as far as it concatenates.
#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum Decoder {
    /// GPT-2's: every character of the vocabulary stands for a byte.
    ByteLevel {},
    /// `<0x0A>` stands for a byte.
    ByteFallback {},
    /// Joins all; nothing to do but that later ones see one text.
    Fuse {},
    /// Several, one after the other.
    Sequence {
        /// In order.
        decoders: Vec<Decoder>,
    },
    /// Replaces text inside tokens.
    Replace {
        /// The text that is replaced.
        pattern: Pattern,
        /// The text that takes its place.
        content: String,
    },
    /// Strips a character at the ends.
    Strip {
        /// The character.
        content: char,
        /// How many at the beginning, at most.
        start: usize,
        /// How many at the end, at most.
        stop: usize,
    },
    /// SentencePiece's mark for a space.
    Metaspace {
        /// The mark.
        replacement: char,
        /// Whether encoding put a mark before the text.
        #[serde(default)]
        prepend_scheme: PrependScheme,
        /// The older spelling of the same.
        add_prefix_space: Option<bool>,
    },
}

/// What `Replace` looks for.
#[derive(Deserialize)]
pub(super) enum Pattern {
    /// A plain text.
    String(String),
    /// A regular expression, which no decoder known needs.
    Regex(String),
}

/// Where `Metaspace` puts a mark before a text.
#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum PrependScheme {
    /// Before the first part.
    First,
    /// Nowhere.
    Never,
    /// Before each part.
    #[default]
    Always,
}

/// What happens at the beginning of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Nothing.
    AsIs,
    /// Up to `count` leading `byte`s of the text are dropped.
    Strip {
        /// An ASCII character.
        byte: u8,
        /// How many at most.
        count: usize,
    },
    /// All spaces of the first token are dropped.
    NoSpaceInFirst,
}

/// What joins tokens where tokenizer.json has no decoder.
///
/// Source: the crate `tokenizers`, `TokenizerImpl::decode`.
const JOINT: u8 = b' ';

/// The bytes of all tokens.
#[derive(Debug)]
pub(super) struct TokenBytes {
    bytes: Vec<u8>,
    /// Where in `bytes` each token's end.
    ends: Vec<u32>,
    special: Vec<bool>,
    /// What happens at the beginning of a text.
    pub(super) beginning: Beginning,
}

/// The decoder of tokenizer.json does not give each token bytes of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecoderError {
    /// It replaces by a regular expression.
    #[error("its decoder replaces the regular expression {regex:?}, which is not supported")]
    Regex {
        /// The expression.
        regex: String,
    },
    /// Its stages come in an order in which decoding is not concatenation.
    #[error("its decoders are combined in a way that is not supported")]
    Order,
    /// The bytes of all tokens have no room.
    #[error("the vocabulary is over 4 GiB")]
    TooLarge,
}

/// A token on its way through the decoders.
enum Decoding {
    Text(String),
    Bytes(Vec<u8>),
}

impl TokenBytes {
    /// From the vocabulary (token, text, special) and the decoder; without one, tokens are joined by spaces.
    /// Errors: the decoder is not supported.
    pub(super) fn new(vocab: &[(Token, String, bool)], decoder: Option<&Decoder>) -> Result<Self, DecoderError> {
        let mut stages = Vec::new();
        let beginning = match decoder {
            Some(decoder) => {
                flatten(decoder, &mut stages);
                check(&stages)?
            }
            // The joint before the first token.
            None => Beginning::Strip { byte: JOINT, count: 1 },
        };
        let size = vocab.iter().map(|entry| entry.0 as usize + 1).max().unwrap_or(0);
        let mut by_token: Vec<Option<&(Token, String, bool)>> = vec![None; size];
        vocab.iter().for_each(|entry| by_token[entry.0 as usize] = Some(entry));
        let mut all =
            Self { bytes: Vec::new(), ends: Vec::with_capacity(size), special: Vec::with_capacity(size), beginning };
        for entry in by_token {
            if let Some((_, text, special)) = entry {
                all.bytes.extend(decoder.is_none().then_some(JOINT));
                let stages = if *special { &[][..] } else { &stages[..] };
                all.bytes.extend(bytes_of(text, stages));
            }
            all.ends.push(u32::try_from(all.bytes.len()).map_err(|_| DecoderError::TooLarge)?);
            all.special.push(entry.is_some_and(|entry| entry.2));
        }
        Ok(all)
    }

    /// One more than the highest token.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the bytes of `token`; none where there is no such token.
    pub(super) fn bytes(&self, token: Token) -> &[u8] {
        let index = token as usize;
        let Some(&end) = self.ends.get(index) else { return &[] };
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[begin as usize..end as usize]
    }

    /// Returns whether `token` is special.
    pub(super) fn is_special(&self, token: Token) -> bool {
        self.special.get(token as usize).copied().unwrap_or(false)
    }
}

/// The decoders in order, without nesting.
fn flatten<'a>(decoder: &'a Decoder, stages: &mut Vec<&'a Decoder>) {
    match decoder {
        Decoder::Sequence { decoders } => decoders.iter().for_each(|decoder| flatten(decoder, stages)),
        other => stages.push(other),
    }
}

/// Refuses orders in which decoding would not be concatenation; else says what happens at the beginning.
fn check(stages: &[&Decoder]) -> Result<Beginning, DecoderError> {
    let mut beginning = Beginning::AsIs;
    let (mut bytes, mut fused) = (false, false);
    for stage in stages {
        match stage {
            Decoder::Fuse {} => fused = true,
            Decoder::ByteLevel {} if !bytes && !fused => (bytes, fused) = (true, true),
            Decoder::ByteFallback {} if !bytes && !fused => bytes = true,
            Decoder::Replace { pattern: Pattern::String(_), .. } if !bytes && !fused => {}
            Decoder::Replace { pattern: Pattern::Regex(regex), .. } => {
                return Err(DecoderError::Regex { regex: regex.clone() });
            }
            Decoder::Metaspace { prepend_scheme, add_prefix_space, .. } if !bytes && !fused => {
                if *prepend_scheme != PrependScheme::Never && *add_prefix_space != Some(false) {
                    beginning = Beginning::NoSpaceInFirst;
                }
            }
            Decoder::Strip { content, start, stop: 0 } if fused && content.is_ascii() => {
                beginning = Beginning::Strip { byte: *content as u8, count: *start };
            }
            _ => return Err(DecoderError::Order),
        }
    }
    Ok(beginning)
}

/// Returns the bytes of the token written `text`.
fn bytes_of(text: &str, stages: &[&Decoder]) -> Vec<u8> {
    let mut decoding = Decoding::Text(text.to_owned());
    for stage in stages {
        let Decoding::Text(text) = &decoding else { break };
        let next = match stage {
            Decoder::ByteLevel {} => Decoding::Bytes(byte_level(text)),
            Decoder::ByteFallback {} => match fallback_byte(text) {
                Some(byte) => Decoding::Bytes(vec![byte]),
                None => continue,
            },
            Decoder::Replace { pattern: Pattern::String(pattern), content } => {
                Decoding::Text(text.replace(pattern.as_str(), content))
            }
            Decoder::Metaspace { replacement, .. } => Decoding::Text(text.replace(*replacement, " ")),
            _ => continue,
        };
        decoding = next;
    }
    match decoding {
        Decoding::Text(text) => text.into_bytes(),
        Decoding::Bytes(bytes) => bytes,
    }
}

/// The byte that `<0x0A>` stands for.
fn fallback_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// The bytes that the characters of `text` stand for, or, where one stands for none, its own.
///
/// Source: `bytes_to_unicode` of GPT-2's encoder.py: printable bytes are written as themselves, the others as the
/// characters from U+0100 on.
fn byte_level(text: &str) -> Vec<u8> {
    let printable = |c: u32| matches!(c, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let byte = |c: char| match u32::from(c) {
        c if printable(c) => Some(c as u8),
        c => (0..=255).filter(|&byte| !printable(u32::from(byte))).nth((c.checked_sub(0x100)?) as usize),
    };
    text.chars().map(byte).collect::<Option<Vec<u8>>>().unwrap_or_else(|| text.as_bytes().to_vec())
}
