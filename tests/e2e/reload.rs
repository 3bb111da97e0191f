//! A configuration that is read again on SIGHUP, while requests run.

use crate::asks::{Ask, CHAT};
use crate::models::Folder;
use crate::server::{Server, until};
use serde_json::{Value, json};
use std::fs;

/// Tokens of each choice of a stream that is open while settings change.
const LONG_TOKENS: u64 = 300;

/// Returns the status of a request for so many choices, and what is said of it.
fn choices(server: &Server, count: u32) -> (u16, String) {
    let ask = Ask::chat("Hi", json!({ "max_tokens": 1, "n": count }));
    let answer = server.post(CHAT, &ask.body);
    (answer.head.status, answer.text().to_owned())
}

/// Sends SIGHUP, and waits until the log has `said` once more than before.
fn reload(server: &Server, said: &str) {
    let times = || server.log().matches(said).count();
    let before = times();
    server.signal("HUP");
    until(said, || (times() > before).then_some(()));
}

#[test]
fn a_configuration_changes_as_a_whole_or_not_at_all() {
    let folder = Folder::new("reload");
    let file = folder.path("baton.toml");
    let write = |text: &str| fs::write(&file, text).expect("the folder is there");
    write("[router]\nchoices_max = 4\n");
    let server = Server::start(&["--config", &file]);
    let more = json!({ "max_tokens": LONG_TOKENS, "ignore_eos": true, "seed": 1, "n": 4 });
    let mut stream = Ask::completion("tiny-rust", "Ownership is", more).begin_stream(&server);
    stream.event().expect("the stream goes on").expect("there is a first event");

    write("[router]\nchoices_max = 2\n[log]\nlevel = \"warn,baton=info\"\n");
    reload(&server, "choices_max");
    let (status, text) = choices(&server, 3);
    assert_eq!((status, text.contains("between 1 and 2")), (400, true), "{text}");
    assert_eq!(choices(&server, 2).0, 200);
    assert!(server.log().contains("log.level"), "{}", server.log());

    reload(&server, "nothing changed");

    write("[router]\nchoices_max = 4\n[kv]\nreserve_percent = 9\n");
    reload(&server, "cannot change without a restart");
    let log = server.log();
    assert!(log.contains("kv.reserve_percent (5 -> 9)") && !log.contains("choices_max (2 -> 4)"), "{log}");
    assert_eq!(choices(&server, 3).0, 400, "nothing of it was taken up");

    for (wrong, said) in [("[router]\nchoices_max = 9999\n", "engine.running_max"), ("[router", "is not TOML")] {
        write(wrong);
        reload(&server, said);
        assert_eq!(choices(&server, 3).0, 400, "{wrong}");
    }
    fs::remove_file(&file).expect("it is there");
    reload(&server, "cannot read the configuration file");
    assert_eq!(choices(&server, 2).0, 200);

    write("[router]\nchoices_max = 3\n[log]\nlevel = \"warn,baton=info\"\n");
    reload(&server, "choices_max");
    assert_eq!(choices(&server, 3).0, 200);
    let mut last = String::new();
    let mut events = Vec::new();
    while let Some(event) = stream.event().expect("an open stream comes to its end") {
        events.push(std::mem::replace(&mut last, event));
    }
    assert_eq!(last, "[DONE]");
    let usage: Value = serde_json::from_str(events.last().expect("usage was asked for")).expect("events are JSON");
    assert_eq!(usage["usage"]["completion_tokens"], 4 * LONG_TOKENS, "{usage}");
}
