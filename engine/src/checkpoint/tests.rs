use super::*;
use safetensors::tensor::TensorView as FileTensor;
use std::fs::File;
use tempfile::TempDir;

/// A tensor to write: name, number format, shape. Its bytes are derived from its name.
type Wanted = (&'static str, safetensors::Dtype, &'static [usize]);

const EMBED: Wanted = ("model.embed_tokens.weight", safetensors::Dtype::BF16, &[6, 4]);
const NORM: Wanted = ("model.norm.weight", safetensors::Dtype::F32, &[4]);

fn bytes_of((name, dtype, shape): Wanted) -> Vec<u8> {
    let len = shape.iter().product::<usize>() * dtype.bitsize() / 8;
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(name.as_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn write(path: &Path, tensors: &[Wanted]) {
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|tensor| bytes_of(*tensor)).collect();
    let views = tensors.iter().zip(&bytes).map(|(&(name, dtype, shape), bytes)| {
        (name, FileTensor::new(dtype, shape.to_vec(), bytes).expect("a valid tensor"))
    });
    safetensors::serialize_to_file(views, None, path).expect("a file is written");
}

fn write_index(dir: &Path, map: &[(&str, &str)]) {
    let map: BTreeMap<&str, &str> = map.iter().copied().collect();
    std::fs::write(dir.join(INDEX_FILE), serde_json::json!({"weight_map": map}).to_string()).expect("written");
}

/// Returns a checkpoint of one file, with a config.json.
fn single() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    write(&dir.path().join(WEIGHTS_FILE), &[EMBED, NORM]);
    std::fs::write(dir.path().join(CONFIG_FILE), "{}").expect("written");
    dir
}

/// Returns a checkpoint of two files.
fn sharded() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    write(&dir.path().join("a.safetensors"), &[EMBED]);
    write(&dir.path().join("b.safetensors"), &[NORM]);
    write_index(dir.path(), &[(EMBED.0, "a.safetensors"), (NORM.0, "b.safetensors")]);
    dir
}

/// Opening fails, and what is said about it has all of `parts`.
fn check_refused(dir: &Path, parts: &[&str]) {
    let error = Checkpoint::open(dir).expect_err("it cannot be opened").to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn of_several_parts_the_language_model_is_left() {
    let bf16 = safetensors::Dtype::BF16;
    let four: [Wanted; 4] = [
        ("language_model.model.embed_tokens.weight", bf16, &[6, 4]),
        ("language_model.lm_head.weight", bf16, &[6, 4]),
        ("vision_tower.vision_model.embeddings.weight", bf16, &[3, 5]),
        ("multi_modal_projector.norm.weight", safetensors::Dtype::F32, &[4]),
    ];
    let five: [Wanted; 4] = [
        ("model.language_model.embed_tokens.weight", bf16, &[6, 4]),
        ("lm_head.weight", bf16, &[6, 4]),
        ("model.vision_tower.vision_model.embeddings.weight", bf16, &[3, 5]),
        ("model.multi_modal_projector.norm.weight", safetensors::Dtype::F32, &[4]),
    ];
    for tensors in [four, five] {
        let dir = TempDir::new().expect("a directory");
        write(&dir.path().join("a.safetensors"), &tensors);
        let map: Vec<(&str, &str)> = tensors.iter().map(|tensor| (tensor.0, "a.safetensors")).collect();
        write_index(dir.path(), &map);
        let checkpoint = Checkpoint::open(dir.path()).expect("it opens");
        assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["lm_head.weight", EMBED.0]);
        for (name, stored) in [(EMBED.0, tensors[0]), ("lm_head.weight", tensors[1])] {
            let tensor = checkpoint.tensor(name).expect("it is there");
            let rows = tensor.rows(0..tensor.height()).concat();
            assert_eq!(rows, bytes_of(stored));
        }
        assert_eq!((checkpoint.bytes(), checkpoint.other_parts()), (96, OtherParts { tensors: 2, bytes: 30 + 16 }));
        assert!(matches!(&checkpoint.formats()[..], [all] if (all.tensors, all.bytes) == (2, 96)));
    }
    let whole = single();
    let checkpoint = Checkpoint::open(whole.path()).expect("it opens");
    assert_eq!(checkpoint.other_parts(), OtherParts::default());
}

#[test]
fn tensors_are_found_in_one_file_and_in_many() {
    for dir in [single(), sharded()] {
        let checkpoint = Checkpoint::open(dir.path()).expect("it opens");
        assert_eq!(checkpoint.names().collect::<Vec<_>>(), [EMBED.0, NORM.0]);
        assert_eq!(checkpoint.bytes(), 6 * 4 * 2 + 4 * 4);
        assert_eq!(checkpoint.format(), Some(Dtype::Bf16.into()));
        let embed = checkpoint.tensor(EMBED.0).expect("it is there");
        assert_eq!((embed.format, embed.shape.as_slice()), (Dtype::Bf16.into(), EMBED.2));
        assert_eq!((embed.width(), embed.rows(0..6).concat()), (4, bytes_of(EMBED)));
        let norm = checkpoint.tensor(NORM.0).expect("it is there");
        assert_eq!((norm.format, norm.shape.as_slice()), (Dtype::F32.into(), NORM.2));
        assert_eq!((norm.width(), norm.rows(0..4).concat()), (1, bytes_of(NORM)));
    }
}

/// Bytes of the mapped file at `path` that are in this process's memory.
#[cfg(target_os = "linux")]
pub(super) fn resident(path: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux tells");
    let map = maps.split_once(path.to_str().expect("a plain name")).expect("the file is mapped").1;
    let line = map.lines().find_map(|line| line.strip_prefix("Rss:")).expect("every map has it");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

#[cfg(target_os = "linux")]
#[test]
fn rows_that_are_let_go_take_no_memory_and_can_be_read_again() {
    const LARGE: Wanted = ("model.embed_tokens.weight", safetensors::Dtype::BF16, &[2048, 1024]);
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join(WEIGHTS_FILE);
    write(&path, &[LARGE]);
    let (checkpoint, bytes) = (Checkpoint::open(dir.path()).expect("it opens"), bytes_of(LARGE));
    let tensor = checkpoint.tensor(LARGE.0).expect("it is there");
    let read = || tensor.rows(0..2048).concat();
    assert_eq!(read(), bytes);
    assert!(resident(&path) >= bytes.len(), "all of it was read");
    tensor.let_go(0..1024);
    // Beside the rest, pages that both halves lie in.
    assert!(resident(&path) <= bytes.len() / 2 + (64 << 10), "{} bytes", resident(&path));
    tensor.let_go(1024..2048);
    assert!(resident(&path) <= 128 << 10, "{} bytes", resident(&path));
    assert_eq!(read(), bytes);
}

#[test]
fn a_missing_tensor_is_named() {
    let dir = single();
    let checkpoint = Checkpoint::open(dir.path()).expect("it opens");
    assert!(checkpoint.has(NORM.0) && !checkpoint.has("lm_head.weight"));
    let error = checkpoint.tensor("lm_head.weight").expect_err("there is none").to_string();
    assert!(error.contains("lm_head.weight"), "{error}");
}

#[test]
fn a_quantised_tensor_is_refused_where_it_is_used() {
    let dir = single();
    let quantised: Wanted = ("model.layers.0.mlp.up_proj.weight", safetensors::Dtype::F8_E4M3, &[8, 4]);
    write(&dir.path().join(WEIGHTS_FILE), &[NORM, quantised]);
    let checkpoint = Checkpoint::open(dir.path()).expect("the other tensors can be used");
    assert!(checkpoint.tensor(NORM.0).is_ok());
    let error = checkpoint.tensor(quantised.0).expect_err("it cannot be read").to_string();
    for part in [quantised.0, "F8_E4M3", "F32, F16, BF16", WEIGHTS_FILE] {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn a_shard_that_is_missing_is_named() {
    let dir = sharded();
    std::fs::remove_file(dir.path().join("b.safetensors")).expect("it was there");
    check_refused(dir.path(), &["b.safetensors", "missing", "fetch"]);
}

#[test]
fn an_index_must_tell_the_truth() {
    let dir = sharded();
    write_index(dir.path(), &[(EMBED.0, "b.safetensors"), (NORM.0, "b.safetensors")]);
    check_refused(dir.path(), &[EMBED.0, "b.safetensors", INDEX_FILE]);
    write_index(dir.path(), &[]);
    check_refused(dir.path(), &["names no tensor"]);
    std::fs::write(dir.path().join(INDEX_FILE), "{").expect("written");
    check_refused(dir.path(), &[INDEX_FILE, "not a valid index"]);
}

#[test]
fn an_index_cannot_reach_out_of_its_directory() {
    let dir = sharded();
    let outside = dir.path().join("a.safetensors").to_string_lossy().into_owned();
    for name in ["../a.safetensors", "..", "", outside.as_str()] {
        write_index(dir.path(), &[(EMBED.0, name)]);
        check_refused(dir.path(), &["is not the name of a file beside it"]);
    }
}

#[test]
fn a_file_that_was_cut_off_is_told_from_a_broken_one() {
    let dir = single();
    let path = dir.path().join(WEIGHTS_FILE);
    let whole = std::fs::read(&path).expect("it was written");
    for bytes in [0, 7, 8, 40, whole.len() - 1] {
        std::fs::write(&path, &whole[..bytes]).expect("written");
        check_refused(dir.path(), &[WEIGHTS_FILE, &format!("has {bytes} bytes"), "fetch it again"]);
    }
    std::fs::write(&path, [&2_u64.to_le_bytes()[..], b"[]"].concat()).expect("written");
    check_refused(dir.path(), &[WEIGHTS_FILE, "not a valid safetensors file"]);
}

#[test]
fn a_directory_without_weights_says_what_to_do() {
    let dir = TempDir::new().expect("a directory");
    check_refused(dir.path(), &[WEIGHTS_FILE, INDEX_FILE, "fetch the weights"]);
    std::fs::write(dir.path().join("pytorch_model.bin"), "").expect("written");
    check_refused(dir.path(), &["pytorch_model.bin", "convert"]);
    std::fs::write(dir.path().join("consolidated.safetensors"), "").expect("written");
    check_refused(dir.path(), &["consolidated.safetensors", "name it"]);
    check_refused(&dir.path().join("nowhere"), &["nowhere", "not a directory"]);
}

/// The digest of `dir`, and how many bytes were hashed for it.
fn digest(dir: &Path, cache: Option<&Path>) -> ([u8; 32], u64) {
    let mut hashed = 0;
    let checkpoint = Checkpoint::open(dir).expect("it opens");
    let digest = checkpoint.digest(cache, &mut |done, total| {
        assert!(done <= total);
        hashed = done;
    });
    (digest.expect("config.json is there"), hashed)
}

#[test]
fn the_digest_depends_on_weights_and_config_alone() {
    let (first, second) = (single(), single());
    let (before, hashed) = digest(first.path(), None);
    assert_eq!(hashed, std::fs::metadata(first.path().join(WEIGHTS_FILE)).expect("it is there").len());
    assert_eq!(before, digest(second.path(), None).0);

    std::fs::write(second.path().join(CONFIG_FILE), "{ }").expect("written");
    assert_ne!(before, digest(second.path(), None).0);

    let path = first.path().join(WEIGHTS_FILE);
    let mut weights = std::fs::read(&path).expect("it is there");
    *weights.last_mut().expect("it is not empty") ^= 1;
    std::fs::write(&path, weights).expect("written");
    assert_ne!(before, digest(first.path(), None).0);
}

#[test]
fn a_remembered_digest_is_not_computed_again() {
    let dir = single();
    let cache = dir.path().join("cache/digests.json");
    let (plain, _) = digest(dir.path(), None);
    let (first, hashed) = digest(dir.path(), Some(&cache));
    assert!(hashed > 0);
    assert_eq!((first, digest(dir.path(), Some(&cache))), (plain, (plain, 0)));

    // Another checkpoint in the same cache leaves the first one's entry alone.
    let other = single();
    assert!(digest(other.path(), Some(&cache)).1 > 0);
    assert_eq!(digest(dir.path(), Some(&cache)).1, 0);

    // The same size, other bytes, the same time of modification.
    let path = dir.path().join(WEIGHTS_FILE);
    let modified = std::fs::metadata(&path).and_then(|metadata| metadata.modified()).expect("it has a time");
    let mut weights = std::fs::read(&path).expect("it is there");
    *weights.last_mut().expect("it is not empty") ^= 1;
    std::fs::write(&path, weights).expect("written");
    File::options().write(true).open(&path).and_then(|file| file.set_modified(modified)).expect("its time is set");
    let (changed, hashed) = digest(dir.path(), Some(&cache));
    assert!(hashed > 0);
    assert_ne!(changed, plain);
}

#[test]
fn a_broken_cache_only_costs_time() {
    let dir = single();
    let (plain, _) = digest(dir.path(), None);
    let cache = dir.path().join("digests.json");
    std::fs::write(&cache, "not JSON").expect("written");
    let (again, hashed) = digest(dir.path(), Some(&cache));
    assert!(hashed > 0);
    assert_eq!(again, plain);
    assert_eq!(digest(dir.path(), Some(&cache)), (plain, 0));
    // A cache that can be neither read nor written.
    let (without, hashed) = digest(dir.path(), Some(dir.path()));
    assert!(hashed > 0);
    assert_eq!(without, plain);
}
