//! Structured output: a model that knows nothing of JSON obeys schemas that are made up here, whole, streamed and
//! handed off, and says the same each time.

use crate::asks::{Ask, CHAT, Said};
use crate::server::Server;
use serde_json::{Map, Value, json};

/// Schemas that are asked for.
const SCHEMAS: u64 = 60;
/// Answers among them that must come to an end.
const FINISHED_MIN: usize = 40;
/// Most tokens of an answer.
const TOKENS_MAX: u32 = 160;
/// Deepest nesting of objects and arrays.
const DEPTH_MAX: u64 = 2;
const LETTERS: &str = "^[a-c]{2,4}$";
const NUMBER: &str = "^x-[0-9]+$";
const SWITCH: &str = "^(on|off)$";
const FLAGS: [&str; 2] = ["--threads", "1"];

/// Numbers that look random, by a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn chance(&mut self) -> bool {
        self.below(2) == 1
    }
}

/// Makes a schema up.
fn schema(numbers: &mut Numbers, depth: u64) -> Value {
    let kinds = if depth < DEPTH_MAX { 10 } else { 7 };
    match numbers.below(kinds) {
        0 => json!({ "type": "boolean" }),
        1 => json!({ "type": "null" }),
        2 => {
            let least = numbers.below(200) as i64 - 100;
            json!({ "type": "integer", "minimum": least, "maximum": least + 1 + numbers.below(1000) as i64 })
        }
        3 => json!({ "type": "string", "maxLength": 1 + numbers.below(12) }),
        4 => {
            let patterns = [LETTERS, NUMBER, SWITCH];
            json!({ "type": "string", "pattern": patterns[numbers.below(3) as usize] })
        }
        5 => {
            let values = [json!("red"), json!(7), json!(null), json!(true)];
            json!({ "enum": values[..1 + numbers.below(4) as usize] })
        }
        6 => json!({ "const": if numbers.chance() { "only" } else { "\"quoted\"\n" } }),
        7 => json!({ "anyOf": [schema(numbers, depth + 1), schema(numbers, depth + 1)] }),
        8 => {
            let least = numbers.below(3);
            let items = schema(numbers, depth + 1);
            json!({ "type": "array", "items": items, "minItems": least, "maxItems": least + numbers.below(3) })
        }
        _ => object(numbers, depth),
    }
}

fn object(numbers: &mut Numbers, depth: u64) -> Value {
    let names = ["name", "a b", "größe", "x"];
    let properties: Map<String, Value> =
        (0..1 + numbers.below(4) as usize).map(|at| (names[at].to_owned(), schema(numbers, depth + 1))).collect();
    let required: Vec<&String> = properties.keys().filter(|_| numbers.chance()).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// Returns whether a value is of a schema, in which there is no other keyword than those of this file.
fn is_of(value: &Value, schema: &Value) -> bool {
    let Value::Object(keywords) = schema else { panic!("{schema} is no object") };
    keywords.iter().all(|(keyword, wanted)| match keyword.as_str() {
        "type" => match wanted.as_str().expect("one type") {
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            "integer" => value.is_i64(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("the type {other}"),
        },
        "minimum" => value.as_i64().is_none_or(|number| Some(number) >= wanted.as_i64()),
        "maximum" => value.as_i64().is_none_or(|number| Some(number) <= wanted.as_i64()),
        "maxLength" => value.as_str().is_none_or(|text| Some(text.chars().count() as u64) <= wanted.as_u64()),
        "pattern" => value.as_str().is_none_or(|text| is_of_pattern(text, wanted.as_str().expect("a pattern"))),
        "enum" => wanted.as_array().expect("values").contains(value),
        "const" => wanted == value,
        "anyOf" => wanted.as_array().expect("schemas").iter().any(|schema| is_of(value, schema)),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| is_of(item, wanted))),
        "minItems" => value.as_array().is_none_or(|items| Some(items.len() as u64) >= wanted.as_u64()),
        "maxItems" => value.as_array().is_none_or(|items| Some(items.len() as u64) <= wanted.as_u64()),
        // None has a property of another name: `additionalProperties` is false.
        "properties" => value.as_object().is_none_or(|object| {
            object.iter().all(|(name, value)| wanted.get(name).is_some_and(|schema| is_of(value, schema)))
        }),
        "required" => wanted
            .as_array()
            .expect("names")
            .iter()
            .all(|name| !value.is_object() || value.get(name.as_str().expect("a name")).is_some()),
        "additionalProperties" => *wanted == false,
        other => panic!("the keyword {other}"),
    })
}

fn is_of_pattern(text: &str, pattern: &str) -> bool {
    match pattern {
        LETTERS => (2..=4).contains(&text.len()) && text.bytes().all(|byte| (b'a'..=b'c').contains(&byte)),
        NUMBER => text
            .strip_prefix("x-")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())),
        SWITCH => ["on", "off"].contains(&text),
        other => panic!("the pattern {other}"),
    }
}

fn ask(seed: u64) -> (Value, Ask) {
    let schema = object(&mut Numbers(seed), 0);
    let format = json!({ "type": "json_schema", "json_schema": { "name": "made_up", "schema": schema } });
    let messages = json!([{ "role": "user", "content": format!("Answer number {seed}.") }]);
    let body = json!({
        "model": "tiny-rust", "messages": messages, "response_format": format, "max_tokens": TOKENS_MAX, "seed": seed,
        "temperature": 1,
    });
    (schema, Ask { path: CHAT, body })
}

/// Checks the answers of a server. Returns them, and counts those that came to an end.
fn check(server: &Server, what: &str, streamed: bool) -> (Vec<Said>, usize) {
    let mut finished = 0;
    let answers = (0..SCHEMAS).map(|seed| {
        let (schema, ask) = ask(seed);
        let (said, _) = if streamed { ask.streamed(server) } else { ask.whole(server) };
        let choice = &said.choices[&0];
        let text = &choice.text;
        if choice.finish == "stop" {
            let value: Value = serde_json::from_str(text)
                .unwrap_or_else(|error| panic!("{what}, seed {seed}: {text:?} is no JSON: {error}"));
            assert!(is_of(&value, &schema), "{what}, seed {seed}: {text} is not of {schema}");
            finished += 1;
        }
        said
    });
    let answers = answers.collect();
    (answers, finished)
}

#[test]
fn answers_obey_made_up_schemas_on_every_path() {
    let server = Server::start(&[&["--prefill", "0"], &FLAGS[..]].concat());
    let (whole, finished) = check(&server, "whole", false);
    assert!(finished >= FINISHED_MIN, "{finished} of {SCHEMAS} answers came to an end");
    let (streamed, _) = check(&server, "streamed", true);
    assert_eq!(streamed, whole);
    server.settled();
    drop(server);
    let server = Server::start_with(&FLAGS, &[("BATON_PLACEMENT__HANDOFF", "always")]);
    let (handed_off, _) = check(&server, "handed off", true);
    assert_eq!(handed_off, whole);
    let taken = server.settled().sum("baton_handoffs_total", &[("result", "taken")]);
    assert!(taken > 0.0, "nothing was handed off");
}
