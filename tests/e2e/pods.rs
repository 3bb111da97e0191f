//! A router that follows the pods of an API server of the test's own, and workers that are processes of this host.

use crate::address::own_place;
use crate::api_server::{ApiServer, NAMESPACE, pod, starting, terminating};
use crate::asks::Ask;
use crate::process::Process;
use crate::server::{Server, baton, drained, ended, until};
use serde_json::json;

const SECRET: (&str, &str) = ("BATON_CLUSTER__SECRET", "hush, says this test");

/// Starts a worker, whose pod has the same name. It is not told of Kubernetes.
fn worker(command: &str, name: &str) -> Process {
    Process::start(&[command, "--threads", "1", "--name", name, "--listen", "127.0.0.1:0"], &[SECRET])
}

fn settings(server: &ApiServer) -> [String; 6] {
    let url = format!("discovery.kubernetes.server=http://{}", server.address());
    let namespace = format!("discovery.kubernetes.namespace={NAMESPACE}");
    ["--set".to_owned(), "discovery.kind=kubernetes".to_owned(), "--set".to_owned(), url, "--set".to_owned(), namespace]
}

fn until_ready(router: &Process, prefill: usize, decode: usize) {
    let wanted = json!({ "prefill": prefill, "decode": decode });
    until("the workers are counted", || (router.get("/ready").json()["workers"] == wanted).then_some(()));
}

fn text(by: &Process, prompt: &str) -> String {
    let ask = Ask::completion("tiny-rust", prompt, json!({ "max_tokens": 60, "ignore_eos": true, "temperature": 0 }));
    ask.whole(by).0.choices[&0].text.clone()
}

#[test]
fn a_router_follows_pods_that_start_move_and_end() {
    let undisturbed = text(&Server::start(&["--prefill", "0"]), "Ownership is");
    let api = ApiServer::start(own_place());
    let settings = settings(&api);
    let settings = settings.iter().map(String::as_str);
    let base = ["router", "--listen", "127.0.0.1:0", "--set", "placement.handoff=always"];
    let router = Process::start(&base.into_iter().chain(settings).collect::<Vec<_>>(), &[SECRET]);
    let prefill = worker("prefill-worker", "p-0");
    let first = worker("decode-worker", "d-0");
    api.put(pod("p-0", prefill.address, "prefill"));
    api.put(starting(pod("d-0", first.address, "decode")));
    until_ready(&router, 1, 0);
    // It becomes ready.
    api.put(pod("d-0", first.address, "decode"));
    until_ready(&router, 1, 1);
    assert_eq!(text(&router, "Ownership is"), undisturbed);
    assert!(router.log().contains("host=node-d-0"), "labels are told");
    // A second one joins. The first ends, and its next pod has another address.
    let second = worker("decode-worker", "d-1");
    api.put(pod("d-1", second.address, "decode"));
    until_ready(&router, 1, 2);
    api.put(terminating(pod("d-0", first.address, "decode")));
    first.signal("TERM");
    until_ready(&router, 1, 1);
    api.delete("d-0");
    let next = worker("decode-worker", "d-0");
    assert_ne!(next.address, first.address);
    api.put(pod("d-0", next.address, "decode"));
    until_ready(&router, 1, 2);
    // The API server is away: those that are there go on, and one that dies is missed by its session.
    api.go_away();
    assert_eq!(text(&router, "Ownership is"), undisturbed);
    second.signal("KILL");
    until_ready(&router, 1, 1);
    assert_eq!(text(&router, "Ownership is"), undisturbed);
    api.at_once(|state| state.delete("d-1"));
    api.return_again();
    until("the list to go on", || router.log().contains("the API server answers again").then_some(()));
    // One that is deleted, and returns nowhere.
    api.delete("p-0");
    drop(prefill);
    until_ready(&router, 0, 1);
    assert_eq!(router.metrics().workers(), 1);
    assert_eq!(text(&router, "Ownership is"), undisturbed);
}

#[test]
fn a_router_that_may_not_list_pods_says_which_role_is_missing() {
    let api = ApiServer::start(own_place());
    api.state().refused.push(("/pods", 403));
    let settings = settings(&api);
    let settings = settings.iter().map(String::as_str);
    let arguments: Vec<&str> = ["router", "--listen", "127.0.0.1:0"].into_iter().chain(settings).collect();
    let mut child = baton(&arguments).envs([SECRET]).spawn().expect("the binary runs");
    assert_eq!(ended(&mut child).code(), Some(1));
    let error = drained(child.stderr.take());
    assert!(error.contains("bind a Role that allows `list` and `watch` of `pods`"), "{error}");
}
