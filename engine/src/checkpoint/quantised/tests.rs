use super::super::{CheckpointError, WEIGHTS_FILE};
use super::*;
#[cfg(target_os = "linux")]
use crate::checkpoint::tests::resident;
use safetensors::Dtype::{self, BF16, F8_E4M3, F16, F32, I8, I32, I64};
use safetensors::tensor::TensorView as FileTensor;
use tempfile::TempDir;

const OUTPUTS: usize = 32;
const INPUTS: usize = 64;
const GPTQ: Quantisation = Quantisation::Gptq { zero_offset: 1 };
const AWQ: Quantisation = Quantisation::Awq;
const SCALED: Quantisation = Quantisation::Scaled { block: None };

/// A tensor to write: the end of its name, number format, shape, bytes.
type Stored = (&'static str, Dtype, Vec<usize>, Vec<u8>);

/// A tensor whose bytes are derived from its name, but for floats: these are all 1.
fn stored(part: &'static str, dtype: Dtype, shape: &[usize]) -> Stored {
    let count: usize = shape.iter().product();
    let one: Option<&[u8]> = match dtype {
        F16 => Some(&[0, 0x3c]),
        BF16 => Some(&[0x80, 0x3f]),
        F32 => Some(&[0, 0, 0x80, 0x3f]),
        _ => None,
    };
    let bytes = match one {
        Some(one) => one.repeat(count),
        None => {
            let mut bytes = vec![0; count * dtype.bitsize() / 8];
            blake3::Hasher::new().update(part.as_bytes()).finalize_xof().fill(&mut bytes);
            bytes
        }
    };
    (part, dtype, shape.to_vec(), bytes)
}

fn list(part: &'static str, numbers: &[i32]) -> Stored {
    (part, I32, vec![numbers.len()], numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
}

fn shape_of(outputs: i64, inputs: i64) -> Stored {
    ("weight_shape", I64, vec![2], [outputs, inputs].iter().flat_map(|number| number.to_le_bytes()).collect())
}

/// A sound matrix of 4 bits in two groups.
fn gptq() -> Vec<Stored> {
    vec![
        stored("qweight", I32, &[INPUTS / 8, OUTPUTS]),
        stored("qzeros", I32, &[2, OUTPUTS / 8]),
        stored("scales", F16, &[2, OUTPUTS]),
    ]
}

fn awq() -> Vec<Stored> {
    vec![
        stored("qweight", I32, &[INPUTS, OUTPUTS / 8]),
        stored("qzeros", I32, &[2, OUTPUTS / 8]),
        stored("scales", F16, &[2, OUTPUTS]),
    ]
}

fn packed() -> Vec<Stored> {
    vec![
        stored("weight_packed", I32, &[OUTPUTS, INPUTS / 8]),
        stored("weight_scale", BF16, &[OUTPUTS, 2]),
        shape_of(OUTPUTS as i64, INPUTS as i64),
    ]
}

fn fp8() -> Vec<Stored> {
    vec![stored("weight", F8_E4M3, &[OUTPUTS, INPUTS]), stored("weight_scale_inv", F32, &[2, 2])]
}

fn int8() -> Vec<Stored> {
    vec![stored("weight", I8, &[OUTPUTS, INPUTS]), stored("weight_scale", F32, &[OUTPUTS, 1])]
}

/// Returns these parts, those of the same name replaced by the others.
fn with(mut parts: Vec<Stored>, others: impl IntoIterator<Item = Stored>) -> Vec<Stored> {
    for other in others {
        parts.retain(|part| part.0 != other.0);
        parts.push(other);
    }
    parts
}

fn without(mut parts: Vec<Stored>, name: &str) -> Vec<Stored> {
    parts.retain(|part| part.0 != name);
    parts
}

/// Writes a checkpoint with one module, `m`.
fn written(parts: &[Stored]) -> TempDir {
    let dir = TempDir::new().expect("a directory");
    let views = parts.iter().map(|(part, dtype, shape, bytes)| {
        (format!("m.{part}"), FileTensor::new(*dtype, shape.clone(), bytes).expect("a valid tensor"))
    });
    safetensors::serialize_to_file(views, None, &dir.path().join(WEIGHTS_FILE)).expect("a file is written");
    dir
}

fn check(quantisation: Quantisation, parts: &[Stored], format: WeightFormat) {
    let dir = written(parts);
    let checkpoint = Checkpoint::open(dir.path()).expect("it opens").with_quantisation(quantisation);
    assert!(checkpoint.has("m.weight"));
    let tensor = checkpoint.tensor("m.weight").expect("it is sound");
    assert_eq!((tensor.format, &tensor.shape[..]), (format, &[OUTPUTS, INPUTS][..]));
    let all = tensor.rows(0..OUTPUTS);
    assert!(all.iter().all(|row| row.len() == tensor.row_bytes()));
    assert_eq!(tensor.rows(3..9)[..], all[3..9], "any rows can be asked for");
    let bits = |rows| tensor.widened(rows).into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert_eq!(bits(31..32), bits(0..OUTPUTS)[31 * INPUTS..]);
}

fn check_refused(quantisation: Quantisation, parts: &[Stored], says: &[&str]) {
    let dir = written(parts);
    let checkpoint = Checkpoint::open(dir.path()).expect("it opens").with_quantisation(quantisation);
    let error = checkpoint.tensor("m.weight").expect_err("it is broken");
    assert!(matches!(error, CheckpointError::Quantised { .. }), "{error:?}");
    let error = error.to_string();
    for part in says.iter().chain(&["m.weight", WEIGHTS_FILE]) {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
    assert!(checkpoint.formats().iter().any(|share| !share.is_read), "it is told");
}

#[test]
fn sound_matrices_are_read() {
    check(GPTQ, &gptq(), WeightFormat::Q4_1);
    let in_order: Vec<i32> = (0..INPUTS as i32).map(|input| input / 32).collect();
    check(GPTQ, &with(gptq(), [list("g_idx", &in_order)]), WeightFormat::Q4_1);
    let mixed: Vec<i32> = (0..INPUTS as i32).map(|input| input % 2).collect();
    check(GPTQ, &with(gptq(), [list("g_idx", &mixed)]), WeightFormat::Q8_0);
    // Groups that are not equally large, and one that no input is in.
    let uneven = [stored("qzeros", I32, &[3, OUTPUTS / 8]), stored("scales", F16, &[3, OUTPUTS])];
    check(GPTQ, &with(with(gptq(), uneven), [list("g_idx", &in_order)]), WeightFormat::Q4_1);
    check(AWQ, &awq(), WeightFormat::Q4_1);
    check(SCALED, &packed(), WeightFormat::Q4_0);
    let zeros = |dtype, shape: &[usize]| stored("weight_zero_point", dtype, shape);
    check(SCALED, &with(packed(), [zeros(I32, &[OUTPUTS / 8, 2])]), WeightFormat::Q4_1);
    check(SCALED, &with(packed(), [list("weight_g_idx", &[-1; INPUTS])]), WeightFormat::Q4_0);
    check(SCALED, &fp8(), WeightFormat::Q8_0);
    check(SCALED, &int8(), WeightFormat::Q8_0);
    check(SCALED, &with(int8(), [zeros(I8, &[OUTPUTS, 1])]), WeightFormat::Q8_0);
    for shape in [&[][..], &[1], &[1, 1], &[OUTPUTS], &[OUTPUTS, 8]] {
        check(SCALED, &with(int8(), [stored("weight_scale", BF16, shape)]), WeightFormat::Q8_0);
    }
    let blocks = Quantisation::Scaled { block: Some([24, 48]) };
    check(blocks, &fp8(), WeightFormat::Q8_0);
}

#[test]
fn modules_without_quantised_tensors_stay_as_they_are() {
    for quantisation in [GPTQ, AWQ, SCALED] {
        let dir = written(&[stored("weight", BF16, &[4, 6]), stored("input_scale", F32, &[])]);
        let checkpoint = Checkpoint::open(dir.path()).expect("it opens").with_quantisation(quantisation);
        assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["m.input_scale", "m.weight"]);
        assert_eq!(checkpoint.tensor("m.weight").expect("it is plain").shape, [4, 6]);
    }
}

#[test]
fn parts_that_no_config_explains_are_named() {
    for (parts, part) in [(gptq(), "qweight"), (packed(), "weight_packed")] {
        let dir = written(&parts);
        let error = Checkpoint::open(dir.path()).expect("it opens").tensor("m.weight").expect_err("it is quantised");
        let error = error.to_string();
        assert!(error.contains(part) && error.contains("no quantization_config"), "{error}");
    }
}

#[test]
fn a_part_that_is_missing_is_named() {
    check_refused(GPTQ, &without(gptq(), "qzeros"), &["no qzeros"]);
    check_refused(GPTQ, &without(gptq(), "scales"), &["no scales"]);
    check_refused(AWQ, &without(awq(), "scales"), &["no scales"]);
    check_refused(SCALED, &without(packed(), "weight_scale"), &["no weight_scale"]);
    check_refused(SCALED, &without(packed(), "weight_shape"), &["no weight_shape"]);
    check_refused(SCALED, &without(fp8(), "weight_scale_inv"), &["no weight_scale"]);
}

#[test]
fn parts_that_do_not_fit_each_other_are_named() {
    check_refused(GPTQ, &with(gptq(), [stored("qzeros", I32, &[2, 5])]), &["qzeros", "5 bits"]);
    check_refused(GPTQ, &with(gptq(), [stored("qzeros", I32, &[2, 7])]), &["qzeros", "7 bits"]);
    check_refused(GPTQ, &with(gptq(), [stored("scales", F16, &[2, 31])]), &["scales", "[2, 31]", "[2, 32]"]);
    check_refused(GPTQ, &with(gptq(), [stored("qzeros", I32, &[5, 4])]), &["qzeros", "divides 64"]);
    check_refused(GPTQ, &with(gptq(), [stored("qweight", I32, &[0, OUTPUTS])]), &["qweight", "[0, 32]", "above 0"]);
    check_refused(GPTQ, &with(gptq(), [stored("qweight", I32, &[5, OUTPUTS])]), &["40 inputs", "32"]);
    check_refused(GPTQ, &with(gptq(), [stored("scales", F8_E4M3, &[2, 32])]), &["scales", "F8_E4M3", "BF16"]);
    check_refused(GPTQ, &with(gptq(), [stored("qweight", I64, &[8, 32])]), &["qweight", "I64", "I32"]);
    check_refused(GPTQ, &with(gptq(), [list("g_idx", &[0; 63])]), &["g_idx", "[63]", "[64]"]);
    for group in [2, i32::MAX, -1, i32::MIN] {
        let mut groups = [1; INPUTS];
        groups[40] = group;
        check_refused(GPTQ, &with(gptq(), [list("g_idx", &groups)]), &["g_idx", &format!("group {group}"), "are 2"]);
    }
    check_refused(AWQ, &with(awq(), [stored("scales", F16, &[2, 64])]), &["qweight", "2 bits"]);
    check_refused(AWQ, &with(awq(), [stored("qzeros", I32, &[2, 3])]), &["qzeros", "[groups, 4]"]);
    for shape in [shape_of(31, 64), shape_of(32, -64), shape_of(32, 0)] {
        check_refused(SCALED, &with(packed(), [shape]), &["weight_shape", "[32, inputs above 0]"]);
    }
    check_refused(SCALED, &with(packed(), [shape_of(32, i64::MAX)]), &["weight_packed", "bits"]);
    check_refused(SCALED, &with(packed(), [shape_of(32, 65)]), &["weight_packed", "8 * 32 / 65"]);
    check_refused(SCALED, &with(packed(), [stored("weight_scale", BF16, &[OUTPUTS, 3])]), &["weight_scale", "[32, 3]"]);
    check_refused(SCALED, &with(fp8(), [stored("weight_scale_inv", F32, &[3, 2])]), &["weight_scale_inv", "[3, 2]"]);
    let blocks = Quantisation::Scaled { block: Some([128, 128]) };
    check_refused(blocks, &fp8(), &["weight_scale_inv", "128 outputs and 128 inputs of [32, 64]"]);
    let zeros = |dtype, shape: &[usize]| stored("weight_zero_point", dtype, shape);
    check_refused(SCALED, &with(fp8(), [zeros(I8, &[OUTPUTS, 2])]), &["weight_zero_point", "no zero point"]);
    check_refused(SCALED, &with(int8(), [zeros(I8, &[OUTPUTS, 2])]), &["weight_zero_point", "[32, 1]"]);
    check_refused(SCALED, &with(packed(), [zeros(I32, &[OUTPUTS, 2])]), &["weight_zero_point", "[4, 2]"]);
    let far = ("weight_zero_point", I8, vec![OUTPUTS, 2], vec![8; OUTPUTS * 2]);
    check_refused(SCALED, &with(packed(), [far]), &["weight_zero_point", "8", "4 bits"]);
    check_refused(SCALED, &with(int8(), [stored("weight", I8, &[OUTPUTS, 33])]), &["33 inputs"]);
}

#[test]
fn codes_are_read_across_words_and_lines() {
    use super::codes::{CodeOrder, Codes};
    let values: Vec<u8> = (0..2 * 32).map(|i| (i * 37 + i / 5) as u8).collect();
    for bits in [2u32, 3, 4, 8] {
        let mask = ((1u32 << bits) - 1) as u8;
        // Two lines of 32, as a list of bits each.
        let line = |values: &[u8]| {
            let all = values.iter().flat_map(|value| (0..bits).map(move |bit| value >> bit & 1));
            let all: Vec<u8> = all.collect();
            all.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, bit| byte << 1 | bit)).collect::<Vec<u8>>()
        };
        let lines = [line(&values[..32]), line(&values[32..])];
        let words = bits as usize;
        // Side by side, and one after the other.
        let interleaved = (0..words).flat_map(|word| lines.iter().flat_map(move |line| &line[4 * word..4 * word + 4]));
        let interleaved: Vec<u8> = interleaved.copied().collect();
        for (bytes, line_stride, word_stride) in [(interleaved, 4, 8), (lines.concat(), 4 * words, 4)] {
            let codes = Codes { bytes: &bytes, bits, line_stride, word_stride, order: CodeOrder::AsStored };
            for (line, values) in values.chunks(32).enumerate() {
                let wanted: Vec<u8> = values.iter().map(|value| value & mask).collect();
                let mut found = vec![0; 32];
                codes.read_line(line, &mut found);
                assert_eq!(found, wanted, "{bits} bits");
                assert_eq!((0..32).map(|i| codes.at(line, i)).collect::<Vec<_>>(), wanted, "{bits} bits");
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn zero_points_are_looked_at_once() {
    let (inputs, outputs, groups) = (8192, 2048, 256);
    let parts = [
        stored("qweight", I32, &[inputs / 8, outputs]),
        stored("qzeros", I32, &[groups, outputs / 8]),
        stored("scales", F16, &[groups, outputs]),
    ];
    let dir = written(&parts);
    let path = dir.path().join(WEIGHTS_FILE);
    let checkpoint = Checkpoint::open(dir.path()).expect("it opens").with_quantisation(GPTQ);
    let formats = checkpoint.formats();
    assert!(resident(&path) >= parts[1].3.len(), "all of them were read: {} bytes", resident(&path));
    checkpoint.tensor("m.weight").expect("it is sound").let_go(0..outputs);
    let before = resident(&path);
    assert_eq!((checkpoint.formats(), checkpoint.format()), (formats, Some(WeightFormat::Q4_1)));
    checkpoint.tensor("m.weight").expect("it is sound");
    assert_eq!(resident(&path), before, "nothing was read again");
}

#[cfg(target_os = "linux")]
#[test]
fn rows_that_are_let_go_take_no_memory() {
    let large = |part, dtype| stored(part, dtype, &[1024, 2048]);
    let ways = [
        (SCALED, vec![large("weight", F8_E4M3), stored("weight_scale", F32, &[1024, 64])], true),
        (
            GPTQ,
            vec![large("qweight", I32), stored("qzeros", I32, &[64, 2048 / 8]), stored("scales", F16, &[64, 2048])],
            false,
        ),
    ];
    for (quantisation, parts, by_rows) in ways {
        let dir = written(&parts);
        let path = dir.path().join(WEIGHTS_FILE);
        let checkpoint = Checkpoint::open(dir.path()).expect("it opens").with_quantisation(quantisation);
        let tensor = checkpoint.tensor("m.weight").expect("it is sound");
        let rows = tensor.rows(0..64);
        let half = tensor.height() / 2;
        tensor.rows(0..tensor.height());
        let before = resident(&path);
        assert!(before >= parts[0].3.len(), "all of it was read: {before} bytes");
        tensor.let_go(0..half);
        if by_rows {
            assert!(resident(&path) <= before - parts[0].3.len() / 2 + (64 << 10), "{} bytes", resident(&path));
        }
        tensor.let_go(0..tensor.height());
        assert!(resident(&path) <= 128 << 10, "{} bytes", resident(&path));
        assert!(tensor.rows(0..64) == rows, "it can be read again");
    }
}
