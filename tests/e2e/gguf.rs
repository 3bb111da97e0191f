//! A model in a GGUF file is served as its twin in safetensors is: the same name, tokens, chats and answers, bit
//! for bit.

use crate::asks::Ask;
use crate::gguf_writer::model;
use crate::models::Folder;
use crate::server::Server;
use engine::models::ModelFiles;
use serde_json::{Value, json};
use std::path::Path;

/// The bundled model.
const TWIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-rust");

/// Writes the bundled model as a GGUF file of the same name, with its tokenizer and its chat template. Returns where.
fn written(folder: &Folder) -> String {
    let read = |name: &str| -> Value {
        let text = std::fs::read(Path::new(TWIN).join(name)).expect("it is bundled");
        serde_json::from_slice(&text).expect("it is JSON")
    };
    let mut writer = model(&ModelFiles::load(Path::new(TWIN)).expect("it loads"), "llama");
    writer.byte_level(&read("tokenizer.json"), "gpt-2");
    let config = read("tokenizer_config.json");
    writer.text("tokenizer.chat_template", config["chat_template"].as_str().expect("it has a template"));
    let path = folder.path("tiny-rust.gguf");
    writer.write(Path::new(&path));
    path
}

#[test]
fn a_gguf_file_says_what_its_twin_says() {
    let greedy = |more: u32| json!({ "temperature": 0, "max_tokens": more, "logprobs": true, "top_logprobs": 2 });
    let asks = [
        Ask::chat("What is ownership?", greedy(64)),
        Ask::chat("What is a trait?", json!({ "seed": 1, "temperature": 0.9, "max_tokens": 48, "n": 2 })),
        Ask::chat("Hello! \u{1f980} \u{e9}\u{4e16}\u{754c}", greedy(32)),
        Ask::completion(
            "tiny-rust",
            "fn main() {\n    let",
            json!({ "temperature": 0, "max_tokens": 64, "logprobs": 2 }),
        ),
        Ask::completion("tiny-rust", json!([300, 301, 302]), json!({ "seed": 2, "temperature": 1, "max_tokens": 40 })),
    ];
    let folder = Folder::new("gguf");
    let (twin, gguf) = (Server::start(&[]), Server::start(&["--model", &written(&folder)]));
    let expected: Vec<_> = asks.iter().map(|ask| ask.whole(&twin).0).collect();
    for (ask, expected) in asks.iter().zip(&expected) {
        assert_eq!(&ask.whole(&gguf).0, expected, "{ask:?}");
        assert_eq!(&ask.streamed(&gguf).0, expected, "{ask:?}, streamed");
    }
}
