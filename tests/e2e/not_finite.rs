//! A model that has no number for one token: whoever uses that token is told, and nobody else notices.

use crate::asks::{Ask, check_all};
use crate::models::{Folder, binary};
use crate::server::Server;
use serde_json::{Value, json};
use std::process::Command;

/// The token.
const TOKEN: u64 = 7;

/// Writes a model with random weights, and once more with what stands for the token overwritten. Returns where.
fn written(folder: &Folder) -> [String; 2] {
    let dirs = ["whole/model", "broken/model"].map(|name| folder.path(name));
    for dir in &dirs {
        let arguments = ["model", "random", "--shape", "tiny", "--seed", "1", dir];
        let output = Command::new(binary()).args(arguments).env_clear().output().expect("the binary runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let weights = format!("{}/model.safetensors", dirs[1]);
    let mut bytes = std::fs::read(&weights).expect("it was written");
    let begin = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..begin]).expect("the header is JSON");
    let table = &header["model.embed_tokens.weight"];
    let number = |value: &Value| value.as_u64().expect("a number") as usize;
    let [from, to] = [0, 1].map(|end| begin + number(&table["data_offsets"][end]));
    let row = (to - from) / number(&table["shape"][0]);
    // All bits set is no number in any format.
    bytes[from + TOKEN as usize * row..][..row].fill(0xff);
    std::fs::write(weights, bytes).expect("it can be written");
    dirs
}

#[test]
fn a_token_without_numbers_ends_its_own_requests_alone() {
    let folder = Folder::new("not-finite");
    let [whole, broken] = written(&folder);
    let prompt = |from: u64, length: u64| -> Vec<u64> { (from..from + length).map(|i| 10 + i * 37 % 500).collect() };
    // Nobody's answer has the token.
    let more = json!({ "temperature": 0, "max_tokens": 60, "logit_bias": { TOKEN.to_string(): -100 } });
    let ask = |prompt: Vec<u64>| Ask::completion("model", json!(prompt), more.clone());
    let asks: Vec<Ask> = (1..9).map(|i| ask(prompt(i * 50, i * 20))).collect();
    let server = Server::start(&["--model", &whole]);
    let told: Vec<_> = asks.into_iter().map(|ask| (ask.clone(), ask.whole(&server).0)).collect();
    drop(server);

    let server = Server::start(&["--model", &broken]);
    std::thread::scope(|scope| {
        scope.spawn(|| check_all(&server, &told, 4, true));
        for i in 1..4 {
            // The others' prompts as far as they go, so that nothing of them may be cached that was computed
            // beside the token.
            let bad = ask([prompt(i * 50, i * 20), vec![TOKEN]].concat());
            let answer = server.post(bad.path, &bad.body);
            assert_eq!(answer.head.status, 500, "{}", answer.text());
            let message = answer.json()["error"]["message"].as_str().expect("an error has a message").to_owned();
            assert!(message.contains("for positions") && message.contains("is not finite"), "{message}");
        }
    });
    check_all(&server, &told, 1, false);
    let metrics = server.settled();
    assert!(metrics.sum("baton_sequences_failed_total", &[]) >= 3.0, "they are counted");
}
