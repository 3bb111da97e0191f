use super::*;
use serde_json::json;

fn read(quantisation: Value) -> Result<Option<Quantisation>, ConfigError> {
    let config = Config::parse(json!({"quantization_config": quantisation}).to_string().as_bytes());
    config.expect("an object").quantisation()
}

fn check(quantisation: Value, expected: Quantisation) {
    assert_eq!(read(quantisation.clone()), Ok(Some(expected)), "{quantisation}");
}

fn check_refused(quantisation: Value, parts: &[&str]) {
    let error = read(quantisation.clone()).expect_err("it is not read").to_string();
    for part in parts {
        assert!(error.contains(part), "{quantisation}: {error:?} does not say {part:?}");
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
    assert_eq!(Config::parse(b"{}").expect("an object").quantisation(), Ok(None));
}

#[test]
fn what_is_not_read_is_named_with_what_is() {
    check_refused(json!({"bits": 4}), &["quantization_config.quant_method", "missing"]);
    check_refused(json!({"quant_method": "bitsandbytes"}), &["quant_method", "bitsandbytes", "gptq, awq, fp8"]);
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
