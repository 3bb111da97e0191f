//! The line that the log has of each request, whatever becomes of it.

use super::http::Http;
use super::world::{World, tokens};
use domain::End;
use keys::{KeyEntry, KeyFile, KeyHash, Keys};
use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

/// A key of the API, which no log may have.
const KEY: &str = "a-key-of-this-test";
/// The beginning of each prompt, which no log may have either.
const PROMPT: &str = "Borrowing is";

/// The log of this process: also of the tests beside this one.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
    tracing::subscriber::set_global_default(subscriber.finish()).expect("no other test takes the log");
    log
});

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics with it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits for the line of a request, and returns it.
async fn line_of(request: &str) -> Value {
    let told = || {
        let text = String::from_utf8(LOG.0.lock().expect("nobody panics with it").clone()).expect("text");
        assert!(!text.contains(KEY) && !text.contains(PROMPT), "{text}");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("it is JSON"));
        lines.filter(|it| it["target"] == "router::access" && it["request"] == request).collect::<Vec<_>>()
    };
    let comes = async {
        while told().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(super::http::PATIENCE, comes).await.expect("each request has its line");
    let [line] = &told()[..] else { panic!("{request} has several lines") };
    line.clone()
}

async fn world() -> World {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let entry = KeyEntry::new(KeyHash::of(KEY), "acme".to_owned());
    KeyFile::change(&path, |file| file.keys.push(entry)).expect("it is written");
    let keys = Keys::open(&path).expect("it is read");
    World::with(1, |config| config.keys = keys).await
}

async fn ask(world: &World, key: &str, prompt: Value) -> Http {
    let mut http = world.client().await;
    http.key = Some(key.to_owned());
    let body = json!({ "model": "tiny-rust", "prompt": prompt, "max_tokens": 8, "stream": true });
    http.post("/v1/completions", &body).await;
    http
}

#[tokio::test]
async fn each_request_has_one_line_whatever_becomes_of_it() {
    LazyLock::force(&LOG);
    let mut world = world().await;

    // One that is answered, with two prompts.
    let prompts = [format!("{PROMPT} one"), format!("{PROMPT} two or more")];
    let mut answered = ask(&world, KEY, json!(prompts)).await;
    let worker = &mut world.workers[0];
    let first = worker.submit().await;
    worker.make(&first, 0, &tokens(" safe"), End::stop()).await;
    let second = worker.submit().await;
    worker.make(&second, 0, &tokens(" safe"), End::length()).await;
    assert_eq!(answered.head().await.status, 200);
    assert_eq!(answered.events().await.last().map(String::as_str), Some("[DONE]"));
    let line = line_of(&first.request.to_string()).await;
    assert_eq!((&line["tenant"], &line["model"]), (&json!("acme"), &json!("tiny-rust")));
    assert_eq!(line["path"], "/v1/completions");
    assert_eq!((&line["status"], &line["outcome"], &line["code"]), (&json!(200), &json!("stop"), &Value::Null));
    assert_eq!(line["prompt_tokens"], json!(prompts.map(|prompt| tokens(&prompt).len()).iter().sum::<usize>()));
    assert_eq!((&line["output_tokens"], &line["cached_tokens"]), (&json!(2 * tokens(" safe").len()), &json!(0)));
    assert_eq!((&line["decode"], &line["prefill"]), (&json!("w0"), &Value::Null));
    let ms = ["queue_ms", "first_token_ms", "total_ms"].map(|name| line[name].as_f64().expect("milliseconds"));
    assert!(ms[0] <= ms[1] && ms[1] <= ms[2], "{ms:?}");

    // One that is refused.
    let (head, _) = ask(&world, "another key", json!(PROMPT)).await.json().await;
    assert_eq!(head.status, 401);
    let line = line_of(head.header("x-request-id").expect("it has a name")).await;
    assert_eq!((&line["status"], &line["outcome"]), (&json!(401), &json!("invalid")));
    assert_eq!((&line["code"], &line["tenant"]), (&json!("invalid_api_key"), &json!("")));

    // One whose client hangs up.
    let client = ask(&world, KEY, json!(PROMPT)).await;
    let submit = world.workers[0].submit().await;
    drop(client);
    world.workers[0].cancelled(&submit).await;
    let line = line_of(&submit.request.to_string()).await;
    assert_eq!((&line["outcome"], &line["first_token_ms"]), (&json!("client"), &Value::Null));
}
