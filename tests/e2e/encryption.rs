//! Workers that reach each other over TLS, by certificates that an operator gave them.

use crate::address::own_place;
use crate::asks::{Ask, check_all};
use crate::cluster::Cluster;
use crate::metrics::Metrics;
use crate::server::{Server, baton, drained, ended, until};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use std::fs;
use tempfile::TempDir;

/// Settings by which nothing but encrypted connections is taken, with a certificate of its own for each of two workers.
fn settings(folder: &TempDir) -> [[String; 4]; 2] {
    let (mut params, key) = (CertificateParams::default(), || KeyPair::generate().expect("there are random numbers"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, key()).expect("it is sound");
    let file = |name: String, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file can be written");
        path.display().to_string()
    };
    let authorities = file("authorities.pem".to_owned(), authority.pem());
    ["prefill", "decode"].map(|worker| {
        let (params, key) = (CertificateParams::new(["baton".to_owned()]).expect("it is a name"), key());
        let certificate = params.signed_by(&key, &authority).expect("it is sound").pem();
        [
            "transport.lanes=tcp".to_owned(),
            format!("transport.tls_certificate={}", file(format!("{worker}.pem"), certificate)),
            format!("transport.tls_key={}", file(format!("{worker}.key"), key.serialize_pem())),
            format!("transport.tls_authorities={authorities}"),
        ]
    })
}

#[test]
fn two_workers_say_over_tls_what_one_process_says() {
    let words = "every block was the right one, and nobody read it on its way; ".repeat(30);
    let ask = |at: u32| {
        let more = json!({ "seed": at, "max_tokens": 10 + at * 5, "ignore_eos": true });
        Ask::completion("tiny-rust", &words[..(1 + 200 * at) as usize], more)
    };
    let sim = ["--device", "sim", "--set", "sim.speed_percent=0", "--set", "engine.chunk_tokens=64"];
    let local = Server::start_with(&sim, &[("BATON_PLACEMENT__HANDOFF", "always")]);
    let told: Vec<_> = (0..4).map(ask).map(|ask| (ask.clone(), ask.whole(&local).0)).collect();
    drop(local);

    let folder = TempDir::new().expect("a folder can be made");
    let [prefill, decode] = settings(&folder);
    let flags = |own: &[String], more: &[&str]| -> Vec<String> {
        let set = own.iter().map(String::as_str).chain(more.iter().copied()).flat_map(|it| ["--set", it]);
        sim.into_iter().chain(set).map(str::to_owned).collect()
    };
    let free = own_place();
    let [prefill, decode] = [flags(&prefill, &[]), flags(&decode, &[&format!("worker.ops_listen={free}")])];
    let [prefill, decode] = [&prefill, &decode].map(|flags| flags.iter().map(String::as_str).collect::<Vec<_>>());
    let mut cluster = Cluster::new("hush, says this test");
    cluster.prefill(&prefill);
    cluster.decode(&decode);
    cluster.route(&["--set", "placement.handoff=always"]);
    cluster.until_ready(1, 1);
    check_all(cluster.router(), &told, 2, true);

    until("the worker has published how it reads", || {
        let metrics = Metrics::at(free);
        let encrypted = metrics.sum("baton_lane_encrypted", &[("lane", "tcp")]);
        let taken = metrics.sum("baton_handoffs_total", &[("lane", "tcp"), ("result", "taken")]);
        (encrypted == 1.0 && taken >= told.len() as f64).then_some(())
    });
    let ends = cluster.end();
    assert!(ends.iter().all(|code| *code == Some(0)), "{ends:?}");
}

#[test]
fn a_worker_whose_files_for_tls_are_missing_does_not_start() {
    let files = ["certificate", "key", "authorities"].map(|what| format!("transport.tls_{what}=/nowhere/{what}.pem"));
    for (given, expect) in [(&files[..], "/nowhere/certificate.pem"), (&files[..1], "transport.tls_key")] {
        let mut arguments = vec!["decode-worker", "--listen", "127.0.0.1:0", "--device", "sim"];
        given.iter().for_each(|set| arguments.extend(["--set", set]));
        let mut child = baton(&arguments).spawn().expect("the binary runs");
        assert_ne!(ended(&mut child).code(), Some(0));
        let error = drained(child.stderr.take());
        assert!(error.contains(expect), "{error}");
    }
}
