//! Every target over its corpus, over what our own side writes, and over changes of both.

use fuzz::{Mutator, TARGETS, seeds};
use std::collections::BTreeSet;
use std::path::Path;

/// Changed inputs of each target.
const CHANGES: u64 = 4000;
/// What decides them.
const SEED: u64 = 20;

/// Says which input was under way when a target panics.
struct Telling<'a> {
    target: &'a str,
    what: String,
    bytes: &'a [u8],
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("target {}, {}; keep it in fuzz/corpus/{}: {hex}", self.target, self.what, self.target);
        }
    }
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let Ok(files) = folder.read_dir() else { return Vec::new() };
    let mut paths: Vec<_> = files.map(|file| file.expect("it can be listed").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("it can be read")).collect()
}

fn check(name: &str) {
    let (_, target) = TARGETS.iter().find(|(target, _)| *target == name).expect("a target");
    let inputs = [seeds(name), corpus(name)].concat();
    assert!(!inputs.is_empty(), "there is nothing to begin from");
    let run = |bytes: &[u8], what: String| {
        let _telling = Telling { target: name, what, bytes };
        target(bytes);
    };
    for (n, input) in inputs.iter().enumerate() {
        run(input, format!("input {n}"));
    }
    let mut mutator = Mutator::new(SEED);
    println!("seed {SEED}");
    for n in 0..CHANGES {
        let input = &inputs[n as usize % inputs.len()];
        let other = &inputs[n as usize / inputs.len() % inputs.len()];
        run(&mutator.change(input, other), format!("seed {SEED}, change {n}"));
    }
}

#[test]
fn every_folder_of_the_corpus_is_a_targets() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let names: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    for folder in corpus.read_dir().expect("it is there") {
        let name = folder.expect("it can be listed").file_name().to_string_lossy().into_owned();
        assert!(names.contains(&name), "there is no target {name}");
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name)); })*

        #[test]
        fn every_target_is_tried() {
            assert_eq!(TARGETS.map(|(name, _)| name), [$(stringify!($name)),*]);
        }
    };
}

targets! {
    config control control_ends disk_log entry etcd gguf handoff kubernetes metadata output rdma_exchange rdma_owner
    rdma_reader record_header request safetensors session slab tcp_owner tcp_reader tcp_wire trace
}
