//! `baton bench tiers`: a run of the real binary leaves its report in every form, and says what is wrong with a
//! command line.

use crate::models::Folder;
use crate::server::{baton, drained, ended, until};
use serde_json::Value;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-rust");

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut child = baton(&["bench", "tiers"]).args(arguments).spawn().expect("the binary runs");
    let status = ended(&mut child);
    (status.code(), drained(child.stdout.take()), drained(child.stderr.take()))
}

#[test]
fn prompts_come_back_from_each_tier_and_the_report_says_so() {
    let folder = Folder::new("bench-tiers");
    let (json, html, inside) = (folder.path("report.json"), folder.path("report.html"), folder.path("disk"));
    std::fs::create_dir_all(&inside).expect("a folder");
    let (status, out, error) = run(&[
        "--model",
        MODEL,
        "--prompts",
        "384,768",
        "--rounds",
        "1",
        "--folder",
        &inside,
        "--json",
        &json,
        "--html",
        &html,
    ]);
    assert_eq!(status, Some(0), "{out}{error}");
    assert!(out.starts_with("tiny-rust; ") && error.contains("prompts of 768 tokens, from disk"), "{out}{error}");
    let report = std::fs::read_to_string(&json).expect("the file was written");
    let report: Value = serde_json::from_str(&report).expect("it is JSON");
    for prompt in report["prompts"].as_array().expect("lengths") {
        let rows = prompt["rows"].as_array().expect("places");
        let places: Vec<&str> = rows.iter().filter_map(|row| row["place"].as_str()).collect();
        assert_eq!(places, ["computed", "device", "host", "disk"]);
        let tokens = prompt["tokens"].as_u64().expect("a length");
        let least = |row: &Value| row["tokens"].as_u64().expect("tokens") * 10 >= tokens * 9;
        assert!(rows[1..].iter().all(least), "{rows:?}");
        assert!(rows[2..].iter().all(|row| row["of_goal"].as_f64() > Some(0.0)), "{rows:?}");
    }
    let disk = &report["wear"][1];
    assert!(disk["tier"] == "disk" && disk["written"].as_u64() > Some(0) && disk["read"].as_u64() > Some(0), "{disk}");
    let page = std::fs::read_to_string(&html).expect("the page was written");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert_eq!(std::fs::read_dir(&inside).expect("it is there").count(), 0, "nothing is left");
}

/// The processes that this one started, and that live.
fn children(process: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it lives");
    let of = |thread: std::path::PathBuf| std::fs::read_to_string(thread.join("children")).unwrap_or_default();
    let texts = threads.map(|thread| of(thread.expect("it can be read").path()));
    texts.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Whether the process has ended, waited for or not.
fn is_over(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X']))
}

#[test]
fn a_server_that_is_measured_does_not_outlive_who_measures_it() {
    let folder = Folder::new("bench-tiers-killed");
    let inside = folder.path("disk");
    std::fs::create_dir_all(&inside).expect("a folder");
    // Far more than is done before it is killed.
    let asked = ["--model", MODEL, "--prompts", "768", "--rounds", "1000", "--folder", &inside];
    let mut bench = baton(&["bench", "tiers"]).args(asked).spawn().expect("the binary runs");
    let servers = until("a server", || Some(children(bench.id())).filter(|servers| !servers.is_empty()));
    bench.kill().expect("it runs");
    bench.wait().expect("it can be waited for");
    for server in servers {
        until("the end of the server", || is_over(&server).then_some(()));
    }
}

#[test]
fn what_is_wrong_with_a_command_line_is_said() {
    let check = |arguments: &[&str], part: &str| {
        let (status, out, error) = run(arguments);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{error}");
        assert!(error.contains(part), "{error}");
    };
    check(&["--model", MODEL, "--prompts", "99999"], "--prompts 99999: 128 to ");
    check(&["--model", MODEL, "--prompts", "384", "--rounds", "0"], "--rounds 0");
    check(&["--model", MODEL, "--tiers", "object"], "object.endpoint");
    check(&["--model", MODEL, "--tiers", "tape"], "there are host, disk, object");
    check(&["--model", MODEL, "--folder", "no/such/folder"], "--folder no/such/folder");
    check(&["--model", MODEL, "--set", "disk.depth=many"], "disk.depth");
    check(&["--model", "no/such/model"], "there is no model at no/such/model");
    check(&["--model", "m", "--shape", "tiny"], "cannot be used with");
}
