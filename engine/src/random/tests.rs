use super::*;
use crate::checkpoint::Checkpoint;
use crate::models::ModelFiles;
use tempfile::TempDir;

fn random(family: &str, shape: &str, seed: u64, dtype: Dtype) -> RandomSpec {
    RandomSpec::named(family, shape, seed, Some(dtype)).expect("family and shape have these names")
}

fn written(spec: &RandomSpec) -> TempDir {
    let dir = TempDir::new().expect("a directory");
    spec.write(dir.path(), &mut |_, _| {}).expect("it is written");
    dir
}

#[test]
fn every_shape_is_a_valid_model_of_every_family_that_takes_it() {
    for family in FAMILIES {
        for shape in &SHAPES {
            match RandomSpec::named(family.model_type, shape.name, 0, None) {
                Ok(spec) => {
                    let model = spec.model();
                    assert_eq!((model.family, model.layers), (family.model_type, shape.layers));
                    assert_eq!(
                        (model.heads, model.kv_heads, model.head_dim),
                        (shape.heads, shape.kv_heads, shape.head_dim)
                    );
                    assert_eq!(model.dtype, Dtype::Bf16);
                    assert_eq!(model.windows().iter().any(Option::is_some), shape.window.is_some());
                    let biased = tensors(&model).iter().any(|tensor| tensor.role == TensorRole::Bias);
                    let without = ["mistral", "ministral3", "phi3"].contains(&family.model_type);
                    let has_biases = shape.biases && !without || family.model_type == "qwen2";
                    assert_eq!(biased, has_biases, "{} {}", family.model_type, shape.name);
                }
                Err(error) => {
                    assert!(matches!(error, RandomError::Impossible { .. }), "{error}");
                    let windowless = shape.window.is_some() && !family.has_window;
                    assert!(windowless || !family.has_rope_type(shape.rope_type()), "{error}");
                }
            }
        }
    }
}

#[test]
fn the_large_shapes_have_the_sizes_of_their_names() {
    let parameters = |shape| tensors(&random("llama", shape, 0, Dtype::Bf16).model()).iter().map(|t| t.numbers()).sum();
    let counts: [u64; 3] = ["125m", "1b", "8b"].map(parameters);
    assert_eq!(counts, [124_668_672, 1_235_814_400, 8_030_261_248]);
}

#[test]
fn what_is_written_is_what_the_model_asks_for() {
    for (family, shape, dtype) in [
        ("llama", "tiny-bias", Dtype::F32),
        ("mistral", "tiny-window", Dtype::F16),
        ("ministral3", "tiny-yarn", Dtype::Bf16),
        ("qwen2", "tiny-tied", Dtype::Bf16),
        ("qwen3", "tiny-wide", Dtype::Bf16),
        ("gemma2", "tiny-bias", Dtype::Bf16),
        ("gemma3_text", "tiny-window", Dtype::F32),
        ("phi3", "tiny-longrope", Dtype::F16),
        ("olmo2", "tiny-wide", Dtype::F32),
        ("granite", "tiny-bias", Dtype::Bf16),
    ] {
        let spec = random(family, shape, 7, dtype);
        let dir = written(&spec);
        let files = ModelFiles::load(dir.path()).expect("it loads");
        assert_eq!(files.spec, spec.model());
        let wanted = tensors(&files.spec);
        assert_eq!(files.checkpoint.names().count(), wanted.len());
        for tensor in wanted {
            let found = files.checkpoint.tensor(&tensor.name).expect("it is there");
            assert_eq!((found.format, &found.shape), (dtype.into(), &tensor.shape), "{}", tensor.name);
        }
    }
}

#[test]
fn a_seed_gives_the_same_bytes_on_every_machine() {
    let digest = |seed, file: &str| {
        let dir = written(&random("llama", "tiny", seed, Dtype::Bf16));
        let bytes = std::fs::read(dir.path().join(file)).expect("it was written");
        blake3::hash(&bytes).to_hex().to_string()
    };
    // The goldens of tests/reference were made from these weights: change one and make the other anew.
    assert_eq!(digest(1, WEIGHTS_FILE), "79515562cd8497abfef2354171858426553231270d6be4c7c6931e0feffeda7a");
    assert_ne!(digest(1, WEIGHTS_FILE), digest(2, WEIGHTS_FILE));
    assert_eq!(digest(1, CONFIG_FILE), "eabd56439be9cae6c5da91ef34958dca98f9bd1e069c0041fc0ba58d9019891a");
}

#[test]
fn numbers_have_their_mean_and_deviation() {
    let (mean, deviation, count) = (0.25, 0.5, 100_000);
    let mut numbers = Numbers::new(3, "a tensor", mean, deviation);
    let mut bytes = Vec::new();
    encode(&mut numbers, count, Dtype::F32, &mut bytes);
    let all: Vec<f64> =
        bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect();
    assert_eq!(all.len(), count);
    let average = all.iter().sum::<f64>() / count as f64;
    let variance = all.iter().map(|x| (x - average).powi(2)).sum::<f64>() / count as f64;
    // Five standard errors of each.
    let error = f64::from(deviation) / (count as f64).sqrt();
    assert!((average - f64::from(mean)).abs() < 5.0 * error, "{average}");
    assert!((variance.sqrt() - f64::from(deviation)).abs() < 5.0 * error, "{}", variance.sqrt());
    let furthest = all.iter().map(|x| (x - f64::from(mean)).abs()).fold(0.0, f64::max);
    assert!(furthest < 3.47 * f64::from(deviation), "{furthest}");
}

#[test]
fn a_tensor_is_the_same_in_one_file_and_in_many() {
    let spec = random("llama", "tiny", 5, Dtype::F32);
    let one = written(&spec);
    let many = TempDir::new().expect("a directory");
    let mut reports = Vec::new();
    spec.write_sharded(many.path(), 100_000, &mut |done, total| reports.push((done, total))).expect("it is written");
    let (one, many) =
        (Checkpoint::open(one.path()).expect("it opens"), Checkpoint::open(many.path()).expect("it opens"));
    assert!(many.files() > 3, "{} files", many.files());
    for name in one.names() {
        let (a, b) = (one.tensor(name).expect("it is there"), many.tensor(name).expect("it is there"));
        assert!(a.shape == b.shape && a.rows(0..a.height()) == b.rows(0..b.height()), "{name}");
    }
    assert_eq!(reports.last(), Some(&(one.bytes(), one.bytes())));
    assert!(reports.is_sorted() && reports.iter().all(|report| report.1 == one.bytes()));
}

#[test]
fn a_model_is_not_overwritten() {
    let spec = random("llama", "tiny", 5, Dtype::F32);
    let dir = written(&spec);
    let error = spec.write(dir.path(), &mut |_, _| {}).expect_err("it is there already");
    assert!(matches!(error, RandomError::Exists(_)), "{error}");
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    let family = RandomSpec::named("gpt2", "tiny", 0, None).expect_err("no such family").to_string();
    assert!(family.contains("gpt2") && family.contains("llama, mistral, qwen2, qwen3"), "{family}");
    let shape = RandomSpec::named("llama", "70b", 0, None).expect_err("no such shape").to_string();
    assert!(shape.contains("70b") && shape.contains("125m, 1b, 8b"), "{shape}");
    let window = RandomSpec::named("llama", "tiny-window", 0, None).expect_err("no windows").to_string();
    assert!(window.contains("sliding window") && window.contains("tiny-window"), "{window}");
}

#[test]
fn the_tokenizer_takes_any_text_and_names_every_token() {
    let dir = written(&random("llama", "tiny", 5, Dtype::F32));
    let tokenizer = tokenizers::Tokenizer::from_file(dir.path().join("tokenizer.json")).expect("it is valid");
    assert_eq!(tokenizer.get_vocab_size(true), 512);
    let text = "Grüße, \u{1f980}!\n\0 \t end";
    let ids = tokenizer.encode(text, true).expect("it encodes").get_ids().to_vec();
    let bytes: Vec<u32> = text.bytes().map(u32::from).collect();
    assert_eq!((ids[0], &ids[1..]), (tokenizer::BOS, &bytes[..]));
    assert_eq!(tokenizer.decode(&ids, true).expect("it decodes"), text);
    let special = tokenizer.encode("<|user|>a<|end|>", false).expect("it encodes").get_ids().to_vec();
    assert_eq!(special, [260, u32::from(b'a'), tokenizer::EOS]);
    assert_eq!(tokenizer.decode(&[300, 511], true).expect("it decodes"), " w300 w511");
}
