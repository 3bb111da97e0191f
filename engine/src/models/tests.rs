mod rope;
mod wrapper;

use super::config::Config;
use super::*;
use crate::random::RandomSpec;
use crate::spec::{ModelSpec, QkNorm, Rope, RopeScaling};
use domain::Dtype;
use serde_json::{Value, json};

/// Returns a small config of `model_type` with `changes` on top; a change to `null` under the key `-key` removes the
/// key.
fn config(model_type: &str, changes: Value) -> Config {
    let mut config = json!({
        "model_type": model_type,
        "vocab_size": 100,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1000,
        "bos_token_id": 1,
        "eos_token_id": 2,
    });
    for (key, value) in changes.as_object().expect("changes are an object") {
        match key.strip_prefix('-') {
            Some(removed) => _ = config.as_object_mut().expect("it is an object").remove(removed),
            None => config[key] = value.clone(),
        }
    }
    Config::parse(config.to_string().as_bytes()).expect("it is an object")
}

fn spec(model_type: &str, changes: Value) -> ModelSpec {
    read_spec(&config(model_type, changes.clone()), None).unwrap_or_else(|error| panic!("{changes}: {error}"))
}

/// The config is refused, and the error has all of `parts`.
fn check_refused(model_type: &str, changes: Value, parts: &[&str]) {
    let error = read_spec(&config(model_type, changes.clone()), None).expect_err("it cannot be run").to_string();
    for part in parts {
        assert!(error.contains(part), "{changes}: {error:?} does not say {part:?}");
    }
}

#[test]
fn both_spellings_say_the_same() {
    let scaling = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128});
    let mut parameters = scaling.clone();
    parameters["rope_theta"] = json!(500000.0);
    let four = spec("llama", json!({"rope_theta": 500000.0, "rope_scaling": scaling, "torch_dtype": "bfloat16"}));
    let five = spec("llama", json!({"rope_parameters": parameters, "dtype": "bfloat16"}));
    assert_eq!(four, five);
    assert_eq!(four.dtype, Dtype::Bf16);
    let expected =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 128.0 };
    assert_eq!(four.ropes, vec![Rope { theta: 500_000.0, dims: 8, scaling: expected }; 4]);

    let rope = |family, changes| spec(family, changes).ropes[0].clone();
    let linear = Rope { theta: 10_000.0, dims: 8, scaling: RopeScaling::Linear { factor: 2.0 } };
    assert_eq!(rope("llama", json!({"rope_scaling": {"type": "linear", "factor": 2.0}})), linear);
    let plain = Rope { theta: 1e6, dims: 8, scaling: RopeScaling::None };
    assert_eq!(rope("qwen2", json!({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})), plain);
    assert_eq!(rope("qwen2", json!({"rope_scaling": null, "rope_theta": 1000000})), plain);
    assert_eq!(rope("llama", json!({})), Rope { theta: 10_000.0, ..plain });
}

#[test]
fn llama_has_biases_where_it_says_so() {
    let plain = spec("llama", json!({}));
    assert_eq!((plain.qkv_bias, plain.output_bias, plain.mlp_bias, plain.qk_norm), (false, false, false, QkNorm::None));
    assert_eq!((plain.heads, plain.kv_heads, plain.head_dim, plain.tied), (8, 2, 8, false));
    assert_eq!(plain.windows(), [None; 4]);
    let biased = spec("llama", json!({"attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true}));
    assert_eq!((biased.qkv_bias, biased.output_bias, biased.mlp_bias, biased.tied), (true, true, true, true));
    // A window is not part of the form, whatever the file says.
    assert_eq!(spec("llama", json!({"sliding_window": 16})).windows(), [None; 4]);
}

#[test]
fn head_width_and_kv_heads_have_each_familys_defaults() {
    let absent =
        json!({"-head_dim": null, "-num_key_value_heads": null, "num_attention_heads": 32, "hidden_size": 256});
    let shape = |model_type| {
        let spec = spec(model_type, absent.clone());
        (spec.kv_heads, spec.head_dim)
    };
    assert_eq!(shape("llama"), (32, 8));
    assert_eq!(shape("mistral"), (8, 8));
    assert_eq!(shape("qwen2"), (32, 8));
    assert_eq!(shape("qwen3"), (32, 128));
    assert_eq!(spec("mistral", json!({"num_key_value_heads": null})).kv_heads, 8);
    assert_eq!(spec("qwen3", json!({"head_dim": 32})).head_dim, 32);
    assert_eq!(spec("llama", json!({"head_dim": 22, "hidden_size": 61})).head_dim, 22);
}

#[test]
fn mistral_has_one_window_or_none() {
    assert_eq!(spec("mistral", json!({"sliding_window": 64})).windows(), [Some(64); 4]);
    assert_eq!(spec("mistral", json!({"sliding_window": null})).windows(), [None; 4]);
    let long = json!({"max_position_embeddings": 32768});
    assert_eq!(spec("mistral", long).windows(), [Some(4096); 4]);
    // No context outgrows the window.
    assert_eq!(spec("mistral", json!({})).windows(), [None; 4]);
    assert_eq!(spec("mistral", json!({"sliding_window": 1000})).windows(), [None; 4]);
    assert_eq!(spec("mistral", json!({"sliding_window": 999})).windows(), [Some(999); 4]);
}

#[test]
fn qwen_has_windows_in_the_layers_that_it_names() {
    for family in ["qwen2", "qwen3"] {
        let on = json!({"use_sliding_window": true, "sliding_window": 64, "max_window_layers": 3});
        assert_eq!(spec(family, on.clone()).windows(), [None, None, None, Some(64)]);
        let mut off = on.clone();
        off["use_sliding_window"] = json!(false);
        assert_eq!(spec(family, off).windows(), [None; 4]);
        let mut listed = on.clone();
        listed["layer_types"] = json!(["sliding_attention", "full_attention", "sliding_attention", "full_attention"]);
        let listed = spec(family, listed);
        assert_eq!(listed.windows(), [Some(64), None, Some(64), None]);
        let groups = listed.kv_groups();
        assert_eq!(groups.iter().map(|group| group.layers.as_slice()).collect::<Vec<_>>(), [[0, 2], [1, 3]]);
    }
    assert!(spec("qwen2", json!({})).qkv_bias && !spec("qwen2", json!({})).output_bias);
    let qwen3 = spec("qwen3", json!({}));
    assert_eq!((qwen3.qk_norm, qwen3.qkv_bias), (QkNorm::Heads, false));
}

#[test]
fn tokens_that_end_a_sequence_come_from_both_files() {
    let generation = |value: Value| Config::parse(value.to_string().as_bytes()).expect("it is an object");
    let eos = |first: Value, second: Value| {
        let generation = generation(json!({"eos_token_id": second}));
        read_spec(&config("llama", json!({"eos_token_id": first})), Some(&generation)).map(|spec| spec.eos)
    };
    assert_eq!(eos(json!(2), json!([3, 2, 4])), Ok(vec![2, 3, 4]));
    assert_eq!(eos(json!([5, 6]), json!(null)), Ok(vec![5, 6]));
    assert_eq!(eos(json!(null), json!(7)), Ok(vec![7]));
    assert!(eos(json!(2), json!([3, 100])).expect_err("above the vocabulary").to_string().contains("below vocab_size"));
    let bos =
        read_spec(&config("llama", json!({"-bos_token_id": null})), Some(&generation(json!({"bos_token_id": 9}))));
    assert_eq!(bos.map(|spec| spec.bos), Ok(Some(9)));
}

#[test]
fn what_is_not_supported_is_named_with_what_is() {
    let families = "llama (LlamaForCausalLM), mistral (MistralForCausalLM), qwen2 (Qwen2ForCausalLM), qwen3";
    check_refused("x", json!({}), &["model_type", "\"x\"", families]);
    check_refused("x", json!({"-model_type": null}), &["model_type is missing"]);
    check_refused("x", json!({"-model_type": null, "architectures": ["Other"]}), &["architectures", "Other", families]);
    let reward = json!({"architectures": ["LlamaForSequenceClassification"]});
    check_refused("llama", reward, &["architectures", "LlamaForSequenceClassification", "LlamaForCausalLM"]);
    check_refused("llama", json!({"hidden_act": "gelu"}), &["hidden_act", "gelu", "silu"]);
    let nested = json!({"rope_parameters": {"full_attention": {"rope_type": "default"}}});
    check_refused("qwen3", nested, &["rope_parameters.full_attention", "one rotary embedding"]);
    check_refused("llama", json!({"partial_rotary_factor": 0.5}), &["partial_rotary_factor", "0.5"]);
    check_refused("qwen2", json!({"layer_types": vec!["chunked_attention"; 4]}), &["layer_types", "chunked_attention"]);
    check_refused("llama", json!({"torch_dtype": "float8_e4m3fn"}), &["torch_dtype", "float8", "bfloat16"]);
}

#[test]
fn values_out_of_range_are_named() {
    check_refused("llama", json!({"-hidden_size": null}), &["hidden_size is missing"]);
    check_refused("llama", json!({"hidden_size": "64"}), &["hidden_size", "\"64\"", "a whole number from 1"]);
    check_refused("llama", json!({"hidden_size": -64}), &["hidden_size", "-64"]);
    check_refused("llama", json!({"vocab_size": 0}), &["vocab_size is 0"]);
    check_refused("llama", json!({"num_hidden_layers": 1e9}), &["num_hidden_layers"]);
    check_refused("llama", json!({"num_key_value_heads": 3}), &["num_key_value_heads", "divisor", "8"]);
    check_refused("llama", json!({"head_dim": 7}), &["head_dim", "even"]);
    check_refused("llama", json!({"hidden_size": 65}), &["head_dim is missing"]);
    check_refused("llama", json!({"rms_norm_eps": 0}), &["rms_norm_eps", "above 0"]);
    check_refused("llama", json!({"rope_theta": "x"}), &["rope_theta"]);
    check_refused("llama", json!({"attention_bias": 1}), &["attention_bias", "true or false"]);
    check_refused("llama", json!({"eos_token_id": 100}), &["eos_token_id", "100"]);
    check_refused("mistral", json!({"sliding_window": 0}), &["sliding_window", "null or a whole number"]);
    check_refused("qwen2", json!({"layer_types": ["full_attention"]}), &["layer_types", "4 layers"]);
    assert!(Config::parse(b"[1]").expect_err("a list").to_string().contains("not a JSON object"));
    assert!(Config::parse(b"{").expect_err("cut off").to_string().contains("not a JSON object"));
}

#[test]
fn a_long_value_is_cut_in_errors() {
    check_refused("llama", json!({"hidden_size": "ü".repeat(1000)}), &["…", "a whole number"]);
    let error = read_spec(&config("llama", json!({"hidden_size": "ü".repeat(1000)})), None).expect_err("a text");
    assert!(error.to_string().chars().count() < 200);
}

#[test]
fn a_model_is_described_from_its_files() {
    let dir = tempfile::TempDir::new().expect("a directory");
    let path = dir.path().join("my-model");
    let random = RandomSpec::named("qwen2", "tiny-window", 1, Some(Dtype::F32)).expect("it has a name");
    random.write(&path, &mut |_, _| {}).expect("it is written");
    let files = ModelFiles::load(&path).expect("it loads");
    let info = files.describe();
    assert_eq!((files.name.as_str(), info.spec.family, info.weight_files), ("my-model", "qwen2", 1));
    assert_eq!(info.parameters * 4, info.weight_bytes);
    let [all] = &info.formats[..] else { panic!("{:?}", info.formats) };
    assert_eq!((all.format.as_str(), all.is_read, all.bytes), ("F32", true, info.weight_bytes));
    assert_eq!(info.kv_bytes_per_token, 4 * 2 * (2 * 16) * 4);
    let row =
        info.tensors.iter().find(|row| row.name == "model.layers.*.self_attn.q_proj.weight").expect("it is listed");
    assert_eq!((row.shape.as_slice(), row.count, row.numbers), (&[64, 64][..], 4, 4 * 64 * 64));
}

#[test]
fn the_weights_decide_the_number_format() {
    let dir = tempfile::TempDir::new().expect("a directory");
    let random = RandomSpec::named("llama", "tiny", 1, Some(Dtype::F16)).expect("it has a name");
    random.write(dir.path(), &mut |_, _| {}).expect("it is written");
    let path = dir.path().join("config.json");
    let config = std::fs::read_to_string(&path).expect("it is there");
    assert!(config.contains("float16"));
    std::fs::write(&path, config.replace("float16", "float32")).expect("written");
    assert_eq!(ModelFiles::load(dir.path()).expect("it loads").spec.dtype, Dtype::F16);
    std::fs::write(&path, "{}").expect("written");
    let error = ModelFiles::load(dir.path()).expect_err("there is no family").to_string();
    assert!(error.contains("config.json") && error.contains("model_type is missing"), "{error}");
    std::fs::remove_file(&path).expect("it was there");
    assert!(ModelFiles::load(dir.path()).expect_err("no config").to_string().contains("config.json"));
}

#[test]
fn an_output_projection_that_differs_from_the_embedding_counts() {
    let with_tied = |tied: bool| {
        let dir = tempfile::TempDir::new().expect("a directory");
        let random = RandomSpec::named("llama", "tiny", 1, Some(Dtype::F32)).expect("it has a name");
        random.write(dir.path(), &mut |_, _| {}).expect("it is written");
        let path = dir.path().join("config.json");
        let config = std::fs::read_to_string(&path).expect("it is there");
        let changed = config.replace(r#""tie_word_embeddings": false"#, &format!(r#""tie_word_embeddings": {tied}"#));
        std::fs::write(&path, changed).expect("written");
        let described = ModelDescription::read(dir.path()).expect("it is read").spec.tied;
        (described, ModelFiles::load(dir.path()).expect("it loads").spec.tied)
    };
    assert_eq!(with_tied(true), (true, false));
    assert_eq!(with_tied(false), (false, false));
}

#[test]
fn an_output_projection_that_cannot_be_read_is_an_error_unless_config_json_ties_it() {
    let loaded = |said: Option<bool>| {
        let dir = tempfile::TempDir::new().expect("a directory");
        // A family whose default is that it is the embedding, with the weights of one that has it.
        let [config, model] = ["gemma2", "llama"].map(|family| {
            let random = RandomSpec::named(family, "tiny", 1, Some(Dtype::F32)).expect("it has a name");
            random.write(&dir.path().join(family), &mut |_, _| {}).expect("it is written");
            dir.path().join(family)
        });
        let config = std::fs::read(config.join("config.json")).expect("it is there");
        let mut config: Value = serde_json::from_slice(&config).expect("it is JSON");
        config["tie_word_embeddings"] = json!(said);
        std::fs::write(model.join("config.json"), config.to_string()).expect("written");
        let path = model.join("model.safetensors");
        let mut weights = std::fs::read(&path).expect("it is there");
        let find = |what: &[u8], from: usize| {
            let at = weights[from..].windows(what.len()).position(|window| window == what);
            from + at.expect("it is there")
        };
        let at = find(b"F32", find(b"\"lm_head.weight\"", 0));
        weights[at] = b'U';
        std::fs::write(&path, weights).expect("written");
        ModelFiles::load(&model).map(|files| files.spec.tied).map_err(|error| error.to_string())
    };
    assert_eq!(loaded(Some(true)), Ok(true));
    // It is asked for when the model is loaded.
    assert_eq!(loaded(Some(false)), Ok(false));
    let error = loaded(None).expect_err("nothing says that it is not needed");
    for part in ["lm_head.weight", "U32", "model.safetensors", "set tie_word_embeddings to true"] {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn the_generation_config_recommends_how_to_sample() {
    use super::files::sampling_defaults;
    use domain::SamplingParams;
    let read = |value: Value| {
        let generation = Config::parse(value.to_string().as_bytes()).expect("it is an object");
        sampling_defaults(Some(&generation))
    };
    let plain = SamplingParams::default();
    assert_eq!(sampling_defaults(None), Ok(plain.clone()));
    assert_eq!(read(json!({"eos_token_id": 3})), Ok(plain.clone()));
    assert_eq!(read(json!({"do_sample": false, "temperature": 0.7})).map(|params| params.temperature), Ok(0.0));
    let recommended = json!({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0, "repetition_penalty": 1.05});
    let wanted = SamplingParams { temperature: 0.6, top_p: 0.95, top_k: 20, repetition_penalty: 1.05, ..plain };
    assert_eq!(read(recommended), Ok(wanted));
    let temperature = |value| read(value).map(|params| params.temperature);
    // 0 is greedy, whether or not the file says so too.
    assert_eq!(temperature(json!({"temperature": 0})), Ok(0.0));
    assert_eq!(temperature(json!({"temperature": 0.0, "do_sample": true})), Ok(0.0));
    assert_eq!(temperature(json!({"temperature": null, "do_sample": null})), Ok(1.0));
    for off in [json!(-1), json!(0), json!(null), json!(-1.0)] {
        assert_eq!(read(json!({"top_k": off})).map(|params| params.top_k), Ok(0), "{off}");
    }
    assert_eq!(read(json!({"top_k": 50.0})).map(|params| params.top_k), Ok(50));
    let off = json!({"top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "temperature": 1});
    assert_eq!(read(off), Ok(SamplingParams::default()));
    let null = json!({"top_p": null, "min_p": null, "repetition_penalty": null});
    assert_eq!(read(null), Ok(SamplingParams::default()));
    // The smallest set that reaches nothing is the most probable token, as in requests.
    assert!(read(json!({"top_p": 0})).is_ok_and(|params| params.top_p > 0.0 && params.top_p < 1e-30));
    for (nonsense, words) in [
        (json!({"top_p": "much"}), "top_p is \"much\", but must be a number from 0"),
        (json!({"temperature": -0.5}), "temperature is -0.5, but must be a number from 0"),
        (json!({"top_k": -2}), "top_k is -2, but must be a whole number from -1 to 4294967295"),
        (json!({"top_k": 1.5}), "top_k is 1.5"),
        (json!({"min_p": -1}), "min_p is -1"),
        (json!({"repetition_penalty": 0}), "repetition_penalty is 0, but must be a number above 0"),
        (json!({"do_sample": "no"}), "do_sample"),
    ] {
        let error = read(nonsense).expect_err("refused").to_string();
        assert!(error.contains(words), "{error}");
    }
}
