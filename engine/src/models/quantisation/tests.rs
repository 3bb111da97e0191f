use super::*;
use crate::models::{ModelDescription, ModelFiles};
use serde_json::json;
use std::path::PathBuf;

fn read(quantisation: Value) -> Result<Option<Quantisation>, ConfigError> {
    let config = Config::parse(json!({"quantization_config": quantisation}).to_string().as_bytes());
    config.expect("an object").quantisation()
}

fn check(quantisation: Value, expected: Quantisation) {
    assert_eq!(read(quantisation.clone()), Ok(Some(expected)), "{quantisation}");
}

fn check_refused(quantisation: Value, parts: &[&str]) {
    check_says(&read(quantisation.clone()).expect_err("it is not read"), parts);
}

/// Checks that an error says all of this and, where it is no broken value, what works instead.
fn check_says(error: &ConfigError, parts: &[&str]) {
    let is_refusal = !matches!(error, ConfigError::Missing { .. } | ConfigError::Value { .. });
    let instead = is_refusal.then_some("what works instead: the same model in bf16, or a Q4_K_M or Q8_0 GGUF of it");
    let error = error.to_string();
    for part in parts.iter().copied().chain(instead) {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

/// A config of compressed-tensors with a group of these weights.
fn compressed(format: &str, weights: Value) -> Value {
    json!({"quant_method": "compressed-tensors", "format": format,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}})
}

#[test]
fn every_way_that_is_read_is_told() {
    let scaled = |block| Quantisation::Scaled { block };
    let gptq = |zero_offset| Quantisation::Gptq { zero_offset };
    check(json!({"quant_method": "gptq", "bits": 4}), gptq(1));
    check(json!({"quant_method": "gptq", "bits": 8, "checkpoint_format": "gptq"}), gptq(1));
    check(json!({"quant_method": "gptq", "bits": 3, "checkpoint_format": "gptq_v2"}), gptq(0));
    check(json!({"quant_method": "gptq", "bits": 2, "format": "gptq_v2", "pack_dtype": "int32"}), gptq(0));
    check(json!({"quant_method": "awq", "bits": 4, "version": "GEMM", "zero_point": true}), Quantisation::Awq);
    check(json!({"quant_method": "fp8", "weight_block_size": [128, 128]}), scaled(Some([128, 128])));
    check(json!({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": null}), scaled(None));
    check(json!({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}), scaled(None));
    check(json!({"quant_method": "modelopt", "quant_algo": "FP8"}), scaled(None));
    check(compressed("pack-quantized", json!({"num_bits": 4, "type": "int", "group_size": 128})), scaled(None));
    check(compressed("int-quantized", json!({"num_bits": 8, "type": "int"})), scaled(None));
    let blocks = json!({"num_bits": 8, "type": "float", "block_structure": [128, 64]});
    check(compressed("float-quantized", blocks), scaled(Some([128, 64])));
    let mut mixed = compressed("mixed-precision", json!({"num_bits": 8}));
    mixed["config_groups"]["group_0"]["format"] = json!("int-quantized");
    mixed["sparsity_config"] = json!({});
    mixed["transform_config"] = json!({});
    check(mixed, scaled(None));
    let mut unnamed = compressed("int-quantized", json!({"num_bits": 8}));
    unnamed.as_object_mut().expect("it is one").remove("quant_method");
    check(unnamed, scaled(None));
    assert_eq!(Config::parse(b"{}").expect("an object").quantisation(), Ok(None));
}

#[test]
fn what_is_not_read_is_named_with_what_is() {
    check_refused(json!({"bits": 4}), &["quantization_config.quant_method", "missing"]);
    for method in ["bitsandbytes", "hqq", "exl2", "aqlm", "mxfp4", "torchao"] {
        let named = format!("quantization_config.quant_method is {method:?}");
        check_refused(json!({"quant_method": method}), &[&named, "gptq, awq, fp8"]);
    }
    check_refused(json!([]), &["quantization_config", "an object"]);
    check_refused(json!({"quant_method": "gptq", "bits": 5}), &["bits", "5", "2, 3, 4, 8"]);
    check_refused(json!({"quant_method": "gptq", "checkpoint_format": "marlin"}), &["checkpoint_format", "marlin"]);
    check_refused(json!({"quant_method": "gptq", "bits": 4, "pack_dtype": "int8"}), &["pack_dtype", "int32"]);
    check_refused(json!({"quant_method": "awq", "bits": 4, "version": "gemv"}), &["version", "gemv", "gemm"]);
    check_refused(json!({"quant_method": "awq", "bits": 8}), &["bits", "8"]);
    check_refused(json!({"quant_method": "fp8", "fmt": "e5m2"}), &["fmt", "e5m2", "e4m3"]);
    check_refused(json!({"quant_method": "fp8", "weight_block_size": [128]}), &["weight_block_size", "two"]);
    check_refused(json!({"quant_method": "fp8", "weight_block_size": [0, 128]}), &["weight_block_size", "above 0"]);
    check_refused(json!({"quant_method": "modelopt"}), &["quant_algo", "missing"]);
    check_refused(json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}), &["quant_algo", "NVFP4", "FP8"]);
    check_refused(json!({"quant_method": "compressed-tensors"}), &["config_groups", "missing"]);
    for format in ["nvfp4-pack-quantized", "mxfp4-pack-quantized", "marlin-24"] {
        check_refused(compressed(format, json!({"num_bits": 4})), &["format", format, "pack-quantized"]);
    }
    let floats = compressed("float-quantized", json!({"num_bits": 4, "type": "float"}));
    check_refused(floats, &["config_groups.group_0.weights.num_bits", "4", "8"]);
    check_refused(compressed("pack-quantized", json!({"num_bits": 5, "type": "int"})), &["num_bits", "5"]);
    let mut sparse = compressed("int-quantized", json!({"num_bits": 8}));
    sparse["sparsity_config"] = json!({"format": "sparse-24-bitmask"});
    check_refused(sparse, &["sparsity_config.format", "sparse-24-bitmask"]);
    let mut rotated = compressed("int-quantized", json!({"num_bits": 8}));
    rotated["transform_config"] = json!({"config_groups": {"u": {"type": "hadamard"}}});
    check_refused(rotated, &["transform_config", "rotated"]);
    let mut blocks =
        compressed("float-quantized", json!({"num_bits": 8, "type": "float", "block_structure": [1, 128]}));
    blocks["config_groups"]["group_1"] =
        json!({"weights": {"num_bits": 8, "type": "float", "block_structure": [128, 128]}});
    check_refused(blocks, &["block_structure", "one for all groups"]);
}

#[test]
fn it_is_found_wherever_a_config_says_it() {
    let (fp8, gptq) = (json!({"quant_method": "fp8"}), json!({"quant_method": "gptq", "bits": 4}));
    let scaled = Quantisation::Scaled { block: None };
    let old = compressed("pack-quantized", json!({"num_bits": 4, "type": "int"}));
    for config in [
        json!({"text_config": {"quantization_config": fp8}}),
        json!({"compression_config": old}),
        json!({"text_config": {"compression_config": old}}),
        json!({"quantization_config": fp8, "text_config": {"quantization_config": gptq}}),
        json!({"quantization_config": null, "compression_config": old, "text_config": {}}),
    ] {
        let read = Config::parse(config.to_string().as_bytes()).expect("an object").quantisation();
        assert_eq!(read, Ok(Some(scaled)), "{config}");
    }
    let inner = json!({"text_config": {"quantization_config": {"quant_method": "hqq"}}});
    let error = Config::parse(inner.to_string().as_bytes()).expect("an object").quantisation().expect_err("refused");
    check_says(&error, &["text_config.quantization_config.quant_method", "hqq"]);
}

#[test]
fn weights_of_mlx_are_told_though_it_names_no_method() {
    let mlx = json!({"group_size": 64, "bits": 4});
    for config in [json!({"quantization": mlx}), json!({"quantization": mlx, "quantization_config": mlx})] {
        let error = Config::parse(config.to_string().as_bytes()).expect("an object").quantisation();
        check_says(&error.expect_err("it is not read"), &["4 bits in groups of 64", "MLX"]);
    }
}

#[test]
fn the_own_file_of_modelopt_is_read() {
    let read = |quantisation: Value| {
        let file = json!({"producer": {"name": "modelopt", "version": "0.33.0"}, "quantization": quantisation});
        Config::parse(file.to_string().as_bytes()).expect("an object").modelopt_quantisation()
    };
    let fp8 = json!({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]});
    assert_eq!(read(fp8), Ok(Some(Quantisation::Scaled { block: None })));
    assert_eq!(read(json!({"quant_algo": null, "kv_cache_quant_algo": "FP8"})), Ok(None));
    for algorithm in ["NVFP4", "W4A8_AWQ", "FP8_PB_WO", "MIXED_PRECISION"] {
        let error = read(json!({"quant_algo": algorithm})).expect_err("it is not read");
        check_says(&error, &[&format!("quantization.quant_algo is {algorithm:?}"), "supported: FP8"]);
    }
}

#[test]
fn the_own_file_of_modelopt_counts_where_config_json_says_nothing() {
    let made = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/reference/quantised/modelopt");
    let dir = tempfile::TempDir::new().expect("a directory");
    std::fs::copy(made.join("model.safetensors"), dir.path().join("model.safetensors")).expect("it is copied");
    let config = std::fs::read(made.join("config.json")).expect("it is there");
    let mut config: Value = serde_json::from_slice(&config).expect("it is JSON");
    config.as_object_mut().expect("it is an object").remove("quantization_config").expect("it was there");
    std::fs::write(dir.path().join("config.json"), config.to_string()).expect("it is written");
    let say = |algorithm: &str| {
        let said = json!({"quantization": {"quant_algo": algorithm}}).to_string();
        std::fs::write(dir.path().join(MODELOPT_FILE), said).expect("it is written");
    };
    say("FP8");
    let formats = |dir: &std::path::Path| ModelFiles::load(dir).expect("it loads").describe().formats;
    assert_eq!(formats(dir.path()), formats(&made));
    say("NVFP4");
    let error = ModelDescription::read(dir.path()).expect_err("it is not read").to_string();
    assert!(error.contains(MODELOPT_FILE) && error.contains("NVFP4") && error.contains("works instead"), "{error}");
}
