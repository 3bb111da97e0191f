use super::*;
use crate::text::{Detokenizer, SpecialTokens};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The bundled model's byte-level tokenizer.
pub(in crate::text) static BYTE_LEVEL: LazyLock<Tokenizer> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-rust");
    Tokenizer::open(&dir).expect("the bundled model has a tokenizer")
});

/// A small tokenizer in SentencePiece's style: marks for spaces, bytes where characters are missing.
pub(in crate::text) static SENTENCE_PIECE: LazyLock<Tokenizer> = LazyLock::new(|| build(&sentence_piece(), "{}"));

/// The same vocabulary without a decoder.
pub(in crate::text) static JOINED: LazyLock<Tokenizer> =
    LazyLock::new(|| build(&with(sentence_piece(), "decoder", Value::Null), "{}"));

fn build(json: &Value, config: &str) -> Tokenizer {
    try_build(json, config).expect("the tokenizer is valid")
}

fn try_build(json: &Value, config: &str) -> Result<Tokenizer, String> {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("baton-tokenizer-{}-{number}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    fs::write(dir.join("tokenizer.json"), json.to_string()).expect("a file");
    fs::write(dir.join("tokenizer_config.json"), config).expect("a file");
    let tokenizer = Tokenizer::open(&dir).map_err(|error| error.to_string());
    fs::remove_dir_all(dir).expect("removed");
    tokenizer
}

/// tokenizer.json as Llama 2 has it, with a vocabulary of single letters, bytes and some merges.
fn sentence_piece() -> Value {
    let mut names: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    names.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    names.push("▁".to_owned());
    names.extend(('a'..='z').chain("ABCé.,!?".chars()).map(String::from));
    let merges = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("▁", "a"), ("a", "b"), ("▁", "▁"), ("▁▁", "▁▁"), ("r", "s")];
    names.extend(merges.iter().map(|(left, right)| format!("{left}{right}")));
    let vocab: serde_json::Map<String, Value> =
        names.into_iter().enumerate().map(|(token, name)| (name, Value::from(token))).collect();
    let added = |token: u32, text: &str| json!({"id": token, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "<unk>"},
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab,
            "merges": merges.map(|(left, right)| format!("{left} {right}"))}
    })
}

fn with(mut json: Value, key: &str, value: Value) -> Value {
    json[key] = value;
    json
}

/// The bundled model's tokenizer with further special tokens.
pub(in crate::text) fn with_specials(names: &[&str]) -> Tokenizer {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-rust/tokenizer.json");
    let mut json: Value = serde_json::from_slice(&fs::read(path).expect("it is there")).expect("JSON");
    let first = BYTE_LEVEL.vocab_size();
    let added = names.iter().enumerate().map(|(at, name)| {
        json!({"id": first + at, "content": name, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    });
    json["added_tokens"].as_array_mut().expect("a list").extend(added);
    build(&json, "{}")
}

/// That in SentencePiece's style, whose special tokens are looked for in normalized text.
pub(in crate::text) fn with_normalized_specials() -> Tokenizer {
    let mut json = sentence_piece();
    for token in json["added_tokens"].as_array_mut().expect("a list") {
        token["normalized"] = Value::from(true);
    }
    build(&json, "{}")
}

#[test]
fn special_tokens_in_a_prompt_are_special() {
    let tokens = BYTE_LEVEL.encode("<|bos|><|user|>Hi<|end|>", false).expect("encodes");
    assert_eq!((tokens[0], tokens[1], tokens[tokens.len() - 1]), (0, 1, 3));
    assert_eq!(tokens.iter().filter(|&&token| BYTE_LEVEL.is_special(token)).count(), 3);
    assert_eq!(BYTE_LEVEL.decode(&tokens, SpecialTokens::Hidden), "Hi");
    assert_eq!(BYTE_LEVEL.token_text(3), "<|end|>");
    assert_eq!(BYTE_LEVEL.token_id("<|end|>"), Some(3));
    assert_eq!(BYTE_LEVEL.vocab_size(), 4096);
}

#[test]
fn what_is_outside_the_vocabulary_is_nothing() {
    assert_eq!(BYTE_LEVEL.token_bytes(4096), b"");
    assert_eq!(BYTE_LEVEL.token_text(Token::MAX), "");
    assert!(!BYTE_LEVEL.is_special(Token::MAX));
    assert_eq!(BYTE_LEVEL.decode(&[4096, Token::MAX], SpecialTokens::Hidden), "");
}

#[test]
fn a_plain_text_begins_with_bos_as_the_files_say() {
    let begins = |tokenizer: &Tokenizer, text: &str| tokenizer.encode(text, true).expect("encodes").first() == Some(&1);
    let without = with(sentence_piece(), "post_processor", Value::Null);
    assert!(begins(&SENTENCE_PIECE, "ab"));
    assert!(!begins(&build(&without, r#"{"bos_token": "<s>"}"#), "ab"));
    assert!(begins(&build(&without, r#"{"bos_token": "<s>", "add_bos_token": true}"#), "ab"));
    let never = build(&sentence_piece(), r#"{"bos_token": "<s>", "add_bos_token": false}"#);
    assert!(!begins(&never, "ab"));
    assert!(begins(&never, "<s>ab"));
    assert_ne!(SENTENCE_PIECE.encode("ab", false).expect("encodes")[0], 1);
}

#[test]
fn prompts_are_neither_cut_nor_padded() {
    // The file asks for both: at most 4 tokens, padded to 64.
    let tokens = SENTENCE_PIECE.encode("a b c d e f g h", false).expect("encodes");
    assert_eq!(tokens.len(), 8 * 2 - 1);
}

#[test]
fn tokens_that_only_the_configuration_calls_special_are_special() {
    let json = with(sentence_piece(), "added_tokens", json!([]));
    let tokenizer =
        build(&json, r#"{"added_tokens_decoder": {"2": {"content": "</s>", "special": true}}, "bos_token": "<s>"}"#);
    assert!(tokenizer.is_special(1) && tokenizer.is_special(2) && !tokenizer.is_special(0));
    assert_eq!(tokenizer.encode("a</s>", false).expect("encodes").last(), Some(&2));
}

#[test]
fn decoders_that_do_not_concatenate_are_refused_by_name() {
    for (decoder, word) in [
        (json!({"type": "WordPiece", "prefix": "##", "cleanup": true}), "WordPiece"),
        (json!({"type": "Replace", "pattern": {"Regex": "a+"}, "content": " "}), "a+"),
        (json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}), "not supported"),
    ] {
        let error = try_build(&with(sentence_piece(), "decoder", decoder), "{}").expect_err("refused");
        assert!(error.contains(word), "{error}");
    }
    let error = Tokenizer::open(Path::new("/nowhere")).expect_err("there is none").to_string();
    assert!(error.contains("/nowhere/tokenizer.json"), "{error}");
}

/// Added tokens with all flags, in each place where the files keep them (testdata/make_goldens.py).
#[test]
fn flags_of_added_tokens_are_those_that_transformers_sees() {
    let read = |text: &str| -> Value { serde_json::from_str(text).expect("JSON") };
    let base = read(include_str!("testdata/tokenizer.json"));
    let (cases, goldens) = (read(include_str!("testdata/cases.json")), read(include_str!("testdata/goldens.json")));
    for (name, case) in cases["cases"].as_object().expect("cases") {
        let tokenizer =
            build(&with(base.clone(), "added_tokens", case["added_tokens"].clone()), &case["config"].to_string());
        for (at, text) in cases["texts"].as_array().expect("texts").iter().enumerate() {
            let text = text.as_str().expect("a text");
            let tokens = tokenizer.encode(text, false).expect("encodes");
            assert_eq!(Value::from(tokens), goldens[name][at], "{name}: {text:?}");
        }
    }
}

#[test]
fn a_token_that_only_a_name_makes_special_keeps_its_flags() {
    let token = json!({"id": 2, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": true,
        "normalized": false, "special": false});
    let tokenizer = build(&with(sentence_piece(), "added_tokens", json!([token])), r#"{"eos_token": "</s>"}"#);
    assert!(tokenizer.is_special(2));
    let token = |text| SENTENCE_PIECE.token_id(text).expect("in the vocabulary");
    assert_eq!(tokenizer.encode("</s>  a", false).expect("encodes"), [2, token("▁a")]);
}

#[test]
fn the_end_is_the_token_that_the_configuration_names() {
    let eos = |config| build(&sentence_piece(), config).eos();
    assert_eq!(eos("{}"), None);
    assert_eq!(eos(r#"{"eos_token": "</s>"}"#), Some(2));
    assert_eq!(eos(r#"{"eos_token": {"content": "</s>", "lstrip": false}}"#), Some(2));
    assert_eq!(eos(r#"{"eos_token": null}"#), None);
    assert_eq!(eos(r#"{"eos_token": "<none>"}"#), None, "a token that there is not");
}

#[test]
fn bytes_of_tokens_are_those_of_the_middle_of_a_text() {
    let token = |text: &str| SENTENCE_PIECE.token_id(text).expect("in the vocabulary");
    assert_eq!(SENTENCE_PIECE.token_bytes(token("▁the")), b" the");
    assert_eq!(SENTENCE_PIECE.token_bytes(token("<0xE2>")), [0xe2]);
    assert_eq!(SENTENCE_PIECE.token_text(token("<0xE2>")), "\u{fffd}");
    assert_eq!(SENTENCE_PIECE.token_text(1), "<s>");
}

/// Our text of `tokens` and that of the crate `tokenizers`.
fn both(tokenizer: &Tokenizer, tokens: &[Token]) -> (String, String) {
    (tokenizer.decode(tokens, SpecialTokens::Hidden), tokenizer.0.encoder.decode(tokens, true).expect("decodes"))
}

#[test]
fn metaspace_decodes_as_the_library_does() {
    for scheme in ["always", "first", "never"] {
        let decoder = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
        let tokenizer = build(&with(sentence_piece(), "decoder", decoder), "{}");
        for names in [&["▁▁▁▁", "a"][..], &["▁the", "▁the"], &["<s>", "▁", "▁a"], &["a", "▁"]] {
            let tokens: Vec<Token> = names.iter().map(|name| tokenizer.token_id(name).expect(name)).collect();
            let (ours, theirs) = both(&tokenizer, &tokens);
            assert_eq!(ours, theirs, "{scheme} {names:?}");
        }
    }
}

#[test]
fn a_client_writes_bos_where_tokens_are_joined_too() {
    let json = with(with(sentence_piece(), "decoder", Value::Null), "post_processor", Value::Null);
    let tokenizer = build(&json, r#"{"bos_token": "<s>", "add_bos_token": false}"#);
    assert_eq!(tokenizer.encode("<s>a", true).expect("encodes").first(), Some(&1));
}

proptest! {
    #[test]
    fn joined_tokens_decode_as_the_library_does(tokens in prop::collection::vec(0u32..310, 0..20)) {
        let (ours, theirs) = both(&JOINED, &tokens);
        prop_assert_eq!(ours, theirs);
        let mut shown = Detokenizer::new(JOINED.clone(), &[], SpecialTokens::Shown);
        let text: String = tokens.iter().map(|&token| shown.push(token)).collect();
        prop_assert_eq!(text, JOINED.0.encoder.decode(&tokens, false).expect("decodes"));
    }

    #[test]
    fn any_text_survives_both_styles(text in "(\\PC|[ \n\ta-z]){0,40}") {
        // A mark in the text is a space afterwards: SentencePiece cannot tell them apart.
        let text = text.replace('▁', " ");
        for tokenizer in [&*BYTE_LEVEL, &*SENTENCE_PIECE] {
            let tokens = tokenizer.encode(&text, false).expect("encodes");
            prop_assert_eq!(tokenizer.decode(&tokens, SpecialTokens::Hidden), text.as_str());
        }
    }

    #[test]
    fn byte_level_tokens_decode_as_the_library_does(tokens in prop::collection::vec(0u32..4096, 0..40)) {
        let (ours, theirs) = both(&BYTE_LEVEL, &tokens);
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn sentence_piece_tokens_decode_as_the_library_does(tokens in prop::collection::vec(0u32..302, 0..20)) {
        // The library writes one U+FFFD per byte of a run of bytes that is not UTF-8 as a whole, even for those bytes
        // of it that are: that cannot be said of a stream. Where the text is sound both agree.
        let (ours, theirs) = both(&SENTENCE_PIECE, &tokens);
        let broken = |text: &str| text.contains('\u{fffd}');
        prop_assert_eq!(broken(&ours), broken(&theirs));
        if !broken(&ours) {
            prop_assert_eq!(ours, theirs);
        }
    }
}
