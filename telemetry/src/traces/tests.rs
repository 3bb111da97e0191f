use super::span::request;
use super::*;
use crate::generated::any_value;

#[test]
fn spans_are_grouped_by_the_part_that_they_are_of() {
    let context = TraceContext { trace: 1, span: 2 };
    let span = |instance: &str, parent| Span {
        service: Service { name: "baton-worker", instance: instance.to_owned() },
        context,
        parent,
        name: "prefill".to_owned(),
        is_answer: parent.is_none(),
        begin_ns: 7,
        end_ns: 5,
        attributes: vec![("baton.tokens", 12.into()), ("list", Value::Texts(vec!["stop".to_owned()]))],
        events: vec![Event { at_ns: 6, name: "offered".to_owned(), attributes: Vec::new() }],
        error: parent.map(|_| "late".to_owned()),
    };
    let sent = request(vec![span("p", None), span("d", Some(3)), span("p", Some(4))]);
    let names = |of: &crate::generated::ResourceSpans| {
        let instance = of.resource.as_ref().expect("it has one").attributes.last().expect("its name").clone();
        (instance.value.expect("a value").value, of.scope_spans[0].spans.len())
    };
    let text = |text: &str| Some(any_value::Value::StringValue(text.to_owned()));
    assert_eq!(sent.resource_spans.iter().map(names).collect::<Vec<_>>(), [(text("d"), 1), (text("p"), 2)]);
    let first = &sent.resource_spans[0].scope_spans[0].spans[0];
    assert_eq!(
        (first.trace_id.len(), first.span_id.len(), first.parent_span_id.as_slice()),
        (16, 8, &[0, 0, 0, 0, 0, 0, 0, 3][..])
    );
    assert!(first.end_time_unix_nano >= first.start_time_unix_nano, "clocks that are set back make no negative spans");
    assert_eq!(first.status.as_ref().map(|status| status.message.as_str()), Some("late"));
}

#[test]
fn without_a_collector_nothing_is_traced() {
    assert_eq!(begin(Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")), None);
    let context = Some(TraceContext { trace: 1, span: 2 });
    assert!(attempt("w", domain::RequestId(1), domain::Epoch(1), "prefill", context).is_none());
}

#[test]
fn what_is_no_address_of_a_collector_is_refused() {
    for bad in ["", "collector:4317", "grpc://collector:4317", "/v1/traces"] {
        let error = start(bad, 1.0).expect_err("it is none");
        assert!(matches!(&error, TraceError::Endpoint(endpoint) if endpoint == bad), "{error}");
    }
}
