//! Forms of calls.

use super::*;

#[test]
fn hermes() {
    // The README of NousResearch/Hermes-Function-Calling shows this form.
    check(
        "hermes",
        "<tool_call>\n{\"name\": \"get_stock_fundamentals\", \"arguments\": {\"symbol\": \"TSLA\"}}\n</tool_call>",
        &[call("get_stock_fundamentals", r#"{"symbol": "TSLA"}"#)],
    );
    // The chat template of Qwen3 writes several calls like this.
    check(
        "hermes",
        "Let me see.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 2}}\n\
         </tool_call>\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>\nDone. ",
        &[
            text("Let me see."),
            call("get_weather", r#"{"city": "Paris", "days": 2}"#),
            call("get_time", "{}"),
            text("Done. "),
        ],
    );
}

#[test]
fn json_of_a_call_in_any_order_and_form() {
    let inside = |json: &str| format!("<tool_call>{json}</tool_call>");
    for (json, arguments) in [
        (r#"{"name": "f"}"#, "{}"),
        (r#"{"name": "f", "arguments": null}"#, "{}"),
        (r#"{"arguments": {"a": [1, "}"]}, "name": "f"}"#, r#"{"a": [1, "}"]}"#),
        (r#"{"id": "x", "type": "function", "name": "f", "parameters": {"a": "\"{"}}"#, r#"{"a": "\"{"}"#),
        (r#"{"name": "f", "arguments": "{\"a\": 1}", "id": 7}"#, r#"{"a": 1}"#),
        (r#"{"name": "f", "arguments": {"a": "</tool_call>"}}"#, r#"{"a": "</tool_call>"}"#),
        (r#"[{"name": "f", "arguments": {"a": "é🦀"}}]"#, r#"{"a": "é🦀"}"#),
    ] {
        check("hermes", &inside(json), &[call("f", arguments)]);
    }
}

#[test]
fn what_is_no_call_is_text() {
    for form in ["hermes", "qwen3_coder", "mistral", "deepseek", "llama3_json", "pythonic", "harmony", "json"] {
        for near in [
            "plain text",
            " a <tool_call> b </tool_call> c <",
            "<tool_call>{\"nam\": 1}</tool_call>",
            "<tool_call>\n<function get_weather>",
            "<tool_call>{\"name\": \"get_weather\", ",
            "[TOOL_CALLS] nothing [TOOL_CALLS][]",
            "[TOOL_CALLS]get_weather[ARGS]",
            "<｜tool▁calls▁begin｜>none<｜tool▁calls▁end｜>",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>",
            "<|python_tag|>print(1)",
            "{\"name\": \"Ann\", \"parameters\": {}}",
            "{\n  \"answer\": 42\n}\n",
            "[1, 2, 3]",
            "[get_weather, get_time]",
            "[unknown(a=1)]",
            "<|python_start|>[x]<|python_end|>",
            "<|channel|>nowhere<|message|>",
            "<|start|>user<|message|>Hi",
            "<|channel|>fin",
            "```json\n{\"a\": 1}\n```",
        ] {
            let is_its_own = form == "harmony" && near.contains("<|channel|>final");
            if !is_its_own {
                check(form, near, &[text(near)]);
            }
        }
    }
}

#[test]
fn what_breaks_off_in_its_arguments_keeps_them() {
    check("hermes", r#"<tool_call>{"name": "f", "arguments": {"city": "Par"#, &[call("f", r#"{"city": "Par"#)]);
    check("mistral", r#"[TOOL_CALLS]f[ARGS]{"city": ["#, &[call("f", r#"{"city": ["#)]);
    check("pythonic", "[get_weather(city=\"Par", &[call("get_weather", r#"{"city": "Par"#)]);
    check("harmony", "<|channel|>commentary to=functions.f<|message|>{\"a", &[call("f", "{\"a")]);
}

#[test]
fn what_follows_a_broken_call_is_text() {
    check(
        "hermes",
        r#"<tool_call>{"name": "f", "arguments": {"a": 1}, oops}</tool_call>"#,
        &[call("f", r#"{"a": 1}"#), text(", oops}</tool_call>")],
    );
    check("mistral", r#"[TOOL_CALLS][{"name": "f", "arguments": {}} and so on"#, &[call("f", "{}"), text("and so on")]);
    check(
        "pythonic",
        "[get_time(zone=[1}), get_time()]",
        &[
            vec![
                Part::ToolBegin { name: "get_time".into() },
                Part::ToolArguments("{\"zone\": [1".into()),
                Part::ToolEnd,
            ],
            text("}), get_time()]"),
        ],
    );
}

#[test]
fn qwen3_coder() {
    // As the chat template of Qwen/Qwen3-Coder-30B-A3B-Instruct tells the model to write it.
    check(
        "qwen3_coder",
        "I look it up.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis \"Nord\"\n</parameter>\n\
         <parameter=days>\n3\n</parameter>\n<parameter=hourly>\nTrue\n</parameter>\n</function>\n</tool_call>\n\
         <tool_call>\n<function=get_time>\n</function>\n</tool_call>",
        &[
            text("I look it up."),
            call("get_weather", r#"{"city": "Paris \"Nord\"", "days": 3, "hourly": true}"#),
            call("get_time", "{}"),
        ],
    );
}

#[test]
fn qwen3_coder_takes_types_from_the_schema() {
    let call_of = |key: &str, value: &str| {
        format!("<function=get_weather>\n<parameter={key}>\n{value}\n</parameter>\n</function>")
    };
    for (key, value, wanted) in [
        ("city", "12", r#""12""#),
        ("city", "a\n\n  b\n", r#""a\n\n  b\n""#),
        ("city", "if a < b {}\n</para>", r#""if a < b {}\n</para>""#),
        ("days", "12", "12"),
        ("days", "twelve", r#""twelve""#),
        ("places", r#"["a", {"b": 1}]"#, r#"["a", {"b": 1}]"#),
        ("note", "null", "null"),
        ("note", "\"quoted\"", r#""\"quoted\"""#),
        ("unknown", "1.5", "1.5"),
        ("unknown", "text", r#""text""#),
    ] {
        check("qwen3_coder", &call_of(key, value), &[call("get_weather", &format!("{{\"{key}\": {wanted}}}"))]);
    }
}

#[test]
fn llama3_json() {
    // Meta's prompt format of Llama 3.1, "JSON based tool calling".
    check(
        "llama3_json",
        r#"{"name": "get_weather", "parameters": {"city": "San Francisco"}}"#,
        &[call("get_weather", r#"{"city": "San Francisco"}"#)],
    );
    // Its chat template puts the marker before calls in an environment with a code interpreter.
    check(
        "llama3_json",
        r#"<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": "get_time", "parameters": {}}"#,
        &[call("get_weather", r#"{"city": "Paris"}"#), call("get_time", "{}")],
    );
    check(
        "llama3_json",
        "First:\n {\"type\": \"function\", \"name\": \"get_time\", \"parameters\": {}}; not more",
        &[text("First:"), call("get_time", "{}"), text("; not more")],
    );
}

#[test]
fn pythonic() {
    // Meta's prompt format of Llama 3.2, "Zero-shot function calling".
    check(
        "pythonic",
        "[get_user_info(user_id=7890, special='black')]",
        &[call("get_user_info", r#"{"user_id": 7890, "special": "black"}"#)],
    );
    check(
        "pythonic",
        "<|python_start|>[get_weather(city=\"Paris\", places=['a', (1, -2.5)], note=None), get_time()]<|python_end|> ok",
        &[
            call("get_weather", r#"{"city": "Paris", "places": ["a", [1, -2.5]], "note": null}"#),
            call("get_time", "{}"),
            text("ok"),
        ],
    );
    check(
        "pythonic",
        r#"[get_weather(city='it\'s "x"\n\u00e9\q', hourly=True, places={'a': [], 1: {}, "b": word,},)]"#,
        &[call(
            "get_weather",
            r#"{"city": "it's \"x\"\né\\q", "hourly": true, "places": {"a": [], "1": {}, "b": "word"}}"#,
        )],
    );
}

#[test]
fn mistral() {
    // The form of mistralai/Mistral-7B-Instruct-v0.3, with the ids that its answers have.
    check(
        "mistral",
        r#"[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "VvvODy9mT"}, {"name": "get_time", "arguments": {}}]"#,
        &[call("get_weather", r#"{"city": "Paris"}"#), call("get_time", "{}")],
    );
    // The chat template of mistralai/Mistral-Small-3.2-24B-Instruct-2506 writes ids and a marker before arguments.
    check(
        "mistral",
        r#"Wait.[TOOL_CALLS]get_weather[CALL_ID]VvvODy9mT[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[ARGS]{}"#,
        &[text("Wait."), call("get_weather", r#"{"city": "Paris"}"#), call("get_time", "{}")],
    );
    check("mistral", r#"[TOOL_CALLS]get_time{"a": 1}"#, &[call("get_time", r#"{"a": 1}"#)]);
}

#[test]
fn deepseek() {
    // The section ToolCall of the model card of deepseek-ai/DeepSeek-V3.1.
    check(
        "deepseek",
        "Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Paris\"}<｜tool▁call▁end｜>\
         <｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        &[text("Yes."), call("get_weather", r#"{"city": "Paris"}"#), call("get_time", "{}")],
    );
    // The chat template of deepseek-ai/DeepSeek-R1, which is that of V3.
    check(
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Paris\"}\n```\
         <｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{}\n```<｜tool▁call▁end｜>\
         <｜tool▁calls▁end｜>",
        &[call("get_weather", r#"{"city": "Paris"}"#), call("get_time", "{}")],
    );
}

#[test]
fn json_without_markers() {
    check(
        "json",
        r#"[{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "get_time", "parameters": {}}]"#,
        &[call("get_weather", r#"{"city": "Paris"}"#), call("get_time", "{}")],
    );
    check(
        "json",
        "I call:\n```json\n{\"name\": \"get_time\", \"arguments\": {}}\n```\nThen I wait.",
        &[text("I call:"), call("get_time", "{}"), text("Then I wait.")],
    );
}

#[test]
fn harmony_without_reasoning() {
    // "Receiving tool calls" of OpenAI's description of harmony, with reasoning as text.
    check(
        "harmony",
        "<|channel|>final<|message|>Hi<|end|><|start|>assistant<|channel|>commentary to=functions.get_current_weather \
         <|constrain|>json<|message|>{\"location\":\"San Francisco\"}<|call|>",
        &[text("Hi"), call("get_current_weather", r#"{"location":"San Francisco"}"#)],
    );
}

#[test]
fn heads_that_are_too_long_are_text() {
    let long = "x".repeat(9000);
    for (form, near) in [
        ("hermes", format!("<tool_call>{{\"id\": \"{long}\", \"name\": \"f\"}}</tool_call>")),
        ("mistral", format!("[TOOL_CALLS]{long}")),
        ("deepseek", format!("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{long}")),
        ("qwen3_coder", format!("<tool_call><function={long}")),
        ("harmony", format!("<|channel|>commentary to=functions.{long}<|message|>")),
    ] {
        let (first, rest) = near.split_at(8180);
        let (second, third) = rest.split_at(20);
        for pieces in [vec![near.as_str()], vec![first, rest], vec![first, second, third]] {
            assert_eq!(parse(parser(form, "none", ""), pieces), text(&near), "{form}");
        }
    }
}
