//! The fields that give an answer a form, and those that force calls.

use super::world::{World, card, tokens};
use crate::ModelCard;
use crate::output::OutputForms;
use domain::End;
use engine::text::ChatTemplate;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const COMPLETION: &str = "/v1/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const OLLAMA_CHAT: &str = "/api/chat";
const OLLAMA_GENERATE: &str = "/api/generate";

pub(super) fn model() -> ModelCard {
    let folder = tempfile::TempDir::new().expect("a folder");
    let template = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}>";
    std::fs::write(folder.path().join("chat_template.jinja"), template).expect("a file");
    let template = ChatTemplate::open(folder.path()).expect("it is valid");
    let forms = OutputForms::of("hermes", "none", template.as_ref()).expect("they are known");
    ModelCard { template, forms, ..card() }
}

pub(super) fn body(path: &str, more: &Value) -> Value {
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let mut body = match path {
        COMPLETION => json!({ "max_tokens": 100, "prompt": "Hi" }),
        RESPONSES => json!({ "max_output_tokens": 100, "input": "Hi" }),
        OLLAMA_CHAT => json!({ "stream": false, "messages": messages }),
        OLLAMA_GENERATE => json!({ "stream": false, "prompt": "Hi" }),
        _ => json!({ "max_tokens": 100, "messages": messages }),
    };
    let fields = body.as_object_mut().expect("an object");
    fields.insert("model".to_owned(), json!("tiny-rust"));
    fields.extend(more.as_object().expect("an object").clone());
    body
}

fn tool(path: &str, name: &str, strict: bool) -> Value {
    let schema = json!({ "type": "object", "properties": { "city": { "enum": ["Paris", "Rome"] } } });
    match path {
        MESSAGES => json!({ "name": name, "input_schema": schema, "strict": strict }),
        RESPONSES => json!({ "type": "function", "name": name, "parameters": schema, "strict": strict }),
        _ => json!({ "type": "function", "function": { "name": name, "parameters": schema, "strict": strict } }),
    }
}

/// Returns the grammar that workers get.
async fn grammar(world: &mut World, path: &str, more: Value) -> Option<String> {
    let mut http = world.client().await;
    http.post(path, &body(path, &more)).await;
    let submit = world.workers[0].submit().await;
    world.workers[0].make(&submit, 0, &tokens("Yes"), End::stop()).await;
    let (head, answer) = http.json().await;
    assert_eq!(head.status, 200, "{more}: {answer}");
    submit.params.grammar.as_ref().map(|grammar| grammar.text().to_owned())
}

/// Checks that a request is refused with 400, and that the error names the field and says `why`.
async fn refused(world: &mut World, path: &str, more: Value, field: &str, why: &str) {
    let mut http = world.client().await;
    http.post(path, &body(path, &more)).await;
    let (head, answer) = http.json().await;
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(head.status == 400 && message.contains(why) && message.contains(field), "{more}: {answer}");
    if [CHAT, COMPLETION, RESPONSES].contains(&path) {
        assert_eq!(answer["error"]["param"], field, "{answer}");
    }
}

#[tokio::test]
async fn each_dialect_says_it_in_its_own_fields() {
    let mut world = World::of_model(model()).await;
    let schema = json!({ "type": "object", "properties": { "zoo": { "type": "integer" } }, "required": ["zoo"] });
    let format = json!({ "type": "json_schema", "name": "n", "strict": true, "schema": schema });
    let alone = json!({ "type": "json_schema", "schema": schema });
    for (path, more, part) in [
        (RESPONSES, json!({ "text": { "format": format } }), "zoo"),
        (RESPONSES, json!({ "text": { "format": { "type": "json_object" } } }), r#""type":"object""#),
        (MESSAGES, json!({ "output_config": { "format": alone } }), "zoo"),
        (MESSAGES, json!({ "output_format": alone }), "zoo"),
        (OLLAMA_CHAT, json!({ "format": schema }), "zoo"),
        (OLLAMA_CHAT, json!({ "format": "json" }), r#""type":"object""#),
        (OLLAMA_GENERATE, json!({ "format": schema }), "zoo"),
        (OLLAMA_GENERATE, json!({ "format": schema, "raw": true }), "zoo"),
    ] {
        let text = grammar(&mut world, path, more.clone()).await.unwrap_or_else(|| panic!("{more}: no grammar"));
        assert!(text.contains(part), "{more}: {text}");
    }
    for (path, more) in [
        (RESPONSES, json!({ "text": { "format": { "type": "text" } } })),
        (MESSAGES, json!({ "output_config": { "effort": "low" } })),
        (OLLAMA_CHAT, json!({ "format": "" })),
    ] {
        assert_eq!(grammar(&mut world, path, more).await, None);
    }
}

#[tokio::test]
async fn each_dialect_names_what_cannot_be_kept_to() {
    let mut world = World::of_model(model()).await;
    let twice = json!({ "type": "array", "uniqueItems": true });
    let alone = json!({ "type": "json_schema", "schema": twice });
    for (path, more, field, why) in [
        (RESPONSES, json!({ "text": { "format": alone } }), "text.format.schema", "uniqueItems"),
        (RESPONSES, json!({ "text": { "format": { "type": "xml" } } }), "text.format.type", "xml"),
        (MESSAGES, json!({ "output_config": { "format": alone } }), "output_config.format.schema", "uniqueItems"),
        (MESSAGES, json!({ "output_config": { "format": { "type": "text" } } }), "output_config.format.type", "text"),
        (MESSAGES, json!({ "output_format": alone, "output_config": { "format": alone } }), "output_format", "both"),
    ] {
        refused(&mut world, path, more, field, why).await;
    }
    for format in [json!([]), json!("xml"), twice] {
        for path in [OLLAMA_CHAT, OLLAMA_GENERATE] {
            let (status, error) = world.refused(path, &body(path, &json!({ "format": format }))).await;
            assert!(status == 400 && error["error"].as_str().is_some_and(|why| why.contains("'format'")), "{error}");
        }
    }
}

#[tokio::test]
async fn every_field_of_a_structure_becomes_a_grammar() {
    let schema = json!({ "type": "object", "properties": { "zoo": { "type": "integer" } }, "required": ["zoo"] });
    let named = json!({ "name": "n", "description": "d", "strict": true, "schema": schema });
    for path in [CHAT, COMPLETION] {
        let mut world = World::of_model(model()).await;
        for (more, part) in [
            (json!({ "response_format": { "type": "json_object" } }), r#""type":"object""#),
            (json!({ "response_format": { "type": "json_schema", "json_schema": named } }), "zoo"),
            (json!({ "structured_outputs": { "json": schema } }), "zoo"),
            (json!({ "structured_outputs": { "json": schema.to_string() } }), "zoo"),
            (json!({ "structured_outputs": { "json_object": true } }), r#""type":"object""#),
            (json!({ "structured_outputs": { "regex": "[a-z]+/[0-9]" } }), r"/[a-z]+\/[0-9]/"),
            (json!({ "structured_outputs": { "choice": ["left", "ri\"ght"] } }), r#""left" | "ri\"ght""#),
            (json!({ "structured_outputs": { "grammar": "start: \"who\"" } }), "who"),
            (json!({ "guided_json": schema }), "zoo"),
            (json!({ "guided_regex": "a{2}" }), "/a{2}/"),
            (json!({ "guided_choice": ["left"] }), "left"),
            (json!({ "guided_grammar": "start: \"who\"" }), "who"),
        ] {
            let text = grammar(&mut world, path, more.clone()).await.unwrap_or_else(|| panic!("{more}: no grammar"));
            assert!(text.contains(part), "{more}: {text}");
            assert!(!text.contains("zoo") || text.contains(r#""whitespace_pattern":" |\n {0,32}""#), "{text}");
        }
        for more in [json!({}), json!({ "response_format": { "type": "text" } }), json!({ "guided_json": null })] {
            assert_eq!(grammar(&mut world, path, more).await, None);
        }
    }
}

#[tokio::test]
async fn what_cannot_be_kept_to_is_refused_by_field_and_keyword() {
    let mut world = World::of_model(model()).await;
    let format =
        |schema: Value| json!({ "response_format": { "type": "json_schema", "json_schema": { "schema": schema } } });
    const SCHEMA: &str = "response_format.json_schema.schema";
    for (more, field, why) in [
        (format(json!({ "type": "array", "uniqueItems": true })), SCHEMA, "uniqueItems"),
        (format(json!({ "properties": { "a": { "not": {} } } })), SCHEMA, "not"),
        (format(json!({ "type": "string", "format": "nope" })), SCHEMA, "format"),
        (format(json!([])), SCHEMA, "JSON schema"),
        (json!({ "response_format": { "type": "xml" } }), "response_format.type", "xml"),
        (json!({ "structured_outputs": { "regex": "(" } }), "structured_outputs.regex", "kept"),
        (json!({ "structured_outputs": { "regex": "" } }), "structured_outputs.regex", "empty"),
        (json!({ "structured_outputs": { "choice": [] } }), "structured_outputs.choice", "1 to"),
        (json!({ "structured_outputs": { "grammar": "root ::= a" } }), "structured_outputs.grammar", "kept"),
        (json!({ "structured_outputs": { "json": "{" } }), "structured_outputs.json", "no JSON"),
        (json!({ "guided_json": {}, "guided_regex": "a" }), "guided_regex", "guided_json"),
    ] {
        refused(&mut world, CHAT, more, field, why).await;
    }
}

#[tokio::test]
async fn forced_calls_become_a_grammar_in_every_dialect() {
    let mut world = World::of_model(model()).await;
    for (path, required, named) in [
        (CHAT, json!("required"), json!({ "type": "function", "function": { "name": "time" } })),
        (MESSAGES, json!({ "type": "any" }), json!({ "type": "tool", "name": "time" })),
        (RESPONSES, json!("required"), json!({ "type": "function", "name": "time" })),
    ] {
        let tools = json!([tool(path, "weather", false), tool(path, "time", false)]);
        let all = grammar(&mut world, path, json!({ "tools": tools, "tool_choice": required })).await.expect("one");
        assert!(all.contains("weather") && all.contains("time") && all.contains("{0,15}"), "{all}");
        let one = grammar(&mut world, path, json!({ "tools": tools, "tool_choice": named })).await.expect("one");
        assert!(!one.contains("weather") && one.contains("time") && !one.contains("{0,15}"), "{one}");
        assert_eq!(grammar(&mut world, path, json!({ "tools": tools })).await, None);
        let strict = json!([tool(path, "weather", true), tool(path, "time", false)]);
        let among_text = grammar(&mut world, path, json!({ "tools": strict })).await.expect("one");
        assert!(among_text.contains("suffix=\"<tool_call>\""), "{among_text}");
    }
    let tools = json!([tool(CHAT, "weather", false)]);
    for (choice, why) in
        [(json!("sometimes"), "sometimes"), (json!({ "type": "function", "function": { "name": "who" } }), "who")]
    {
        refused(&mut world, CHAT, json!({ "tools": tools, "tool_choice": choice }), "tool_choice", why).await;
    }
    for path in [CHAT, RESPONSES] {
        refused(&mut world, path, json!({ "tool_choice": "required" }), "tool_choice", "tools").await;
    }
    let unknown = json!([tool(MESSAGES, "weather", false)]);
    let more = json!({ "tools": unknown, "tool_choice": { "type": "tool", "name": "who" } });
    refused(&mut world, MESSAGES, more, "tool_choice.name", "who").await;
}
