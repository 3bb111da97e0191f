//! Quantised safetensors, which `make_quantised.py` made: the numbers that the exporters' own code dequantises, bit for
//! bit; packed within the bounds that the engine states; and the greedy tokens of transformers with these weights.

use crate::golden::folder;
use crate::run::{Cut, Run};
use domain::{Dtype, Token};
use engine::checkpoint::{Checkpoint, Quantisation, TensorView};
use engine::cpu::CpuModel;
use engine::models::ModelFiles;
use engine::quant::{Q8_0_ERROR_MAX, WeightFormat};
use engine::spec::ModelSpec;
use half::{bf16, f16};
use safetensors::SafeTensors;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;

const CUTS: [Cut; 2] = [Cut::new(16, 16, 2), Cut::new(64, 32, 1)];
/// Goldens have every seventh row of a matrix, and the logits of every fourth decoded token.
const ROW_STRIDE: usize = 7;
const DECODE_STRIDE: usize = 4;
/// Error of a logit as a share of the largest, which is that of rounding activations to 8 bits: models whose packing
/// loses nothing have as much of it as the others. `gguf.rs` says more.
const TOLERANCE: f32 = 2e-2;

/// What packing may change.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    Nothing,
    /// The offset of a block is rounded: a share of its step.
    Offset,
    /// A share of the largest of 32.
    Repacked,
}

/// What a golden says besides tensors.
#[derive(Deserialize)]
struct Golden {
    prompt: Vec<Token>,
    generated: Vec<Token>,
}

fn case(name: &str) -> PathBuf {
    folder().join("quantised").join(name)
}

/// Calls `body` with the tensors of a golden.
fn with_golden(name: &str, body: impl FnOnce(&SafeTensors<'_>)) {
    let bytes = std::fs::read(case(name).join("golden.safetensors")).expect("make_quantised.py made it");
    body(&SafeTensors::deserialize(&bytes).expect("make_quantised.py made it"));
}

/// Rounds numbers as a golden's tensor has them, and returns its bytes.
fn rounded(numbers: &[f32], dtype: safetensors::Dtype) -> Vec<u8> {
    match dtype {
        safetensors::Dtype::BF16 => numbers.iter().flat_map(|n| bf16::from_f32(*n).to_le_bytes()).collect(),
        safetensors::Dtype::F16 => numbers.iter().flat_map(|n| f16::from_f32(*n).to_le_bytes()).collect(),
        safetensors::Dtype::F32 => numbers.iter().flat_map(|n| n.to_le_bytes()).collect(),
        other => panic!("a golden in {other:?}"),
    }
}

/// Returns whether the numbers of a tensor are those of the golden.
fn is_golden(tensor: &TensorView<'_>, golden: &safetensors::tensor::TensorView<'_>) -> bool {
    let rows = (0..tensor.height()).step_by(ROW_STRIDE);
    let numbers: Vec<f32> = rows.flat_map(|row| tensor.widened(row..row + 1)).collect();
    rounded(&numbers, golden.dtype()) == golden.data()
}

/// The largest change that packing makes, as a share of what its bound is about.
fn loss(tensor: &TensorView<'_>, loss: Loss) -> f32 {
    let wanted = tensor.widened(0..tensor.height());
    let packed = tensor.rows(0..tensor.height()).concat();
    let mut found = vec![0.0; wanted.len()];
    tensor.format.dequantise(&packed, &mut found);
    let mut largest_share = 0.0f32;
    for (block, (wanted, found)) in wanted.chunks(32).zip(found.chunks(32)).enumerate() {
        let largest = wanted.iter().fold(0.0f32, |largest, number| largest.max(number.abs()));
        let at = block * tensor.format.block_bytes();
        let unit =
            if loss == Loss::Offset { f16::from_le_bytes([packed[at], packed[at + 1]]).to_f32() } else { largest };
        assert!(unit > 0.0, "the blocks hold something");
        let error = wanted.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        largest_share = largest_share.max(error / unit);
    }
    largest_share
}

/// The matrices have the golden's numbers; those of modules named so are packed as `format` and lose this.
fn check_matrices(name: &str, packed: &[(&str, WeightFormat, Loss)]) -> ModelFiles {
    let files = ModelFiles::load(&case(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    with_golden(name, |golden| {
        let matrices = golden.names().into_iter().filter(|tensor| *tensor != "logits");
        let mut count = 0;
        for key in matrices {
            let tensor = files.checkpoint.tensor(key).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(is_golden(&tensor, &golden.tensor(key).expect("it is there")), "{name}: {key} has other numbers");
            let expected = packed.iter().find(|(module, ..)| key.contains(module)).expect("each module is expected");
            assert_eq!(tensor.format, expected.1, "{name}: {key}");
            let share = loss(&tensor, expected.2);
            println!("{name}: {key} is packed as {} and loses {share:.1e}", tensor.format);
            let allowed = match expected.2 {
                Loss::Nothing => 0.0,
                // Sums of the product and the offset are rounded, too.
                Loss::Offset => 15.0 / 2048.0 + 1e-5,
                Loss::Repacked => Q8_0_ERROR_MAX,
            };
            assert!(share <= allowed, "{name}: {key} loses {share:e} of {allowed:e}");
            count += 1;
        }
        assert_eq!(count, 7, "{name}: matrices of a layer");
    });
    files
}

/// As [`check_matrices`]; and the model says what transformers says.
fn check(name: &str, dtype: Dtype, packed: &[(&str, WeightFormat, Loss)]) {
    let files = check_matrices(name, packed);
    assert_eq!(files.spec.dtype, dtype, "{name}");
    let said = std::fs::read(case(name).join("golden.json")).expect("make_quantised.py made it");
    let Golden { prompt, generated } = serde_json::from_slice(&said).expect("make_quantised.py made it");
    // The cache is not to round.
    let spec = ModelSpec { dtype: Dtype::F32, ..files.spec.clone() };
    let model = Arc::new(CpuModel::load(spec, &files.checkpoint, &mut |_| {}).expect("the model loads"));
    let decoded = &generated[..generated.len() - 1];
    let [outcome, other] = CUTS
        .map(|cut| Run::new(model.clone(), prompt.len() + decoded.len(), cut).sequence(&prompt, decoded, cut.chunk));
    let last = prompt.len() as u32 - 1;
    assert!(outcome.range(last..).eq(other.range(last..)), "{name}: the logits depend on the chunks");
    with_golden(name, |golden| {
        let golden = golden.tensor("logits").expect("it is there");
        let logits: Vec<f32> = golden.data().chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let largest = logits.iter().fold(0.0f32, |largest, logit| logit.abs().max(largest));
        let mut error = 0.0f32;
        for (index, expected) in logits.chunks(golden.shape()[1]).enumerate() {
            let (found, _) = &outcome[&(last + (index * DECODE_STRIDE) as u32)];
            error = expected.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(error, f32::max);
        }
        println!("{name}: error {error:.1e} of {largest:.1}, a share of {:.1e}", error / largest);
        assert!(error <= TOLERANCE * largest, "{name}: error {error:e} of {largest}");
    });
    let tokens: Vec<Token> = outcome.range(last..).map(|(_, (_, token))| *token).collect();
    assert_eq!(tokens, generated, "{name}");
}

#[test]
fn gptq_is_read_in_all_sizes_and_orders() {
    use WeightFormat::{Q4_0, Q4_1, Q8_0};
    check("gptq", Dtype::F16, &[("", Q4_0, Loss::Nothing)]);
    check("gptq-order", Dtype::F16, &[("", Q8_0, Loss::Repacked)]);
    let by_bits = [
        ("q_proj", Q4_0, Loss::Nothing),
        ("k_proj", Q4_0, Loss::Nothing),
        ("v_proj", Q4_1, Loss::Offset),
        ("o_proj", Q8_0, Loss::Nothing),
        ("gate_proj", Q4_0, Loss::Nothing),
        ("up_proj", Q4_0, Loss::Nothing),
        ("down_proj", Q8_0, Loss::Repacked),
    ];
    check("gptq-bits", Dtype::F16, &by_bits);
}

#[test]
fn awq_is_read() {
    check("awq", Dtype::F16, &[("", WeightFormat::Q4_1, Loss::Offset)]);
}

#[test]
fn compressed_tensors_are_read_in_all_formats() {
    use WeightFormat::{Plain, Q4_1, Q8_0};
    let mixed = [
        ("self_attn", Q4_1, Loss::Offset),
        ("down_proj", Plain(Dtype::Bf16), Loss::Nothing),
        ("mlp", Q8_0, Loss::Nothing),
    ];
    check("compressed-mixed", Dtype::Bf16, &mixed);
    let plain = Plain(Dtype::Bf16);
    let beside = [("q_proj", plain, Loss::Nothing), ("up_proj", plain, Loss::Nothing), ("", Q4_1, Loss::Offset)];
    check("compressed-plain", Dtype::Bf16, &beside);
    check("compressed-order", Dtype::Bf16, &[("", Q8_0, Loss::Repacked)]);
    let int8 = [("self_attn", Q8_0, Loss::Nothing), ("down_proj", Q8_0, Loss::Nothing), ("mlp", Q8_0, Loss::Repacked)];
    check("compressed-int8", Dtype::Bf16, &int8);
    check("compressed-fp8", Dtype::Bf16, &[("", Q8_0, Loss::Repacked)]);
}

#[test]
fn a_plain_matrix_leaves_the_others_of_its_layer_as_they_are() {
    let files = ModelFiles::load(&case("compressed-plain")).expect("it loads");
    let model = CpuModel::load(files.spec.clone(), &files.checkpoint, &mut |_| {}).expect("the model loads");
    let found: Vec<usize> = model.linears().take(4).map(|linear| linear.bytes).collect();
    let bf16 = |numbers: usize| 2 * numbers;
    let q4_1 = |numbers: usize| numbers / 32 * 20;
    // Queries, and the way up, are plain.
    let qkv = bf16(64 * 64) + q4_1(2 * 32 * 64);
    assert_eq!(found, [qkv, q4_1(64 * 64), bf16(128 * 64) + q4_1(128 * 64), q4_1(64 * 128)]);
}

#[test]
fn fp8_is_read_with_scales_of_blocks_and_of_tensors() {
    check("fp8", Dtype::Bf16, &[("", WeightFormat::Q8_0, Loss::Repacked)]);
    check("modelopt", Dtype::Bf16, &[("", WeightFormat::Q8_0, Loss::Repacked)]);
}

#[test]
fn a_model_says_what_its_matrices_are_and_become() {
    let formats = |name: &str| -> Vec<(String, usize, Option<WeightFormat>)> {
        let info = ModelFiles::load(&case(name)).expect("it loads").describe();
        let shares = info.formats.into_iter().map(|share| {
            assert!(share.is_read, "{share:?}");
            (share.format, share.tensors, share.packed)
        });
        shares.collect()
    };
    let plain = ("F16".to_owned(), 5, None);
    assert_eq!(formats("gptq"), [("GPTQ INT4".to_owned(), 7, Some(WeightFormat::Q4_0)), plain.clone()]);
    assert_eq!(formats("awq"), [("AWQ INT4".to_owned(), 7, Some(WeightFormat::Q4_1)), plain]);
    let fp8 = formats("fp8");
    assert_eq!(fp8[0], ("FP8".to_owned(), 7, Some(WeightFormat::Q8_0)));
    let info = ModelFiles::load(&case("gptq")).expect("it loads").describe();
    let stored = std::fs::metadata(case("gptq").join("model.safetensors")).expect("it is there").len();
    assert!(info.weight_bytes < stored && info.weight_bytes > stored - 8192, "all but the header counts");
}

#[test]
fn another_reading_has_other_numbers() {
    let differs = |name: &str, quantisation| {
        let checkpoint = Checkpoint::open(&case(name)).expect("it opens").with_quantisation(quantisation);
        let key = "model.layers.0.mlp.down_proj.weight";
        with_golden(name, |golden| {
            let tensor = checkpoint.tensor(key).expect("its shapes fit");
            assert!(!is_golden(&tensor, &golden.tensor(key).expect("it is there")), "{name}");
        });
    };
    differs("gptq", Quantisation::Gptq { zero_offset: 0 });
    differs("gptq-order", Quantisation::Gptq { zero_offset: 1 });
    // As many blocks of [64, 128] as the right ones.
    differs("compressed-fp8", Quantisation::Scaled { block: Some([30, 48]) });
}
