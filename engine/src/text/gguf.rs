//! The tokenizer and the chat template of a GGUF file, as the files of a Hugging Face directory would say them.
//!
//! Two kinds of tokenizers are read: `gpt2`, byte-level BPE with a list of merges, and `llama`, SentencePiece's
//! BPE, where pieces have scores. What is deliberately absent: tokenizing; that is [`super::tokenizer`]'s, with
//! what is made here.

use super::config::TextConfig;
use crate::checkpoint::gguf::{GgufError, GgufFile};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::Path;

/// Types of tokens, as `tokenizer.ggml.token_type` counts them.
mod kind {
    pub(super) const NORMAL: i64 = 1;
    pub(super) const UNKNOWN: i64 = 2;
    pub(super) const CONTROL: i64 = 3;
    pub(super) const USER_DEFINED: i64 = 4;
}

/// SentencePiece's mark for a space.
const SPACE: &str = "▁";

/// How a byte-level tokenizer cuts a text before its merges.
enum Cut {
    /// By GPT-2's expression.
    Gpt2,
    /// By GPT-2's expression, and every digit alone.
    Digits,
    /// By this expression.
    By(&'static str),
}

/// Llama 3's expression, which is GPT-4's.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen's, with single digits.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// GPT-4o's.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Mistral's.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Values of `tokenizer.ggml.pre` and how they cut.
///
/// Source: the expressions of the models' own tokenizer.json, which llama.cpp quotes in `src/llama-vocab.cpp`.
const CUTS: [(&str, Cut); 17] = [
    ("gpt-2", Cut::Gpt2),
    ("olmo", Cut::Gpt2),
    ("llama-bpe", Cut::By(LLAMA3)),
    ("llama3", Cut::By(LLAMA3)),
    ("llama-v3", Cut::By(LLAMA3)),
    ("dbrx", Cut::By(LLAMA3)),
    ("smaug-bpe", Cut::By(LLAMA3)),
    ("pixtral", Cut::By(LLAMA3)),
    ("qwen2", Cut::By(QWEN2)),
    ("deepseek-r1-qwen", Cut::By(QWEN2)),
    ("gpt-4o", Cut::By(GPT4O)),
    ("llama4", Cut::By(GPT4O)),
    ("tekken", Cut::By(TEKKEN)),
    ("refact", Cut::Digits),
    ("starcoder", Cut::Digits),
    ("smollm", Cut::Digits),
    ("command-r", Cut::Digits),
];
/// Those of them whose tokens are taken whole where a part of a text is one, before any merge, and that begin a
/// text with BOS where the file does not say.
const WHOLE_FIRST: [&str; 5] = ["llama-bpe", "llama3", "llama-v3", "pixtral", "tekken"];

/// Returns what the file at `path` says of text: tokenizer.json, and what its companions would say.
pub(super) fn read(path: &Path) -> Result<(Value, TextConfig), GgufError> {
    let file = GgufFile::open(path)?;
    let vocabulary = Vocabulary::read(&file)?;
    let tokenizer = match vocabulary.model {
        "gpt2" => vocabulary.byte_level()?,
        "llama" => vocabulary.sentence_piece()?,
        other => return Err(file.value_error("tokenizer.ggml.model", format!("{other:?}"), "gpt2 or llama")),
    };
    Ok((tokenizer, vocabulary.config()?))
}

/// Returns the chat template of the file at `path` and its companions, without the tokenizer.
pub(super) fn read_template(path: &Path) -> Result<TextConfig, GgufError> {
    Vocabulary::read(&GgufFile::open(path)?)?.config()
}

/// The tokens of a file.
struct Vocabulary<'a> {
    file: &'a GgufFile,
    model: &'a str,
    tokens: &'a [String],
    /// Type of each token.
    kinds: Vec<i64>,
}

impl<'a> Vocabulary<'a> {
    fn read(file: &'a GgufFile) -> Result<Self, GgufError> {
        let key = "tokenizer.ggml.tokens";
        let tokens = file.texts(key)?.ok_or_else(|| file.missing(key))?;
        let kinds = match file.integers("tokenizer.ggml.token_type")? {
            Some(kinds) if kinds.len() != tokens.len() => {
                let expected = format!("{} numbers, one for each token", tokens.len());
                return Err(file.value_error(
                    "tokenizer.ggml.token_type",
                    format!("{} numbers", kinds.len()),
                    expected,
                ));
            }
            Some(kinds) => kinds.to_vec(),
            None => vec![kind::NORMAL; tokens.len()],
        };
        let model = file.text("tokenizer.ggml.model")?.ok_or_else(|| file.missing("tokenizer.ggml.model"))?;
        Ok(Self { file, model, tokens, kinds })
    }

    /// tokenizer.json of byte-level BPE.
    fn byte_level(&self) -> Result<Value, GgufError> {
        let pre = self.pre()?;
        let cut = CUTS.iter().find(|(name, _)| *name == pre).map(|(_, cut)| cut);
        let cut = cut.ok_or_else(|| {
            let known = CUTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            self.file.value_error("tokenizer.ggml.pre", format!("{pre:?}"), format!("one of {known}"))
        })?;
        let byte_level = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
        let sequence = |first: Value, regex| json!({"type": "Sequence", "pretokenizers": [first, byte_level(regex)]});
        let pre_tokenizer = match cut {
            Cut::Gpt2 => byte_level(true),
            Cut::Digits => sequence(json!({"type": "Digits", "individual_digits": true}), true),
            Cut::By(expression) => {
                let pattern = json!({"Regex": expression});
                sequence(json!({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false}), false)
            }
        };
        let normalizer = if pre == "qwen2" { json!({"type": "NFC"}) } else { Value::Null };
        let merges = self.file.texts("tokenizer.ggml.merges")?.unwrap_or(&[]);
        let mut merged = Vec::with_capacity(merges.len());
        for merge in merges {
            // Neither part is empty, and the second may hold no space: a space is written as another character.
            let parts = merge.split_once(' ').filter(|(left, right)| !left.is_empty() && !right.is_empty());
            let (left, right) = parts
                .ok_or_else(|| self.file.value_error("tokenizer.ggml.merges", format!("{merge:?}"), "two parts"))?;
            merged.push(json!([left, right]));
        }
        let model = json!({"ignore_merges": WHOLE_FIRST.contains(&pre), "merges": merged});
        let decoder = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        Ok(self.tokenizer(normalizer, pre_tokenizer, decoder, model))
    }

    /// tokenizer.json of SentencePiece's BPE.
    fn sentence_piece(&self) -> Result<Value, GgufError> {
        let key = "tokenizer.ggml.scores";
        let scores = self.file.numbers(key)?.ok_or_else(|| self.file.missing(key))?;
        if scores.len() != self.tokens.len() {
            let expected = format!("{} numbers, one for each token", self.tokens.len());
            return Err(self.file.value_error(key, format!("{} numbers", scores.len()), expected));
        }
        let unknown = self.special("unknown")?.or_else(|| self.kinds.iter().position(|kind| *kind == kind::UNKNOWN));
        let prefix = self.file.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        let marks = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
        let spaces = json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "});
        let (fallback, fuse) = (json!({"type": "ByteFallback"}), json!({"type": "Fuse"}));
        let (normalizers, decoders) = if prefix {
            let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
            (vec![json!({"type": "Prepend", "prepend": SPACE}), marks], vec![spaces, fallback, fuse, strip])
        } else {
            (vec![marks], vec![spaces, fallback, fuse])
        };
        let model = json!({
            "byte_fallback": true,
            "fuse_unk": true,
            "unk_token": unknown.map(|token| self.tokens[token].as_str()),
            "ignore_merges": false,
            "merges": self.merges(scores),
        });
        let normalizer = json!({"type": "Sequence", "normalizers": normalizers});
        Ok(self.tokenizer(normalizer, Value::Null, json!({"type": "Sequence", "decoders": decoders}), model))
    }

    /// Returns the pairs of pieces that make a piece, those of the best score first: what SentencePiece merges in this
    /// order.
    ///
    /// Source: Hugging Face transformers, `convert_slow_tokenizer.py`, `generate_merges`.
    fn merges(&self, scores: &[f64]) -> Vec<Value> {
        let ids: HashMap<&str, usize> = self.tokens.iter().enumerate().map(|(id, text)| (text.as_str(), id)).collect();
        let mut merges = Vec::new();
        for (id, text) in self.tokens.iter().enumerate().filter(|(id, _)| self.kinds[*id] == kind::NORMAL) {
            let cuts = text.char_indices().skip(1).map(|(at, _)| text.split_at(at));
            let mut pairs: Vec<_> =
                cuts.filter_map(|(left, right)| Some(((*ids.get(left)?, *ids.get(right)?), (left, right)))).collect();
            pairs.sort_by_key(|(ids, _)| *ids);
            merges.extend(pairs.into_iter().map(|(_, pair)| (scores[id], pair)));
        }
        let length = |text: &str| text.chars().count();
        let order = |(score, (left, right)): &(f64, (&str, &str))| (*score, length(left), length(right));
        merges.sort_by(|a, b| {
            let (a, b) = (order(a), order(b));
            b.0.total_cmp(&a.0).then((b.1, b.2).cmp(&(a.1, a.2)))
        });
        merges.into_iter().map(|(_, (left, right))| json!([left, right])).collect()
    }

    /// tokenizer.json, with the BPE model's own settings in `model`.
    fn tokenizer(&self, normalizer: Value, pre_tokenizer: Value, decoder: Value, mut model: Value) -> Value {
        let vocab: Map<String, Value> =
            self.tokens.iter().enumerate().map(|(id, text)| (text.clone(), Value::from(id))).collect();
        let added = |kind: i64| [kind::UNKNOWN, kind::CONTROL, kind::USER_DEFINED].contains(&kind);
        let entry = |id: usize| {
            json!({
                "id": id, "content": self.tokens[id], "special": self.kinds[id] != kind::USER_DEFINED,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            })
        };
        let added: Vec<Value> = (0..self.tokens.len()).filter(|id| added(self.kinds[*id])).map(entry).collect();
        model["type"] = json!("BPE");
        model["vocab"] = Value::Object(vocab);
        json!({
            "version": "1.0",
            "added_tokens": added,
            "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": null,
            "decoder": decoder,
            "model": model,
        })
    }

    /// Returns how a byte-level tokenizer cuts; GPT-2's is the oldest.
    fn pre(&self) -> Result<&'a str, GgufError> {
        Ok(self.file.text("tokenizer.ggml.pre")?.unwrap_or("gpt-2"))
    }

    /// The token that the file names so, where there is one.
    fn special(&self, name: &str) -> Result<Option<usize>, GgufError> {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let Some(id) = self.file.count(&key)? else { return Ok(None) };
        let known = usize::try_from(id).ok().filter(|id| *id < self.tokens.len());
        known.map(Some).ok_or_else(|| self.file.value_error(&key, id, format!("below {}", self.tokens.len())))
    }

    /// Returns what tokenizer_config.json would say.
    fn config(&self) -> Result<TextConfig, GgufError> {
        let mut config = TextConfig::default();
        for (name, stored) in
            [("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"), ("sep", "seperator")]
        {
            if let Some(id) = self.special(stored)? {
                config.named.insert(format!("{name}_token"), Value::from(self.tokens[id].as_str()));
            }
        }
        let default = self.model == "llama" || WHOLE_FIRST.contains(&self.pre()?);
        config.add_bos = Some(self.file.flag("tokenizer.ggml.add_bos_token")?.unwrap_or(default));
        let named = |name: &str, key: &str| -> Result<Option<Value>, GgufError> {
            Ok(self.file.text(key)?.map(|template| json!({"name": name, "template": template})))
        };
        let mut templates = Vec::new();
        templates.extend(named("default", "tokenizer.chat_template")?);
        templates.extend(named("tool_use", "tokenizer.chat_template.tool_use")?);
        config.chat_template =
            Some(Value::Array(templates)).filter(|list| list.as_array().is_some_and(|l| !l.is_empty()));
        Ok(config)
    }
}
