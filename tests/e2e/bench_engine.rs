//! `baton bench engine`: a run of the real binary leaves its report in every form, and says what is wrong with a
//! command line.

use crate::models::Folder;
use crate::server::{baton, drained, ended};
use serde_json::Value;

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut child = baton(&["bench", "engine"]).args(arguments).spawn().expect("the binary runs");
    let status = ended(&mut child);
    (status.code(), drained(child.stdout.take()), drained(child.stderr.take()))
}

#[test]
fn a_run_leaves_its_report_in_every_form() {
    let folder = Folder::new("bench-engine");
    let (json, html) = (folder.path("report.json"), folder.path("report.html"));
    let sizes = ["--prompts", "24", "--batches", "1,2", "--contexts", "16", "--samples", "1"];
    let shape = ["--shape", "tiny", "--dtype", "f32", "--threads", "1", "--json", &json, "--html", &html];
    let (status, out, error) = run(&[&sizes[..], &shape].concat());
    assert_eq!(status, Some(0), "{out}{error}");
    assert!(out.starts_with("random tiny in F32") && out.contains("decode, batch 2 after 16"), "{out}");
    assert!(error.contains("prompt of 24"), "its progress is told: {error}");
    let report = std::fs::read_to_string(&json).expect("the file was written");
    let report: Value = serde_json::from_str(&report).expect("it is JSON");
    assert_eq!((&report["settings"]["threads"], report["works"].as_array().map(Vec::len)), (&1.into(), Some(3)));
    let page = std::fs::read_to_string(&html).expect("the page was written");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
}

#[test]
fn the_bundled_model_can_be_measured_by_its_folder() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-rust");
    let sizes = ["--prompts", "16", "--batches", "1", "--contexts", "0", "--samples", "1"];
    let (status, out, error) = run(&[&["--model", model][..], &sizes].concat());
    assert_eq!(status, Some(0), "{out}{error}");
    assert!(out.starts_with("tiny-rust in "), "{out}");
}

#[test]
fn what_is_wrong_with_a_command_line_is_said() {
    let check = |arguments: &[&str], part: &str| {
        let (status, out, error) = run(arguments);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{error}");
        assert!(error.contains(part), "{error}");
    };
    check(&["--model", "no/such/model"], "there is no model at no/such/model");
    check(&["--shape", "huge"], "shape");
    check(&["--shape", "tiny", "--dtype", "f8"], "there is no number format \"f8\"");
    check(&["--shape", "tiny", "--samples", "0"], "--samples 0");
    check(&["--shape", "tiny", "--prompts", "99999"], "the model's context has 2048");
    check(&["--shape", "tiny", "--json", "no/such/folder/report.json"], "cannot write no/such/folder/report.json");
    check(&["--model", "m", "--shape", "tiny"], "cannot be used with");
}
