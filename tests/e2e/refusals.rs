//! Models that cannot be served: each is refused before its weights are read or fetched, with what it needs and what
//! works instead.

use crate::gguf_writer::{Writer, model};
use crate::models::Folder;
use crate::server::{baton, drained, ended};
use engine::models::ModelFiles;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

/// The description of a model with experts, and the identity of its blob in Git.
const MIXTRAL: (&str, &str) = (
    r#"{"model_type": "mixtral", "num_local_experts": 8, "num_hidden_layers": 32, "vocab_size": 32000}"#,
    "c842a4de6a711bc3c08bac9812e49516baa439bb",
);
/// The description of a model that is served.
const LLAMA: (&str, &str) = (
    r#"{"model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 4096, "dtype": "bfloat16"}"#,
    "2693c50bc859caf11671644e9ca653e6aa57ccd5",
);
/// Bytes that the hub says its weights have.
const WEIGHT_BYTES: u64 = 93_000_000_000;
/// What a model with experts is told.
const EXPERTS: &[&str] = &["a mixture of experts", "mistralai/Mistral-7B-Instruct-v0.3", "Q4_K_M"];

/// Runs a command to its end: exit status, standard output, and what standard error says beside the log.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut child = baton(arguments).envs(environment.iter().copied()).spawn().expect("the binary runs");
    let status = ended(&mut child);
    let (out, error) = (drained(child.stdout.take()), drained(child.stderr.take()));
    let said = error.lines().filter(|line| !line.contains(" INFO ")).collect::<Vec<_>>().join("\n");
    (status.code(), out, said)
}

#[track_caller]
fn check_words(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

/// Checks that a model is refused by the commands that serve it in one line, and that `model info` says the same beside
/// what is known.
#[track_caller]
fn check_refused(model: &str, environment: &[(&str, &str)], reason: &[&str], known: &[&str]) {
    for command in ["serve", "decode-worker"] {
        let (status, out, error) = run(&[command, "--listen", "127.0.0.1:0", "--model", model], environment);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{command:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        check_words(&error, reason);
    }
    let (status, out, error) = run(&["model", "info", model], environment);
    assert_eq!(status, Some(1), "{out}{error}");
    check_words(&error, &["cannot be served here"]);
    let verdict = out.lines().last().expect("it says something");
    assert!(verdict.starts_with("served here: no: "), "{out}");
    check_words(verdict, reason);
    check_words(&out, known);
}

/// Writes a GGUF file of a Llama with experts; returns its path.
fn mixtral_gguf(folder: &Folder) -> String {
    let mut writer = Writer::default();
    writer.text("general.architecture", "llama");
    writer.count("llama.expert_count", 8);
    writer.count("llama.block_count", 32);
    let path = folder.path("mixtral.gguf");
    writer.write(Path::new(&path));
    path
}

#[test]
fn a_folder_is_refused_by_its_config_alone() {
    let folder = Folder::new("refused-folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path(name), text).expect("it is written");
    write("config.json", MIXTRAL.0);
    let known = ["mixtral", "layers", "32", "32,000"];
    check_refused(&folder.path(""), &[], EXPERTS, &known);
    write("config.json", r#"{"model_type": "t5", "is_encoder_decoder": true}"#);
    check_refused(&folder.path(""), &[], &["\"t5\"", "an encoder beside the decoder"], &[]);
    let llama = r#""model_type": "llama", "vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64, "rms_norm_eps": 1e-5"#;
    let quantized = r#""quantization_config": {"quant_method": "bitsandbytes"}"#;
    write("config.json", &format!("{{{llama}, {quantized}}}"));
    check_refused(&folder.path(""), &[], &["bitsandbytes", "not supported here", "Q4_K_M"], &["llama"]);
}

#[test]
fn a_gguf_file_is_refused_by_its_header_alone() {
    let folder = Folder::new("refused-gguf");
    check_refused(&mixtral_gguf(&folder), &[], EXPERTS, &["llama", "experts", "8"]);
    let mut writer = Writer::default();
    writer.text("general.type", "adapter");
    writer.text("general.architecture", "llama");
    let path = folder.path("lora.gguf");
    writer.write(Path::new(&path));
    check_refused(&path, &[], &["general.type", "LoRA", "merged"], &[]);
}

#[test]
fn a_model_of_a_hub_is_refused_before_its_weights_come() {
    let folder = Folder::new("refused-hub");
    let hub = FakeHub::start(&[("config.json", MIXTRAL.1, MIXTRAL.0.as_bytes().to_vec())], "model.safetensors", &[]);
    let (endpoint, home) = (hub.endpoint(), folder.path("safetensors"));
    let environment = [("HF_ENDPOINT", endpoint.as_str()), ("HF_HOME", home.as_str())];
    check_refused("o/n", &environment, EXPERTS, &["mixtral", "86.61 GiB"]);
    let (status, _, error) = run(&["model", "pull", "o/n"], &environment);
    assert_eq!(status, Some(1), "{error}");
    check_words(&error, &[&["o/n is not fetched"][..], EXPERTS].concat());
    assert!(hub.asked().iter().all(|path| !path.ends_with(".safetensors")), "{:?}", hub.asked());

    let header = std::fs::read(mixtral_gguf(&folder)).expect("it was written");
    let hub = FakeHub::start(&[], "n-Q4_K_M.gguf", &header);
    let (endpoint, home) = (hub.endpoint(), folder.path("gguf"));
    let environment = [("HF_ENDPOINT", endpoint.as_str()), ("HF_HOME", home.as_str())];
    check_refused("o/n:Q4_K_M", &environment, EXPERTS, &["llama", "86.61 GiB"]);
    assert_eq!(hub.fetched(), 1, "its beginning is fetched once");

    // A family that is served, with weights that are not read.
    let bundled = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-rust");
    let path = folder.path("tiny.gguf");
    model(&ModelFiles::load(Path::new(bundled)).expect("it loads"), "llama").write(Path::new(&path));
    let mut header = std::fs::read(&path).expect("it was written");
    let name = b"blk.7.ffn_down.weight";
    let at = header.windows(name.len()).position(|window| window == name).expect("it is there");
    let kind = at + name.len() + 4 + 16;
    header[kind..kind + 4].copy_from_slice(&20u32.to_le_bytes());
    let hub = FakeHub::start(&[], "n-IQ4_NL.gguf", &header);
    let (endpoint, home) = (hub.endpoint(), folder.path("iq"));
    let environment = [("HF_ENDPOINT", endpoint.as_str()), ("HF_HOME", home.as_str())];
    check_refused("o/n", &environment, &["IQ4_NL", "Q4_K_M"], &["not supported yet"]);
    assert_eq!(hub.fetched(), 1, "its beginning is fetched once");
}

#[test]
fn info_of_a_model_of_a_hub_fetches_no_weights() {
    let folder = Folder::new("info-hub");
    let hub = FakeHub::start(&[("config.json", LLAMA.1, LLAMA.0.as_bytes().to_vec())], "model.safetensors", &[]);
    let (endpoint, home) = (hub.endpoint(), folder.path("home"));
    let environment = [("HF_ENDPOINT", endpoint.as_str()), ("HF_HOME", home.as_str())];
    let (status, out, error) = run(&["model", "info", "o/n"], &environment);
    // The weights are said to take more than any machine of a test has.
    assert_eq!(status, Some(1), "{error}");
    check_words(
        &out,
        &["name", "o/n", "86.61 GiB in 1 file", "at 2,048", "served here: no: its weights take 86.61 GiB"],
    );
    assert!(hub.asked().iter().all(|path| !path.ends_with(".safetensors")), "{:?}", hub.asked());
}

#[test]
fn info_says_that_a_model_can_be_served_and_what_it_takes() {
    let folder = Folder::new("info");
    let json = folder.path("info.json");
    let bundled = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-rust");
    let (status, out, error) = run(&["model", "info", bundled, "--json", &json], &[]);
    assert_eq!(status, Some(0), "{error}");
    check_words(&out, &["tiny-rust", "in memory", "per token in", "at 2,048", "\nserved here: yes, up to "]);
    let report: Value = serde_json::from_slice(&std::fs::read(json).expect("it was written")).expect("it is JSON");
    assert_eq!((&report["served"], &report["weights"]["exact"]), (&true.into(), &true.into()), "{report}");
    let number = |value: &Value| value.as_u64().expect("a number");
    let (stored, kept) = (number(&report["weights"]["stored_bytes"]), number(&report["weights"]["memory_bytes"]));
    assert!(kept >= stored && kept < 2 * stored, "{report}");
    assert!(number(&report["memory"]["available_bytes"]) > kept, "{report}");
}

/// A hub on this machine with one model, `o/n`: small files, and weights of which only the first bytes exist.
struct FakeHub {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeHub {
    /// `files`: path, identity of the blob in Git, and bytes. `head`: the first bytes of the weights.
    fn start(files: &[(&'static str, &'static str, Vec<u8>)], weights: &'static str, head: &[u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let hub = Self { port: listener.local_addr().expect("bound").port(), asked: Arc::default() };
        let (files, head, asked) = (files.to_vec(), head.to_vec(), hub.asked.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (files, head, asked) = (files.clone(), head.clone(), asked.clone());
                // A client that has enough closes the connection.
                thread::spawn(move || while answer(&stream, &files, weights, &head, &asked).is_some() {});
            }
        });
        hub
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns how often a GGUF file was asked for.
    fn fetched(&self) -> usize {
        self.asked().iter().filter(|path| path.ends_with(".gguf")).count()
    }

    /// Returns the paths that were asked for.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

/// Answers one request; `None`: the connection is over.
fn answer(
    mut stream: &TcpStream,
    files: &[(&str, &str, Vec<u8>)],
    weights: &str,
    head: &[u8],
    asked: &Mutex<Vec<String>>,
) -> Option<()> {
    let mut lines = BufReader::with_capacity(1, stream).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    while !lines.next()?.ok()?.is_empty() {}
    asked.lock().expect("no panic").push(path.split('?').next().unwrap_or_default().to_owned());
    let mut send = |length: u64, body: &[u8]| {
        stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes()).ok()?;
        stream.write_all(body).ok()
    };
    if path.starts_with("/api/models/o/n/") {
        let small = files.iter().map(|(path, id, bytes)| {
            format!(r#"{{"rfilename": "{path}", "size": {}, "blobId": "{id}"}}"#, bytes.len())
        });
        let large = format!(
            r#"{{"rfilename": "{weights}", "size": 1, "blobId": "{}", "lfs": {{"sha256": "{}", "size": {WEIGHT_BYTES}}}}}"#,
            "0".repeat(40),
            "0".repeat(64)
        );
        let all = small.chain([large]).collect::<Vec<_>>().join(", ");
        let body = format!(r#"{{"sha": "{}", "siblings": [{all}]}}"#, "a".repeat(40));
        return send(body.len() as u64, body.as_bytes());
    }
    match files.iter().find(|(file, ..)| path.ends_with(file)) {
        Some((_, _, bytes)) => send(bytes.len() as u64, bytes),
        None => {
            send(WEIGHT_BYTES, head)?;
            // As far as the client reads.
            while stream.write_all(&[0; 1 << 16]).is_ok() {}
            None
        }
    }
}
