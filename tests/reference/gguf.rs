//! Models in GGUF files: the same logits as from safetensors, bit for bit, in plain formats; what transformers computes
//! with widened weights in quantised ones; and the same tokens as the tokenizers that the files were made of.

use crate::gguf_writer::{Writer, model};
use crate::golden::folder;
use crate::run::{Cut, Outcome, Run};
use domain::{Dtype, Token};
use engine::cpu::CpuModel;
use engine::models::{ModelFiles, Outline};
use engine::random::RandomSpec;
use engine::spec::{ModelSpec, RopeScaling, Yarn};
use engine::text::{ChatTemplate, PromptEnd, SpecialTokens, Tokenizer};
use safetensors::SafeTensors;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const CUT: Cut = Cut::new(32, 16, 2);
/// Tokens of a prompt: longer than windows and than the original context of scaled rotary embeddings.
const PROMPT: u32 = 90;

fn logits(spec: &ModelSpec, files: &ModelFiles, prompt: &[Token]) -> Outcome {
    let model = CpuModel::load(spec.clone(), &files.checkpoint, &mut |_| {}).expect("the model loads");
    Run::new(Arc::new(model), prompt.len(), CUT).sequence(prompt, &[], CUT.chunk)
}

/// The random model of this shape says the same from safetensors and from a GGUF file of this architecture.
/// `exact`: bit for bit; else its rotary embedding is rounded otherwise.
fn check(family: &str, shape: &str, dtype: Dtype, architecture: &str, exact: bool) {
    let what = format!("{family} {shape} {dtype:?}");
    let dir = TempDir::new().expect("a directory");
    let spec = RandomSpec::named(family, shape, 31, Some(dtype)).expect("it has a name");
    let safetensors = dir.path().join("safetensors");
    spec.write(&safetensors, &mut |_, _| {}).expect("it is written");
    let safetensors = ModelFiles::load(&safetensors).expect("it loads");
    let path = dir.path().join("my-model.gguf");
    model(&safetensors, architecture).write(&path);
    let gguf = ModelFiles::load(&path).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((gguf.name.as_str(), gguf.checkpoint.files()), ("my-model", 1), "{what}");

    let mut expected = safetensors.spec.clone();
    if family.starts_with("gemma") {
        // A GGUF file cannot say another scale than this one.
        expected.attention_scale = (expected.head_dim as f64).powf(-0.5) as f32;
    }
    let mut found = ModelSpec { norm_offset: expected.norm_offset, ..gguf.spec.clone() };
    if family == "mistral" {
        // They are Llamas there, without windows.
        found = ModelSpec { family: expected.family, ..found };
    }
    if !exact {
        found.ropes.clone_from(&expected.ropes);
    }
    assert_eq!(found, expected, "{what}");

    let prompt: Vec<Token> = (0..PROMPT).map(|i| i * 7919 % expected.vocab as u32).collect();
    let expected = logits(&expected, &safetensors, &prompt);
    let found = logits(&gguf.spec, &gguf, &prompt);
    if exact {
        assert!(found == expected, "{what}: the logits differ");
        return;
    }
    for (position, (logits, _)) in expected {
        let largest = logits.iter().fold(0.0f32, |largest, logit| logit.abs().max(largest));
        for (found, expected) in found[&position].0.iter().zip(&logits) {
            assert!((found - expected).abs() <= 1e-4 * largest, "{what}: {found} and {expected} at {position}");
        }
    }
}

#[test]
fn plain_formats_compute_the_same_as_safetensors() {
    check("llama", "tiny-bias", Dtype::F32, "llama", true);
    check("llama", "tiny-tied", Dtype::F16, "llama", true);
    check("mistral", "tiny-wide", Dtype::Bf16, "llama", true);
    check("mistral", "tiny", Dtype::F16, "mistral3", true);
    check("qwen2", "tiny", Dtype::Bf16, "qwen2", true);
    check("qwen3", "tiny-wide", Dtype::F32, "qwen3", true);
    // Its output projection is always the embedding there.
    check("gemma2", "tiny-tied", Dtype::F32, "gemma2", true);
    check("gemma3_text", "tiny-window", Dtype::Bf16, "gemma3", true);
    check("phi3", "tiny-window", Dtype::F16, "phi3", true);
    check("olmo2", "tiny-wide", Dtype::Bf16, "olmo2", true);
    check("granite", "tiny", Dtype::F32, "granite", true);
}

/// Writes the model as so many files, as `gguf-split` does, and returns their paths: the first has all metadata.
fn write_split(mut whole: Writer, folder: &Path, parts: usize) -> Vec<PathBuf> {
    let all = whole.tensors.len();
    let mut tensors = std::mem::take(&mut whole.tensors).into_iter();
    let mut first = Some(whole);
    (0..parts)
        .map(|part| {
            let mut file = first.take().unwrap_or_default();
            file.tensors = tensors.by_ref().take(all.div_ceil(parts)).collect();
            file.count("split.no", part);
            file.count("split.count", parts);
            file.count("split.tensors.count", all);
            let path = folder.join(format!("model-{:05}-of-{parts:05}.gguf", part + 1));
            file.write(&path);
            path
        })
        .collect()
}

#[test]
fn a_model_that_is_split_is_the_same_from_any_of_its_parts() {
    let dir = TempDir::new().expect("a directory");
    let spec = RandomSpec::named("llama", "tiny", 31, Some(Dtype::Bf16)).expect("it has a name");
    let safetensors = dir.path().join("safetensors");
    spec.write(&safetensors, &mut |_, _| {}).expect("it is written");
    let safetensors = ModelFiles::load(&safetensors).expect("it loads");
    let prompt: Vec<Token> = (0..PROMPT).map(|i| i * 7919 % safetensors.spec.vocab as u32).collect();
    let expected = logits(&safetensors.spec, &safetensors, &prompt);

    let parts = write_split(model(&safetensors, "llama"), dir.path(), 3);
    let digest = |files: &ModelFiles| files.checkpoint.digest(None, &mut |_, _| {}).expect("it is read");
    let first = ModelFiles::load(&parts[0]).expect("it loads");
    assert_eq!(first.checkpoint.files(), 3);
    assert!(logits(&first.spec, &first, &prompt) == expected, "the logits differ");
    let last = ModelFiles::load(&parts[2]).expect("any part stands for the model");
    assert_eq!((last.path.clone(), digest(&last)), (parts[0].clone(), digest(&first)));
    assert_eq!(last.name, "model", "a part's number is no part of the name");

    let error = |what: &str| format!("{:?}", ModelFiles::load(&parts[0]).expect_err(what));
    std::fs::copy(&parts[1], &parts[2]).expect("it is copied");
    let wrong = error("a part is there twice");
    assert!(wrong.contains("split.no") && wrong.contains("model-00003-of-00003.gguf"), "{wrong}");
    std::fs::remove_file(&parts[1]).expect("it is removed");
    let missing = error("a part is missing");
    assert!(missing.contains("MissingPart") && missing.contains("model-00002-of-00003.gguf"), "{missing}");
    let alone = dir.path().join("renamed.gguf");
    std::fs::copy(&parts[0], &alone).expect("it is copied");
    let renamed = format!("{:?}", ModelFiles::load(&alone).expect_err("the other parts are not known"));
    assert!(renamed.contains("split.count"), "{renamed}");
}

#[test]
fn scaled_rotary_embeddings_are_read() {
    check("llama", "tiny-llama3", Dtype::F32, "llama", false);
    check("phi3", "tiny-longrope", Dtype::F32, "phi3", false);
    check("qwen3", "tiny-yarn", Dtype::F32, "qwen3", true);
    check("ministral3", "tiny-yarn", Dtype::Bf16, "mistral3", true);
}

/// The head of a file of this random model says what the whole file says, but for the factors of the rotary embedding,
/// which lie behind it.
fn check_head(family: &str, shape: &str, architecture: &str) {
    let dir = TempDir::new().expect("a directory");
    let spec = RandomSpec::named(family, shape, 31, None).expect("it has a name");
    let safetensors = dir.path().join("safetensors");
    spec.write(&safetensors, &mut |_, _| {}).expect("it is written");
    let mut writer = model(&ModelFiles::load(&safetensors).expect("it loads"), architecture);
    // The factors are written first.
    writer.tensors.reverse();
    let path = dir.path().join("model.gguf");
    writer.write(&path);
    let whole = ModelFiles::load(&path).expect("it loads");
    let outline = Outline::read(&path, None);

    let mut bytes = std::fs::read(&path).expect("it is written");
    let length = bytes.len() as u64;
    bytes.truncate(bytes.len() - 1024);
    let path = dir.path().join("model.gguf.incomplete");
    std::fs::write(&path, bytes).expect("it is written");
    let head = ModelFiles::load_head(&path, length).unwrap_or_else(|error| panic!("{family}: {error}"));
    let mut expected = whole.spec.clone();
    for rope in &mut expected.ropes {
        let RopeScaling::Long { factors, .. } = &mut rope.scaling else { panic!("{family}: {rope:?}") };
        assert!(factors.iter().any(|factor| *factor != 1.0), "{family}: {factors:?}");
        factors.fill(1.0);
    }
    assert_eq!(head.spec, expected, "{family}");
    assert_eq!(Outline::read(&path, Some(length)), outline, "{family}");
    assert!(outline.family.is_some() && !outline.formats.is_empty(), "{outline:?}");
}

#[test]
fn factors_that_lie_behind_the_head_of_a_file_are_not_missed() {
    check_head("phi3", "tiny-longrope", "phi3");
    check_head("llama", "tiny-llama3", "llama");
}

/// What a file of this random model says, with metadata that `add` adds.
fn spec_with(family: &str, shape: &str, architecture: &str, add: fn(&mut Writer)) -> Result<ModelSpec, String> {
    let dir = TempDir::new().expect("a directory");
    let spec = RandomSpec::named(family, shape, 31, None).expect("it has a name");
    let safetensors = dir.path().join("safetensors");
    spec.write(&safetensors, &mut |_, _| {}).expect("it is written");
    let mut writer = model(&ModelFiles::load(&safetensors).expect("it loads"), architecture);
    add(&mut writer);
    let path = dir.path().join("model.gguf");
    writer.write(&path);
    ModelFiles::load(&path).map(|files| files.spec).map_err(|error| error.to_string())
}

#[test]
fn of_gemma3_only_layers_without_a_window_are_scaled() {
    let spec = spec_with("gemma3_text", "tiny-window", "gemma3", |writer| {
        writer.text("gemma3.rope.scaling.type", "linear");
        writer.number("gemma3.rope.scaling.factor", 8.0);
    });
    let spec = spec.expect("it loads");
    for (rope, window) in spec.ropes.iter().zip(spec.windows()) {
        let expected = if window.is_some() { RopeScaling::None } else { RopeScaling::Linear { factor: 8.0 } };
        assert_eq!(rope.scaling, expected);
    }
}

#[test]
fn all_numbers_of_yarn_are_read() {
    fn yarn(add: fn(&mut Writer)) -> Result<(usize, Yarn), String> {
        let spec = spec_with("llama", "tiny", "llama", add)?;
        match spec.ropes[0].scaling {
            RopeScaling::Yarn(yarn) => Ok((spec.context, yarn)),
            ref other => panic!("{other:?}"),
        }
    }
    let plain = yarn(|writer| {
        writer.text("llama.rope.scaling.type", "yarn");
        writer.number("llama.rope.scaling.factor", 4.0);
        writer.count("llama.rope.scaling.original_context_length", 1024);
    });
    let magnitude = 1.0 + 0.1 * 4f64.ln();
    let expected =
        Yarn { factor: 4.0, fast_turns: 32.0, slow_turns: 1.0, whole_pairs: true, original_context: 1024.0, magnitude };
    // The model's own context is 2048.
    assert_eq!(plain, Ok((4096, expected)));
    let tuned = yarn(|writer| {
        writer.text("llama.rope.scaling.type", "yarn");
        writer.number("llama.rope.scaling.factor", 4.0);
        writer.number("llama.rope.scaling.yarn_beta_fast", 16.0);
        writer.number("llama.rope.scaling.yarn_beta_slow", 2.0);
        writer.number("llama.rope.scaling.yarn_attn_factor", 1.5);
        writer.number("llama.rope.scaling.yarn_ext_factor", 1.0);
    });
    let (fast_turns, slow_turns, original_context) = (16.0, 2.0, 2048.0);
    let expected = Yarn { fast_turns, slow_turns, original_context, magnitude: 1.5, ..expected };
    assert_eq!(tuned, Ok((8192, expected)));
    let relative = yarn(|writer| {
        writer.text("llama.rope.scaling.type", "yarn");
        writer.number("llama.rope.scaling.factor", 4.0);
        writer.number("llama.rope.scaling.yarn_log_multiplier", 1.0);
    });
    assert_eq!(relative.map(|(_, yarn)| yarn.magnitude), Ok(1.0));
    let foreign = yarn(|writer| {
        writer.text("llama.rope.scaling.type", "yarn");
        writer.number("llama.rope.scaling.factor", 4.0);
        writer.number("llama.rope.scaling.attn_factor", 0.5);
    });
    let error = foreign.expect_err("it is no number of transformers");
    assert!(error.contains("attn_factor is 0.5") && error.contains("supported: 1"), "{error}");
}

#[test]
fn quantised_formats_compute_what_transformers_computes_with_widened_weights() {
    #[derive(Deserialize)]
    struct Mixed {
        prompt: Vec<Token>,
    }
    let read = |name: &str| std::fs::read(folder().join("gguf").join(name)).expect("make_gguf.py made it");
    let Mixed { prompt } = serde_json::from_slice(&read("mixed.json")).expect("make_gguf.py made it");
    let bytes = read("mixed.safetensors");
    let golden = SafeTensors::deserialize(&bytes).expect("make_gguf.py made it");
    let golden = golden.tensor("logits").expect("make_gguf.py made it");
    let golden: Vec<f32> = golden.data().chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();

    let files = ModelFiles::load(&folder().join("gguf/mixed.gguf")).expect("it loads");
    // The cache is not to round.
    let spec = ModelSpec { dtype: Dtype::F32, ..files.spec.clone() };
    let outcome = logits(&spec, &files, &prompt);
    let (found, _) = &outcome[&(prompt.len() as u32 - 1)];
    let largest = golden.iter().fold(0.0f32, |largest, logit| logit.abs().max(largest));
    let error = found.iter().zip(&golden).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("error {error:.1e} of {largest:.1}");
    assert_eq!(found.len(), golden.len());
    assert!(error <= MIXED_TOLERANCE * largest, "error {error:e} of {largest}");
}

/// Error of the logits of `mixed.gguf` as a share of the largest. Activations that quantised weights are
/// multiplied with are rounded to 8 bits, in blocks: by up to a 254th of the block's largest, about 0.4% of a
/// typical one. Six such layers follow each other at most, whose errors are independent: 1%. A row or a scale in
/// the wrong place is beyond 10%.
pub(crate) const MIXED_TOLERANCE: f32 = 3e-2;

/// A text that tokenizers stumble over, with the tokens it has.
#[derive(Deserialize)]
struct TextCase {
    text: String,
    tokens: Vec<Token>,
}

fn cases() -> Vec<TextCase> {
    let cases = std::fs::read(folder().join("gguf/pieces.json")).expect("make_gguf.py made it");
    serde_json::from_slice(&cases).expect("make_gguf.py made it")
}

#[test]
fn pieces_with_scores_are_tokenized_as_sentencepiece_does() {
    let path = folder().join("gguf/pieces.gguf");
    let tokenizer = Tokenizer::open(&path).expect("it opens");
    for TextCase { text, tokens } in cases() {
        assert_eq!(tokenizer.encode(&text, false).expect("it encodes"), tokens, "{text:?}");
        // The mark itself cannot be told from a space.
        assert_eq!(tokenizer.decode(&tokens, SpecialTokens::Hidden), text.replace('▁', " "), "{tokens:?}");
        let with_bos = [&[1], &tokens[..]].concat();
        assert_eq!(tokenizer.encode(&text, true).expect("it encodes"), with_bos, "{text:?}");
    }
    assert!(tokenizer.is_special(1) && tokenizer.is_special(0) && !tokenizer.is_special(300));
    let template = ChatTemplate::open(&path).expect("it is valid").expect("there is one");
    let prompt = template
        .render(&[json!({"role": "user", "content": "Hi"})], PromptEnd::Answer, &Map::new())
        .expect("it renders");
    assert_eq!(prompt, "<s>[Hi]");
}

/// A GGUF file with the vocabulary of `tokenizer`, a byte-level tokenizer.json.
fn write_byte_level(tokenizer: &Value, pre: &str, path: &Path) {
    let mut writer = Writer::default();
    writer.text("general.architecture", "llama");
    writer.byte_level(tokenizer, pre);
    writer.count("tokenizer.ggml.bos_token_id", 0);
    writer.write(path);
}

#[test]
fn byte_level_tokenizers_are_those_of_tokenizer_json() {
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-rust/tokenizer.json");
    let bundled: Value = serde_json::from_slice(&std::fs::read(bundled).expect("it is there")).expect("it is JSON");
    let byte_level =
        |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
    let split =
        |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
    // As Llama 3's and Qwen 2's tokenizer.json have them.
    let llama = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let qwen = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let sequence = |first: Value, regex| json!({"type": "Sequence", "pretokenizers": [first, byte_level(regex)]});
    let digits = json!({"type": "Digits", "individual_digits": true});
    let kinds = [
        ("gpt-2", byte_level(true), Value::Null, false, false),
        ("llama-bpe", sequence(split(llama), false), Value::Null, true, true),
        ("qwen2", sequence(split(qwen), false), json!({"type": "NFC"}), false, false),
        ("refact", sequence(digits, true), Value::Null, false, false),
    ];
    let dir = TempDir::new().expect("a directory");
    let mut all = Vec::new();
    for (pre, pre_tokenizer, normalizer, ignore_merges, bos) in kinds {
        let mut json = bundled.clone();
        json["pre_tokenizer"] = pre_tokenizer;
        json["normalizer"] = normalizer;
        json["model"]["ignore_merges"] = ignore_merges.into();
        std::fs::write(dir.path().join("tokenizer.json"), json.to_string()).expect("it is written");
        let expected = Tokenizer::open(dir.path()).expect("it opens");
        let path = dir.path().join(format!("{pre}.gguf"));
        write_byte_level(&json, pre, &path);
        let found = Tokenizer::open(&path).expect("it opens");
        assert_eq!(found.vocab_size(), expected.vocab_size());
        for text in cases().into_iter().map(|case| case.text).chain(["<|user|>1234567 it's<|end|>".to_owned()]) {
            let tokens = expected.encode(&text, false).expect("it encodes");
            assert_eq!(found.encode(&text, false).expect("it encodes"), tokens, "{pre}: {text:?}");
            assert_eq!(
                found.decode(&tokens, SpecialTokens::Hidden),
                expected.decode(&tokens, SpecialTokens::Hidden),
                "{pre}: {text:?}"
            );
            let with_bos = if bos { [&[0], &tokens[..]].concat() } else { tokens.clone() };
            assert_eq!(found.encode(&text, true).expect("it encodes"), with_bos, "{pre}: {text:?}");
            all.push((text, tokens));
        }
    }
    let different = all.iter().filter(|(text, tokens)| all.iter().any(|other| other.0 == *text && other.1 != *tokens));
    assert!(different.count() > 3, "the ways to cut differ in some texts");
    let unknown = dir.path().join("unknown.gguf");
    write_byte_level(&bundled, "no-such-cut", &unknown);
    let error = Tokenizer::open(&unknown).expect_err("it cannot be read").to_string();
    assert!(
        error.contains("tokenizer.ggml.pre") && error.contains("no-such-cut") && error.contains("qwen2"),
        "{error}"
    );
}
