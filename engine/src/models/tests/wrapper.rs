//! Models that read more than text.

use super::*;

fn parsed(config: &Value) -> Config {
    Config::parse(config.to_string().as_bytes()).expect("it is an object")
}

fn read(config: &Value) -> ModelSpec {
    read_spec(&parsed(config), None).unwrap_or_else(|error| panic!("{config}: {error}"))
}

fn check_wrapper_refused(config: &Value, parts: &[&str]) {
    let error = read_spec(&parsed(config), None).expect_err("it cannot be run").to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

/// config.json of Gemma 3 4B, without its vision tower's numbers.
fn gemma3() -> Value {
    json!({
        "architectures": ["Gemma3ForConditionalGeneration"],
        "boi_token_index": 255_999,
        "eoi_token_index": 256_000,
        "eos_token_id": [1, 106],
        "image_token_index": 262_144,
        "initializer_range": 0.02,
        "mm_tokens_per_image": 256,
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560,
            "intermediate_size": 10_240,
            "model_type": "gemma3_text",
            "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024
        },
        "torch_dtype": "bfloat16",
        "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"}
    })
}

/// config.json of Mistral Small 3.1, without its vision tower's numbers.
fn mistral3() -> Value {
    json!({
        "architectures": ["Mistral3ForConditionalGeneration"],
        "image_token_index": 10,
        "model_type": "mistral3",
        "text_config": {
            "attention_dropout": 0.0,
            "head_dim": 128,
            "hidden_act": "silu",
            "hidden_size": 5120,
            "intermediate_size": 32_768,
            "max_position_embeddings": 131_072,
            "model_type": "mistral",
            "num_attention_heads": 32,
            "num_hidden_layers": 40,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05,
            "rope_theta": 1_000_000_000.0,
            "sliding_window": null,
            "vocab_size": 131_072
        },
        "torch_dtype": "bfloat16",
        "vision_config": {"hidden_size": 1024, "model_type": "pixtral"}
    })
}

#[test]
fn gemma3_says_only_what_differs_from_its_class() {
    let spec = read(&gemma3());
    assert_eq!((spec.family, spec.vocab, spec.hidden, spec.layers), ("gemma3_text", 262_208, 2560, 34));
    assert_eq!((spec.heads, spec.kv_heads, spec.head_dim, spec.feed_forward_width_max()), (8, 4, 256, 10_240));
    assert_eq!((spec.context, spec.tied, spec.dtype), (131_072, true, Dtype::Bf16));
    assert_eq!((&spec.eos[..], spec.bos), (&[1, 106][..], Some(2)));
    for (layer, (rope, window)) in (1..).zip(spec.ropes.iter().zip(spec.windows())) {
        let expected = if layer % 6 == 0 {
            (1_000_000.0, RopeScaling::Linear { factor: 8.0 }, None)
        } else {
            (10_000.0, RopeScaling::None, Some(1024))
        };
        assert_eq!((rope.theta, rope.scaling.clone(), window), expected, "layer {layer}");
    }
    let mut silent = gemma3();
    silent["eos_token_id"] = json!(null);
    assert_eq!(read(&silent).eos, [1]);
}

#[test]
fn mistral3_is_a_mistral_or_a_ministral3() {
    let spec = read(&mistral3());
    assert_eq!((spec.family, spec.vocab, spec.layers, spec.context), ("mistral", 131_072, 40, 131_072));
    assert_eq!((&spec.eos[..], spec.bos, spec.dtype), (&[2][..], Some(1), Dtype::Bf16));
    assert_eq!(spec.windows(), [None; 40]);
    assert_eq!(spec.ropes[0].theta, 1e9);
    let mut untied = mistral3();
    untied["tie_word_embeddings"] = json!(false);
    assert!(spec.tied && !read(&untied).tied);

    let mut config = mistral3();
    config["text_config"] = json!({
        "model_type": "ministral3",
        "rope_parameters": {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16_384,
            "rope_theta": 1_000_000.0, "llama_4_scaling_beta": 0.1},
    });
    let spec = read(&config);
    assert_eq!((spec.family, spec.vocab, spec.layers, spec.head_dim), ("ministral3", 131_072, 34, 128));
    assert_eq!((spec.context, spec.norm_eps), (262_144, 1e-5));
    config["text_config"]["model_type"] = json!("mistral4");
    check_wrapper_refused(&config, &["text_config.model_type", "mistral4", "mistral, ministral3"]);
}

#[test]
fn what_is_wrong_is_named_with_its_part() {
    let mut config = gemma3();
    config["text_config"]["num_hidden_layers"] = json!("many");
    check_wrapper_refused(&config, &["text_config.num_hidden_layers", "many"]);
    let mut config = gemma3();
    config["eos_token_id"] = json!(300_000);
    check_wrapper_refused(&config, &["eos_token_id is 300000", "262208"]);
    let mut config = gemma3();
    config.as_object_mut().expect("it is one").remove("text_config");
    check_wrapper_refused(&config, &["text_config is missing"]);
    let mut config = gemma3();
    config["architectures"] = json!(["Gemma3ForSequenceClassification"]);
    check_wrapper_refused(&config, &["architectures", "Gemma3ForConditionalGeneration"]);
    let mut config = mistral3();
    config["text_config"]["rope_scaling"] = json!({"rope_type": "su", "factor": 2.0});
    check_wrapper_refused(&config, &["text_config.rope_scaling.rope_type", "su", "yarn"]);
}
