//! The body of each target.

use discovery::{ENTRY_BYTES_MAX, Entry};
use domain::session::ModelShape;
use engine::checkpoint::gguf::GgufFile;
use engine::checkpoint::{Checkpoint, Quantisation};
use engine::models::config::Config;
use engine::models::read_spec;
use engine::text::{ChatTemplate, Tokenizer, WrittenSpecials};
use kv_manager::tiers::header::RecordHeader;
use kv_manager::tiers::log;
use router::ModelCard;
use rustix::fs::MemfdFlags;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

pub use discovery::fuzzing::{etcd, kubernetes};
pub use transport::fuzzing::{
    control, control_ends, metadata, rdma_exchange, rdma_owner, rdma_reader, tcp_owner, tcp_reader, tcp_wire,
};

/// Frames of a session, from either end.
pub fn session(bytes: &[u8]) {
    if let Ok(message) = proto::session::decode_to_worker(bytes) {
        let again = proto::session::decode_to_worker(&proto::session::encode_to_worker(&message));
        assert_eq!(again, Ok(message));
    }
    if let Ok(message) = proto::session::decode_from_worker(bytes) {
        let again = proto::session::decode_from_worker(&proto::session::encode_from_worker(&message));
        assert_eq!(again, Ok(message));
    }
}

/// Messages between workers.
pub fn handoff(bytes: &[u8]) {
    if let Ok(message) = proto::handoff::decode(bytes) {
        assert_eq!(proto::handoff::decode(&proto::handoff::encode(&message)), Ok(message));
    }
}

/// Logs of disk tiers. What is understood of one says the same when it is written again.
pub fn disk_log(bytes: &[u8]) {
    // The log of the shape that it says it is of, so that not only its head is looked at.
    let shape = bytes.get(16..24).and_then(|shape| shape.try_into().ok()).map_or(0, u64::from_le_bytes);
    let found = log::replay(bytes, shape);
    assert!(found.bytes <= bytes.len());
    if found.bytes > 0 {
        let entries = (found.bytes - log::HEAD) / log::ENTRY;
        assert_eq!(found.records.len() + found.corrupt, entries);
        let mut again = log::head(shape).to_vec();
        found.records.iter().for_each(|record| again.extend_from_slice(&log::entry(record)));
        assert_eq!(log::replay(&again, shape).records, found.records);
    } else {
        assert!(found.records.is_empty());
    }
}

/// Headers of records of tiers.
pub fn record_header(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk() else { return };
    if let Ok(header) = RecordHeader::decode(bytes) {
        assert_eq!(&header.encode(), bytes);
        assert_eq!(header.checksum_in(bytes), Ok(header.checksum));
    }
}

/// Slabs that workers of a host share.
pub fn slab(bytes: &[u8]) {
    let folder = folder();
    let path = folder.path().join("1.slab");
    fs::write(&path, bytes).expect("it is written");
    tiers::fuzzing::slab(&path);
}

/// Bodies of OpenAI's API, with the bundled model's tokenizer and a model that does not have all of its tokens.
pub fn request(bytes: &[u8]) {
    static CARD: LazyLock<ModelCard> = LazyLock::new(|| {
        let model = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-rust"));
        ModelCard {
            name: "tiny-rust".to_owned(),
            created: 0,
            tokenizer: Tokenizer::open(model).expect("the bundled tokenizer"),
            template: ChatTemplate::open(model).expect("the bundled template"),
            forms: router::OutputForms::of("hermes", "think", None).expect("they are known"),
            specials: WrittenSpecials::Text,
            sampling: domain::SamplingParams::default(),
            eos: vec![0],
            shape: ModelShape { vocab: 400, layers: 2, hidden: 64 },
        }
    });
    router::fuzzing::request(bytes, &CARD);
}

/// What models write: calls of tools and reasoning, in every form.
pub fn output(bytes: &[u8]) {
    router::fuzzing::output(bytes);
}

/// What workers say of themselves in a directory.
pub fn entry(bytes: &[u8]) {
    if let Ok(entry) = Entry::decode(bytes) {
        let written = entry.encode();
        // What was left out is written, too: it may be too long then.
        if written.len() <= ENTRY_BYTES_MAX {
            assert_eq!(Entry::decode(&written).expect("it was written here"), entry);
        }
    }
}

/// Headers of GGUF files, and the tokenizer and template in them.
pub fn gguf(bytes: &[u8]) {
    let (_memory, path) = file(bytes);
    let Ok(found) = GgufFile::open(&path) else { return };
    let _ = (found.architecture(), found.head_dim());
    if let Ok(checkpoint) = Checkpoint::open(&path) {
        read_all(&checkpoint);
    }
    let _ = (Tokenizer::open(&path), ChatTemplate::open(&path));
}

/// Headers of safetensors files, and of quantised matrices in them.
pub fn safetensors(bytes: &[u8]) {
    let folder = folder();
    fs::write(folder.path().join("model.safetensors"), bytes).expect("it is written");
    let ways = [
        Quantisation::Gptq { zero_offset: 1 },
        Quantisation::Awq,
        Quantisation::Scaled { block: None },
        Quantisation::Scaled { block: Some([24, 48]) },
    ];
    for way in std::iter::once(None).chain(ways.map(Some)) {
        let Ok(checkpoint) = Checkpoint::open(folder.path()) else { return };
        let checkpoint = match way {
            Some(way) => checkpoint.with_quantisation(way),
            None => checkpoint,
        };
        let _ = (checkpoint.formats(), checkpoint.format());
        read_all(&checkpoint);
    }
}

/// Indexes of safetensors files, config.json and generation_config.json, and what tokenizer_config.json says of
/// templates.
pub fn config(bytes: &[u8]) {
    let folder = folder();
    for name in ["model.safetensors.index.json", "tokenizer_config.json"] {
        fs::write(folder.path().join(name), bytes).expect("it is written");
    }
    let _ = (Checkpoint::open(folder.path()), ChatTemplate::open(folder.path()));
    if let Ok(config) = Config::parse(bytes) {
        let _ = (read_spec(&config, None), read_spec(&config, Some(&config)), config.quantisation());
    }
}

/// Traces of requests.
pub fn trace(bytes: &[u8]) {
    let (_memory, path) = file(bytes);
    if let Ok(trace) = bench_serve::Trace::read(&path) {
        assert_eq!(trace.entries.first().map(|entry| entry.due_ms), Some(0));
        assert!(trace.entries.is_sorted_by_key(|entry| entry.due_ms));
    }
}

/// Looks at every byte of every tensor: what a header promises must be there.
fn read_all(checkpoint: &Checkpoint) {
    for name in checkpoint.names() {
        if let Ok(tensor) = checkpoint.tensor(name) {
            let rows = tensor.rows(0..tensor.height());
            let bytes = rows.iter().flat_map(|row| &row[..]).fold(0_u64, |sum, byte| sum + u64::from(*byte));
            std::hint::black_box((bytes, tensor.widened(0..tensor.height())));
        }
    }
}

/// A file of these bytes in memory, and its path.
fn file(bytes: &[u8]) -> (OwnedFd, PathBuf) {
    let memory = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("memory");
    let path = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    fs::write(&path, bytes).expect("it is written");
    (memory, path)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}
