//! Commands that fail say in one line what is wrong and how to fix it, and by their exit status whose fault it is.

use crate::models::Folder;
use crate::server::{Server, baton, drained, ended};
use std::net::TcpListener;

/// Runs a command to its end: exit status, standard output, standard error.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut child = baton(arguments).envs(environment.iter().copied()).spawn().expect("the binary runs");
    // No command writes more than a pipe holds.
    let status = ended(&mut child);
    (status.code(), drained(child.stdout.take()), drained(child.stderr.take()))
}

/// Checks that a command fails with `code`, and that the line says all of `words`.
#[track_caller]
fn check_in(arguments: &[&str], environment: &[(&str, &str)], code: i32, words: &[&str]) {
    let (status, out, error) = run(arguments, environment);
    assert_eq!((status, out.as_str()), (Some(code), ""), "{arguments:?}: {error}");
    // What the log said before is not the error.
    let lines: Vec<&str> = error.lines().filter(|line| !line.contains(" INFO ")).collect();
    let [line] = lines[..] else { panic!("{arguments:?}: not one line: {error}") };
    assert!(line.starts_with("baton: "), "{arguments:?}: {line}");
    for word in words {
        assert!(line.contains(word), "{arguments:?}: no {word:?} in {line}");
    }
}

#[track_caller]
fn check(arguments: &[&str], code: i32, words: &[&str]) {
    check_in(arguments, &[], code, words);
}

/// Checks that the parser of the command line refuses it and names `word`.
#[track_caller]
fn check_usage(arguments: &[&str], word: &str) {
    let (status, out, error) = run(arguments, &[]);
    assert_eq!((status, out.as_str()), (Some(2), ""), "{arguments:?}: {error}");
    let first = error.lines().next().unwrap_or_default();
    assert!(first.starts_with("error: ") && first.contains(word), "{arguments:?}: {error}");
    assert!(error.contains("--help"), "{arguments:?}: {error}");
}

#[test]
fn wrong_command_lines_are_refused() {
    check_usage(&["serve", "--fly"], "--fly");
    check_usage(&["serve", "model"], "'model'");
    check_usage(&["fly"], "'fly'");
    check_usage(&["model", "random", "somewhere"], "arguments");
}

#[test]
fn wrong_settings_are_refused() {
    check(&["serve", "--device", "cuda"], 1, &["there is no cuda device here", "libcuda.so.1"]);
    check(&["serve", "--device", "abacus"], 2, &["engine.device", "abacus", "`cpu`"]);
    check(&["serve", "--require-lane", "cuda_ipc"], 2, &["transport.require", "cuda_ipc", "local", "nvlink"]);
    check(&["serve", "--require-lane", "string"], 2, &["transport.require", "string", "local"]);
    check(&["serve", "--prefill", "many"], 2, &["--prefill", "many", "number"]);
    check(&["serve", "--threads", "-1"], 2, &["--threads", "-1"]);
    check(&["serve", "--decode", "0"], 2, &["serve.decode", "at least one"]);
    check(&["serve", "--listen", "here"], 2, &["router.listen", "here", "HOST:PORT"]);
    check(&["serve", "--set", "engine.chunk=3"], 2, &["engine.chunk", "engine.chunk_tokens"]);
    check(&["serve", "--set", "kv.device_bytes"], 2, &["kv.device_bytes", "KEY=VALUE"]);
    check(&["serve", "--set", "kv.device_bytes=much"], 2, &["kv.device_bytes", "much", "4GiB"]);
    check(&["serve", "--set", "engine.running_max=5000"], 2, &["engine.step_tokens_max", "5512"]);
    check(&["serve", "--set", "engine.running_max=8"], 2, &["router.choices_max", "16", "engine.running_max = 8"]);
    check(&["serve", "--log-level", "a=b=c"], 2, &["a=b=c"]);
    check_in(&["serve"], &[("BATON_KV__DEVICE", "1")], 2, &["BATON_KV__DEVICE", "kv.device"]);
    check_in(&["config", "check"], &[("BATON_SERVE__DECODE", "x")], 2, &["BATON_SERVE__DECODE", "\"x\""]);
}

#[test]
fn what_cannot_be_served_is_refused() {
    let folder = Folder::new("command-line");
    check(&["serve", "--model", &folder.path("nothing")], 1, &["nothing", "config.json"]);
    check(&["serve", "--model", &folder.path("")], 1, &["config.json"]);
    check(&["serve", "--config", &folder.path("baton.toml")], 2, &["baton.toml", "No such file"]);
    check(&["serve", "--set", "kv.device_bytes=1"], 1, &["kv.device_bytes", "524288"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it has an address").to_string();
    check(&["serve", "--listen", &address], 1, &["cannot listen", &address, "router.listen"]);

    // A model without one of its parts.
    for part in ["model.safetensors", "tokenizer.json"] {
        let dir = folder.window_model();
        std::fs::remove_file(folder.path(&format!("window/{part}"))).expect("it was written");
        check(&["serve", "--model", &dir], 1, &["window", part]);
        std::fs::remove_dir_all(&dir).expect("it was written");
    }
    // Weights that end too soon.
    let dir = folder.window_model();
    let weights = folder.path("window/model.safetensors");
    let bytes = std::fs::read(&weights).expect("it was written");
    std::fs::write(&weights, &bytes[..bytes.len() / 2]).expect("it can be written");
    check(&["serve", "--model", &dir], 1, &["model.safetensors"]);
    std::fs::write(&weights, b"").expect("it can be written");
    check(&["serve", "--model", &dir], 1, &["model.safetensors"]);
}

#[test]
fn files_that_are_wrong_say_where() {
    let folder = Folder::new("config-file");
    let file = folder.path("baton.toml");
    let write = |text: &str| std::fs::write(&file, text).expect("it can be written");
    let arguments = ["config", "check", "--config", &file];
    write("[serve]\nprefil = 2\n");
    check(&arguments, 2, &["baton.toml", "serve.prefil", "serve.prefill"]);
    write("[serve]\nprefill = \"two\"\n");
    check(&arguments, 2, &["baton.toml", "serve.prefill"]);
    write("[servers]\n");
    check(&arguments, 2, &["baton.toml", "servers"]);
    write("[serve]\nprefill = 2\nprefill = 3\n");
    let (status, _, error) = run(&arguments, &[]);
    assert!(status == Some(2) && error.contains("baton.toml") && error.contains("line 3"), "{error}");
    write("[serve]\nprefill = 2\n[kv]\ndevice_bytes = \"32MiB\"\n");
    let (status, out, error) = run(&arguments, &[]);
    assert_eq!((status, error.as_str()), (Some(0), ""), "{out}");
}

#[test]
fn the_configuration_tells_where_values_come_from() {
    let folder = Folder::new("config-show");
    let file = folder.path("baton.toml");
    std::fs::write(&file, "[serve]\nprefill = 2\ndecode = 2\n[kv]\nreserve_percent = 7\n").expect("it can be written");
    let arguments = ["config", "show", "--config", &file, "--prefill", "5"];
    let (status, out, error) = run(&arguments, &[("BATON_SERVE__DECODE", "3"), ("BATON_SERVE__PREFILL", "4")]);
    assert_eq!((status, error.as_str()), (Some(0), ""));
    let row = |key: &str| {
        let row = out.lines().find(|line| line.split_whitespace().next() == Some(key)).expect("every setting is there");
        row.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("serve.prefill"), "5 flag --prefill");
    assert_eq!(row("serve.decode"), "3 environment BATON_SERVE__DECODE");
    assert_eq!(row("kv.reserve_percent"), format!("7 file {file}"));
    assert_eq!(row("router.drain_s"), "30 default");

    let (status, out, error) = run(&["config", "check"], &[]);
    assert_eq!((status, error.as_str()), (Some(0), ""), "{out}");
    for arguments in [&["--help"][..], &["serve", "--help"], &["model", "random", "--help"], &["--version"]] {
        let (status, out, error) = run(arguments, &[]);
        assert_eq!((status, error.as_str(), out.is_empty()), (Some(0), "", false), "{arguments:?}");
    }
}

#[test]
fn a_port_is_taken_by_one_service_only() {
    let mut server = Server::start(&[]);
    let address = server.address.to_string();
    check(&["serve", "--listen", &address], 1, &["cannot listen", &address]);
    server.signal("INT");
    assert_eq!(server.ended().code(), Some(0));
    // Who comes next takes it without waiting for the kernel to forget.
    let mut child = baton(&["serve", "--listen", &address]).spawn().expect("the binary runs");
    let mut welcome = String::new();
    let stdout = child.stdout.take().expect("it is piped");
    let read = std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut welcome);
    child.kill().expect("a child can be killed");
    child.wait().expect("a child can be waited for");
    assert!(read.is_ok() && welcome.contains(&address), "{welcome:?}: {}", drained(child.stderr.take()));
}
