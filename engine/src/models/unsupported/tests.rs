use super::table::Alternative;
use super::*;
use crate::models::FAMILIES;
use crate::models::files::{ModelDescription, ModelFiles};
use crate::models::{Family, ModelError};
use serde_json::json;
use std::path::PathBuf;
use tempfile::TempDir;

/// Checks that a config.json is refused, and that the refusal says all of `words`.
#[track_caller]
fn check_config(config: &Value, words: &[&str]) {
    let config = Config::parse(config.to_string().as_bytes()).expect("it is an object");
    let error = crate::models::read_spec(&config, None).expect_err("it is not served").to_string();
    check_words(&error, words);
}

#[track_caller]
fn check_words(error: &str, words: &[&str]) {
    for word in words {
        assert!(error.contains(word), "no {word:?} in: {error}");
    }
    assert!(!error.contains('\n'), "one line: {error}");
}

/// A GGUF file with these texts and numbers in its metadata and these tensors of no numbers to speak of.
fn gguf(dir: &TempDir, texts: &[(&str, &str)], counts: &[(&str, u32)], tensors: &[&str]) -> PathBuf {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes = [b"GGUF", &3u32.to_le_bytes()[..]].concat();
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend(((texts.len() + counts.len()) as u64).to_le_bytes());
    for (key, value) in texts {
        bytes.extend([text(key), 8u32.to_le_bytes().to_vec(), text(value)].concat());
    }
    for (key, value) in counts {
        bytes.extend([text(key), 4u32.to_le_bytes().to_vec(), value.to_le_bytes().to_vec()].concat());
    }
    for (index, name) in tensors.iter().enumerate() {
        bytes.extend([text(name), 1u32.to_le_bytes().to_vec(), 8u64.to_le_bytes().to_vec()].concat());
        bytes.extend([0u32.to_le_bytes().to_vec(), (32 * index as u64).to_le_bytes().to_vec()].concat());
    }
    bytes.resize(bytes.len().next_multiple_of(32) + 32 * tensors.len(), 0);
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("it is written");
    path
}

/// Checks that a GGUF file is refused, and that the refusal says all of `words`.
#[track_caller]
fn check_gguf(texts: &[(&str, &str)], counts: &[(&str, u32)], tensors: &[&str], words: &[&str]) {
    let dir = TempDir::new().expect("a directory");
    let path = gguf(&dir, texts, counts, tensors);
    let error = ModelDescription::read(&path).expect_err("it is not served");
    assert!(matches!(error, ModelError::Config { .. }), "{error}");
    check_words(&error.to_string(), words);
    check_words(&error.to_string(), &["model.gguf", "what works instead: "]);
    let length = std::fs::metadata(&path).expect("it is there").len();
    let head = ModelFiles::load_head(&path, length).expect_err("its head says the same").to_string();
    assert_eq!(head, error.to_string());
}

#[test]
fn each_name_stands_once_and_none_is_served() {
    let mut names: Vec<&str> = ROWS.iter().flat_map(|row| row.names).copied().collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name stands twice");
    for name in names {
        assert!(Family::named(name).is_none(), "{name} is served");
    }
}

#[test]
fn what_works_instead_is_served() {
    let of_experts = FAMILIES.map(|family| instead_of_experts(family.model_type));
    for Alternative { family, name } in ROWS.iter().map(|row| row.instead).chain(of_experts).chain([ANY]) {
        assert!(Family::named(family).is_some(), "{family}");
        let (org, model) = name.split_once('/').expect("org/name");
        assert!(!org.is_empty() && !model.is_empty() && !model.contains('/'), "{name}");
    }
}

#[test]
fn every_row_is_refused_with_what_it_needs_and_what_works() {
    for row in ROWS {
        for name in row.names {
            let needs = row.needs.iter().map(Feature::to_string);
            let words: Vec<String> = needs.chain([format!("{name:?}"), row.instead.name.to_owned()]).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            check_config(&json!({ "model_type": name }), &words);
            if *name != "clip" {
                check_gguf(&[("general.architecture", name)], &[], &[], &words);
            }
        }
    }
}

#[test]
fn a_config_says_what_its_model_needs_whatever_its_name() {
    let experts = "a mixture of experts";
    check_config(&json!({"model_type": "new", "num_local_experts": 8}), &["\"new\"", experts, ANY.name]);
    check_config(&json!({"model_type": "new", "text_config": {"n_routed_experts": 64}}), &[experts]);
    check_config(&json!({"model_type": "new", "kv_lora_rank": 512}), &["MLA"]);
    check_config(&json!({"model_type": "new", "layer_types": ["conv", "full_attention"]}), &["short convolutions"]);
    check_config(&json!({"model_type": "new", "layer_types": ["linear_attention"]}), &["linear attention"]);
    check_config(&json!({"model_type": "new", "mamba_d_state": 16}), &["Mamba"]);
    check_config(&json!({"model_type": "new", "is_encoder_decoder": true}), &["an encoder beside the decoder"]);
    check_config(&json!({"model_type": "new", "vision_config": {}}), &["images"]);
    check_config(&json!({"architectures": ["NewMoeForCausalLM"]}), &["NewMoeForCausalLM", experts]);
    // A family that is served, with experts.
    check_config(&json!({"model_type": "llama", "num_local_experts": 4}), &["llama", experts, "mistralai/"]);
    // One expert is a feed-forward, and what is not known is said.
    check_config(&json!({"model_type": "new", "num_experts": 1}), &["not supported here; supported: llama", ANY.name]);
    check_config(&json!({"model_type": 7}), &["\"7\"", "supported: llama"]);
}

#[test]
fn a_mixtral_in_a_gguf_file_is_told_by_its_experts() {
    let llama = [("general.architecture", "llama")];
    let words = ["llama.expert_count", "a mixture of experts", "mistralai/Mistral-7B-Instruct-v0.3"];
    check_gguf(&llama, &[("llama.expert_count", 8)], &[], &words);
    check_gguf(&llama, &[], &["blk.0.ffn_gate_exps.weight"], &words);
    check_gguf(&llama, &[], &["blk.0.ffn_gate.0.weight"], &words);
    let granite = [("general.architecture", "granite")];
    check_gguf(&granite, &[("granite.expert_count", 32)], &[], &["a mixture of experts", "ibm-granite/"]);
}

#[test]
fn files_that_hold_no_language_model_say_what_they_hold() {
    check_gguf(&[("general.type", "adapter"), ("general.architecture", "llama")], &[], &[], &["LoRA", "merged"]);
    check_gguf(&[("general.type", "imatrix")], &[], &[], &["imatrix", "important"]);
    check_gguf(&[("general.type", "mmproj"), ("general.architecture", "clip")], &[], &[], &["projects images"]);
    check_gguf(&[("general.architecture", "clip")], &[], &[], &["projects images"]);
    check_gguf(&[("general.architecture", "controlvector")], &[], &[], &["steers"]);
    check_gguf(&[("general.architecture", "new")], &[], &[], &["\"new\"", "supported: llama, ", ANY.name]);
}
