use crate::checkpoint::CheckpointError;
use crate::cpu::CpuModel;
use crate::cpu::tests::rig::files as random;
use crate::models::ModelFiles;
use crate::models::bind::LoadError;
use crate::quant::tests::random_blocks;
use crate::quant::{Q8_0_ERROR_MAX, Repacked};
use domain::Dtype;
use std::path::PathBuf;
use tempfile::TempDir;

/// Bytes of a GGUF file that the `gguf` package wrote, with tensors in many formats and no layer of a plain one.
fn mixed() -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/reference/gguf/mixed.gguf");
    std::fs::read(path).expect("it is there")
}

/// Returns where the list of tensors says the format of one that is a matrix.
fn kind_at(bytes: &[u8], name: &str) -> usize {
    let entry = [&(name.len() as u64).to_le_bytes()[..], name.as_bytes(), &2u32.to_le_bytes()].concat();
    let at = bytes.windows(entry.len()).position(|window| window == entry).expect("it is there");
    at + entry.len() + 2 * size_of::<u64>()
}

/// The same file with three tensors in formats that are repacked.
fn repacked() -> Vec<u8> {
    let mut bytes = mixed();
    for (name, kind, format, blocks) in [
        ("blk.0.ffn_down.weight", 6u32, Repacked::Q5_0, 256 * 64 / 32),
        ("blk.0.attn_output.weight", 7, Repacked::Q5_1, 256 * 64 / 32),
        ("output.weight", 11, Repacked::Q3K, 96),
    ] {
        let at = kind_at(&bytes, name);
        bytes[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        let offset = u64::from_le_bytes(bytes[at + 4..at + 12].try_into().expect("8 bytes")) as usize;
        let data = header_bytes(&mixed()) + offset;
        let weights = random_blocks(format, blocks);
        bytes[data..data + weights.len()].copy_from_slice(&weights);
    }
    bytes
}

/// Returns where the weights begin.
fn header_bytes(bytes: &[u8]) -> usize {
    let last = b"blk.0.ffn_norm.weight";
    let at = bytes.windows(last.len()).position(|window| window == last).expect("it is there");
    // One dimension, its size, the format and the offset.
    (at + last.len() + 4 + 8 + 4 + 8).next_multiple_of(32)
}

fn opened(dir: &TempDir, bytes: &[u8]) -> ModelFiles {
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("it is written");
    ModelFiles::load(&path).expect("it opens")
}

/// Checks that the plan says the bytes that a load takes.
#[track_caller]
fn check_bytes(files: &ModelFiles) {
    let plan = CpuModel::plan(&files.spec, &files.checkpoint).expect("it can be loaded");
    let model = CpuModel::load(files.spec.clone(), &files.checkpoint, &mut |_| {}).expect("it loads");
    assert_eq!(model.weight_bytes(), plan.bytes, "{}", files.spec.family);
}

#[test]
fn what_is_planned_is_what_a_load_takes() {
    for (family, dtype) in [
        ("llama", Dtype::F32),
        ("llama", Dtype::Bf16),
        ("qwen2", Dtype::F16),
        ("gemma2", Dtype::Bf16),
        ("phi3", Dtype::Bf16),
        ("olmo2", Dtype::Bf16),
    ] {
        check_bytes(&random(family, "tiny", dtype));
    }
    let dir = TempDir::new().expect("a directory");
    check_bytes(&opened(&dir, &mixed()));
    check_bytes(&opened(&dir, &repacked()));
    let quantised = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/reference/quantised");
    for method in ["awq", "gptq", "gptq-order", "fp8", "compressed-mixed", "compressed-plain"] {
        check_bytes(&ModelFiles::load(&quantised.join(method)).expect("it opens"));
    }
}

#[test]
fn what_is_repacked_is_told_with_its_memory_and_its_error() {
    let dir = TempDir::new().expect("a directory");
    let files = opened(&dir, &repacked());
    let mut shares = CpuModel::plan(&files.spec, &files.checkpoint).expect("it can be loaded").repacked;
    shares.sort_by_key(|share| share.stored_bytes);
    let rows: Vec<_> =
        shares.iter().map(|share| (&share.format[..], share.tensors, share.stored_bytes, share.kept_bytes)).collect();
    // Blocks of 32 take 34 bytes as Q8_0; panels keep the scales apart, in as many bytes.
    let kept = |numbers: u64| numbers / 32 * 34;
    assert_eq!(
        rows,
        [
            ("Q3_K", 1, 96 * 110, kept(96 * 256)),
            ("Q5_0", 1, 512 * 22, kept(256 * 64)),
            ("Q5_1", 1, 512 * 24, kept(256 * 64)),
        ]
    );
    for share in &shares {
        let error = share.error.expect("the weights are here");
        let is_exact = share.format == "Q5_0";
        assert_eq!(share.error_max, if is_exact { 0.0 } else { Q8_0_ERROR_MAX }, "{share:?}");
        assert!(error <= share.error_max && (error == 0.0) == is_exact, "{share:?}");
    }
    let plain = random("llama", "tiny", Dtype::F32);
    assert_eq!(CpuModel::plan(&plain.spec, &plain.checkpoint).expect("it can be loaded").repacked, []);
}

#[test]
fn quantised_safetensors_that_lose_something_are_told_too() {
    let told = |method: &str| {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/reference/quantised");
        let files = ModelFiles::load(&folder.join(method)).expect("it opens");
        let stored = files.checkpoint.formats().into_iter().map(|share| share.bytes).max().expect("it has weights");
        let repacked = CpuModel::plan(&files.spec, &files.checkpoint).expect("it can be loaded").repacked;
        let shares = repacked.into_iter().map(|share| {
            assert_eq!(share.error_max, Q8_0_ERROR_MAX, "{method}: {share:?}");
            let error = share.error.expect("the weights are here");
            assert!(error > Q8_0_ERROR_MAX / 4.0 && error <= Q8_0_ERROR_MAX, "{method}: {share:?}");
            (share.format, share.tensors, share.stored_bytes)
        });
        (shares.collect::<Vec<_>>(), stored)
    };
    for (method, format) in [("fp8", "FP8"), ("modelopt", "FP8"), ("gptq-order", "GPTQ INT4")] {
        let (shares, stored) = told(method);
        assert_eq!(shares, [(format.to_owned(), 7, stored)], "{method}: all that is quantised");
    }
    // Their integers are kept.
    for method in ["gptq", "awq"] {
        assert_eq!(told(method).0, [], "{method}");
    }
}

#[test]
fn the_beginning_of_a_file_is_enough() {
    let (bytes, dir) = (repacked(), TempDir::new().expect("a directory"));
    let whole = opened(&dir, &bytes);
    let expected = CpuModel::plan(&whole.spec, &whole.checkpoint).expect("it can be loaded");
    let path = dir.path().join("model.gguf.incomplete");
    std::fs::write(&path, &bytes[..header_bytes(&bytes) + 100]).expect("it is written");
    let head = ModelFiles::load_head(&path, bytes.len() as u64).expect("the header is there");
    let plan = CpuModel::plan(&head.spec, &head.checkpoint).expect("no weights are needed");
    assert_eq!((&head.spec, plan.bytes, plan.repacked.len()), (&whole.spec, expected.bytes, 3));
    assert!(plan.repacked.iter().all(|share| share.error.is_none()), "the weights are not here: {plan:?}");
    // With less than the header, it is cut off.
    std::fs::write(&path, &bytes[..200]).expect("it is written");
    let error = ModelFiles::load_head(&path, bytes.len() as u64).expect_err("half a header").to_string();
    assert!(error.contains("cut off"), "{error}");
}

#[test]
fn a_format_that_is_not_read_is_told_before_anything_is_loaded() {
    let (mut bytes, dir) = (mixed(), TempDir::new().expect("a directory"));
    let at = kind_at(&bytes, "blk.0.ffn_down.weight");
    bytes[at..at + 4].copy_from_slice(&20u32.to_le_bytes());
    let files = opened(&dir, &bytes);
    let error = CpuModel::plan(&files.spec, &files.checkpoint).expect_err("IQ4_NL is not read");
    let is_format = matches!(&error, LoadError::Checkpoint(CheckpointError::UnsupportedFormat { .. }));
    assert!(is_format && error.to_string().contains("IQ4_NL"), "{error}");
}
