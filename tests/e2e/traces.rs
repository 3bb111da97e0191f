//! Traces of requests over processes, as a collector gets them; and the line of the log.

use crate::cluster::Cluster;
use crate::collector::{Collector, Span};
use crate::http::post;
use crate::server::{Server, until};
use serde_json::{Value, json};

const PATH: &str = "/v1/completions";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const ABOVE: &str = "b7ad6b7169203331";

fn body() -> Value {
    json!({ "model": "tiny-rust", "prompt": "Ownership is a set of rules", "max_tokens": 6, "temperature": 0 })
}

/// A request with the header `traceparent`.
fn traced(parent: &str) -> Vec<u8> {
    let text = String::from_utf8(post(PATH, &body())).expect("text");
    text.replacen("\r\n", &format!("\r\ntraceparent: {parent}\r\n"), 1).into_bytes()
}

/// The one span with this name.
#[track_caller]
fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    let [span] = found.as_slice() else { panic!("{} spans are called {name:?}: {spans:#?}", found.len()) };
    span
}

#[test]
fn a_request_is_one_trace_over_all_processes() {
    let collector = Collector::start();
    let endpoint = format!("traces.endpoint=http://{}", collector.address);
    let mut cluster = Cluster::new("hush, says this test");
    cluster.prefill(&["--name", "p", "--set", "worker.ops_listen=", "--set", &endpoint]);
    cluster.decode(&["--name", "d", "--set", "worker.ops_listen=", "--set", &endpoint]);
    cluster.route(&["--set", "placement.handoff=always", "--set", &endpoint, "--set", "traces.sample=0"]);
    cluster.until_ready(1, 1);
    let router = cluster.router();

    // One that nobody traces, by the sample and by its client.
    assert_eq!(router.post(PATH, &body()).head.header("traceparent"), None);
    let untraced = router.exchange(&traced(&format!("00-{TRACE}-{ABOVE}-00")));
    assert_eq!((untraced.head.status, untraced.head.header("traceparent")), (200, None));

    let answer = router.exchange(&traced(&format!("00-{TRACE}-{ABOVE}-01")));
    let usage = answer.json()["usage"].clone();
    let told = answer.head.header("traceparent").expect("it is traced").to_owned();
    let request = answer.head.header("x-request-id").expect("it has a name").to_owned();
    let spans = until("the spans of all processes", || {
        let spans = collector.spans();
        let ends = ["text_completion tiny-rust", "prefill", "decode"];
        ends.iter().all(|name| spans.iter().any(|span| span.name == *name)).then_some(spans)
    });
    assert!(spans.iter().all(|span| span.trace == TRACE && span.begin_ns <= span.end_ns), "{spans:#?}");

    let root = one(&spans, "text_completion tiny-rust");
    assert_eq!((root.service.as_str(), root.parent.as_str()), ("baton-router", ABOVE));
    assert_eq!(told, format!("00-{TRACE}-{}-01", root.id));
    let said = |name: &str| root.attributes[name].as_str();
    assert_eq!(said("gen_ai.request.model"), "tiny-rust");
    assert_eq!(said("gen_ai.operation.name"), "text_completion");
    assert_eq!(said("gen_ai.usage.input_tokens"), usage["prompt_tokens"].to_string());
    assert_eq!(said("gen_ai.usage.output_tokens"), usage["completion_tokens"].to_string());
    assert_eq!((said("gen_ai.response.finish_reasons"), said("http.response.status_code")), ("length", "200"));
    assert_eq!(said("gen_ai.response.id"), answer.json()["id"]);
    assert_eq!(said("baton.request"), request);
    assert_eq!(root.events, ["placed", "first token", "taken over"]);

    let (prefill, decode) = (one(&spans, "prefill"), one(&spans, "decode"));
    for (attempt, worker) in [(prefill, "p"), (decode, "d")] {
        assert_eq!((attempt.service.as_str(), attempt.instance.as_str()), ("baton-worker", worker));
        assert_eq!((&attempt.parent, &attempt.attributes["baton.request"]), (&root.id, &request));
        assert!(attempt.begin_ns >= root.begin_ns, "{attempt:#?}");
    }
    let chunk = one(&spans, "prefill chunk");
    assert_eq!((&chunk.parent, &chunk.attributes["baton.tokens"]), (&prefill.id, &usage["prompt_tokens"].to_string()));
    assert!(prefill.events.iter().any(|event| event == "offered"), "{prefill:#?}");
    let transfers: Vec<_> = spans.iter().filter(|span| span.name == "transfer").collect();
    assert!(!transfers.is_empty() && transfers.iter().all(|read| read.parent == decode.id), "{spans:#?}");
    let bytes = transfers.iter().map(|read| read.attributes["baton.bytes"].parse::<u64>().expect("a number"));
    assert!(bytes.sum::<u64>() > 0 && transfers[0].attributes["baton.peer"] == "p", "{transfers:#?}");
    // Each layer, as the explanation of the request has it.
    let layers = transfers.iter().map(|read| read.attributes["baton.layers"].parse::<u64>().expect("a number"));
    assert!(layers.sum::<u64>() > 0 && transfers.iter().all(|read| read.attributes.contains_key("baton.lane")));
    assert_eq!(one(&spans, "tokenize").parent, root.id);
    assert_eq!(one(&spans, "decode steps").parent, decode.id);
    let queues: Vec<_> = spans.iter().filter(|span| span.name == "queue").map(|span| &span.parent).collect();
    assert!(queues.contains(&&root.id) && queues.contains(&&prefill.id), "{spans:#?}");

    // They are counted when the collector has answered.
    until("the router's own are sent", || {
        let sent = router.metrics().sum("baton_trace_spans_total", &[("result", "sent")]);
        (sent >= 3.0).then_some(())
    });
    let log = router.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains(&request)).collect();
    let [line] = lines.as_slice() else { panic!("one line: {log}") };
    assert!(line.contains(" INFO router::access: request over request="), "{line}");
    assert!(line.ends_with("prefill=\"p\" decode=\"d\"") && !line.contains("Ownership"), "{line}");
}

#[test]
fn a_collector_that_is_away_costs_traces_and_no_request() {
    let away = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port is free");
    let server = Server::start(&["--set", &format!("traces.endpoint=http://{away}")]);
    let answer = server.post(PATH, &body());
    assert!(answer.head.status == 200 && answer.head.header("traceparent").is_some());
    until("spans are dropped", || {
        (server.metrics().sum("baton_trace_spans_total", &[("result", "dropped")]) > 0.0).then_some(())
    });
    assert_eq!(server.post(PATH, &body()).head.status, 200);
}
