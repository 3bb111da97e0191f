use super::header::ALIGNMENT_DEFAULT;
use super::*;
use crate::checkpoint::Checkpoint;
use crate::models::ModelFiles;
use crate::text::{ChatTemplate, Tokenizer};
use proptest::prelude::*;

/// A file that llama.cpp's own package made.
fn made(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/reference/gguf");
    std::fs::read(folder.join(name)).expect("make_gguf.py made it")
}

/// Where the data of a file begins, about: its header is before.
fn header(bytes: &[u8]) -> usize {
    let (_, tensors) = parse(bytes).expect("it is whole");
    tensors.values().map(|tensor| tensor.range.start).min().unwrap_or(bytes.len())
}

/// Reads all that a server reads of such a file; whatever is in it, this returns.
fn use_all(bytes: &[u8]) {
    let dir = tempfile::TempDir::new().expect("a directory");
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("it is written");
    if let Ok(files) = ModelFiles::load(&path) {
        for name in files.checkpoint.names() {
            if let Ok(tensor) = files.checkpoint.tensor(name) {
                let count: usize = tensor.rows(0..tensor.height()).iter().map(|row| row.len()).sum();
                assert!(count <= bytes.len(), "{name} has {count} bytes");
            }
        }
    }
    let _ = (Tokenizer::open(&path), ChatTemplate::open(&path));
}

fn check_refused(bytes: &[u8], parts: &[&str]) {
    let error = parse(bytes).expect_err("it is broken").at(Path::new("model.gguf")).to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    for name in ["mixed.gguf", "pieces.gguf"] {
        let bytes = made(name);
        let header = header(&bytes);
        for length in (0..header).chain([header + 1, bytes.len() - 1]) {
            if length < bytes.len() && (length < header - ALIGNMENT_DEFAULT as usize || name == "mixed.gguf") {
                let reason = parse(&bytes[..length]).err().map(|broken| broken.at(Path::new(name)).to_string());
                assert!(reason.is_some(), "{name}, {length} bytes");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 3 / 2))]

    #[test]
    fn flipped_bits_are_errors_or_other_values(
        mixed in any::<bool>(),
        flips in prop::collection::vec((0.0f64..1.0, 0u8..8), 1..6),
    ) {
        let mut bytes = made(if mixed { "mixed.gguf" } else { "pieces.gguf" });
        let header = header(&bytes);
        for (place, bit) in flips {
            bytes[(place * header as f64) as usize] ^= 1 << bit;
        }
        use_all(&bytes);
    }
}

/// Returns a file of this version with counts of tensors and metadata, and what follows them.
fn file(version: u32, tensors: u64, entries: u64, rest: &[&[u8]]) -> Vec<u8> {
    [b"GGUF", &version.to_le_bytes()[..], &tensors.to_le_bytes(), &entries.to_le_bytes(), &rest.concat()].concat()
}

/// A text as the file has it.
fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

#[test]
fn what_is_wrong_is_named() {
    check_refused(b"PK", &["model.gguf", "not a GGUF file", "2 bytes"]);
    check_refused(b"PK\x03\x04....", &["not a GGUF file", "PK"]);
    check_refused(&file(1, 0, 0, &[]), &["version is 1"]);
    check_refused(&file(3, 0, u64::MAX, &[]), &["metadata entries", "cut off or damaged"]);
    check_refused(&file(3, 1 << 50, 0, &[]), &["tensors"]);
    check_refused(&file(3, 0, 1, &[&u64::MAX.to_le_bytes()]), &["bytes of a text"]);
    check_refused(&file(3, 0, 1, &[&text("a.key"), &99u32.to_le_bytes()]), &["a.key", "type 99"]);
    let list = [&9u32.to_le_bytes()[..], &0u32.to_le_bytes(), &(1u64 << 24).to_le_bytes()].concat();
    check_refused(&file(3, 0, 1, &[&text("a.list"), &list]), &["a.list", "bytes from"]);
    let nested = [&9u32.to_le_bytes()[..], &9u32.to_le_bytes(), &1u64.to_le_bytes()].concat();
    check_refused(&file(3, 0, 1, &[&text("a.list"), &nested]), &["a.list", "type 9"]);
    let twice = [text("k"), 7u32.to_le_bytes().to_vec(), vec![1]].concat();
    check_refused(&file(3, 0, 2, &[&twice, &twice]), &["k", "twice"]);
    let tensor = |shape: &[u64], kind: u32, offset: u64| {
        let sizes: Vec<u8> = shape.iter().flat_map(|size| size.to_le_bytes()).collect();
        let dimensions = (shape.len() as u32).to_le_bytes();
        [&text("blk.0.x")[..], &dimensions, &sizes, &kind.to_le_bytes(), &offset.to_le_bytes()].concat()
    };
    check_refused(&file(3, 1, 0, &[&tensor(&[2; 5], 0, 0)]), &["blk.0.x", "5 dimensions"]);
    check_refused(&file(3, 1, 0, &[&tensor(&[1 << 40, 1 << 40], 0, 0)]), &["blk.0.x", "shape"]);
    check_refused(&file(3, 1, 0, &[&tensor(&[8, 0], 0, 0)]), &["blk.0.x", "shape"]);
    check_refused(&file(3, 1, 0, &[&tensor(&[40, 2], 8, 0)]), &["blk.0.x", "40 numbers in Q8_0", "blocks of 32"]);
    check_refused(&file(3, 1, 0, &[&tensor(&[32], 8, 0)]), &["blk.0.x", "one dimension"]);
    check_refused(&file(3, 1, 0, &[&tensor(&[8, 8], 0, u64::MAX - 100)]), &["blk.0.x", "256 bytes from"]);
}

#[test]
fn a_format_that_is_not_read_is_named_where_it_is_used() {
    const DOWN: &str = "model.layers.0.mlp.down_proj.weight";
    let mut bytes = made("mixed.gguf");
    let name = b"blk.0.ffn_down.weight";
    let at = bytes.windows(name.len()).position(|window| window == name).expect("it is there") + name.len() + 4 + 16;
    bytes[at..at + 4].copy_from_slice(&20u32.to_le_bytes());
    let dir = tempfile::TempDir::new().expect("a directory");
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, made("mixed.gguf")).expect("it is written");
    let whole = Checkpoint::open(&path).expect("it opens");
    let path = dir.path().join("changed.gguf");
    std::fs::write(&path, bytes).expect("it is written");
    let checkpoint = Checkpoint::open(&path).expect("the other tensors can be used");
    let (bytes, formats) = (checkpoint.bytes(), checkpoint.formats());
    let unread: Vec<_> = formats.iter().filter(|share| !share.is_read).collect();
    let [unread] = unread[..] else { panic!("{formats:?}") };
    assert_eq!((unread.format.as_str(), unread.tensors), ("IQ4_NL", 1));
    // The tensor still has the bytes that it was written with.
    assert_eq!(
        (unread.bytes, bytes),
        (whole.tensor(DOWN).map(|down| down.height() * down.row_bytes()).expect("it is read") as u64, whole.bytes())
    );
    assert_eq!(formats.iter().map(|share| share.bytes).sum::<u64>(), bytes);
    let error = checkpoint.tensor(DOWN).expect_err("IQ4_NL is not read").to_string();
    assert!(error.contains("IQ4_NL") && error.contains("Q4_K_M") && error.contains("changed.gguf"), "{error}");
}

#[test]
fn a_renamed_file_is_the_same_model_and_a_changed_one_is_not() {
    let dir = tempfile::TempDir::new().expect("a directory");
    let digest = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("it is written");
        Checkpoint::open(&path).expect("it opens").digest(None, &mut |_, _| {}).expect("it is read")
    };
    let mut bytes = made("mixed.gguf");
    let first = digest("a.gguf", &bytes);
    assert_eq!(digest("b", &bytes), first);
    *bytes.last_mut().expect("it has bytes") ^= 1;
    assert_ne!(digest("a.gguf", &bytes), first);
}
