//! Templates against goldens that transformers rendered (testdata/make_goldens.py).

use super::*;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Case {
    messages: Vec<Value>,
    #[serde(default)]
    extra: Map<String, Value>,
    #[serde(default = "yes")]
    add_generation_prompt: bool,
}

fn yes() -> bool {
    true
}

/// What transformers made of a case.
#[derive(Deserialize, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
enum Golden {
    /// A prompt.
    Text(String),
    /// `raise_exception`.
    Raised(String),
    /// Another error; its name is Python's.
    Fails(String),
}

fn special() -> Map<String, Value> {
    [("bos_token", "<s>"), ("eos_token", "</s>")]
        .map(|(name, text)| (name.to_owned(), Value::from(text)))
        .into_iter()
        .collect()
}

pub(in crate::text) fn template(source: &str) -> ChatTemplate {
    ChatTemplate::build(vec![(DEFAULT.to_owned(), source.to_owned())], special()).expect("the template is valid")
}

fn check(name: &str, source: &str) {
    let cases: Vec<Case> = serde_json::from_str(include_str!("testdata/cases.json")).expect("cases");
    let goldens: BTreeMap<String, Vec<Golden>> =
        serde_json::from_str(include_str!("testdata/goldens.json")).expect("goldens");
    let template = template(source);
    assert_eq!(cases.len(), goldens[name].len());
    for (index, (case, golden)) in cases.iter().zip(&goldens[name]).enumerate() {
        let end = if case.add_generation_prompt { PromptEnd::Answer } else { PromptEnd::Message };
        let ours = match template.render(&case.messages, end, &case.extra) {
            Ok(text) => Golden::Text(text),
            Err(TemplateError::Raised(message)) => Golden::Raised(message),
            Err(error) => match golden {
                Golden::Fails(_) => continue,
                _ => panic!("{name}, case {index}: {error}"),
            },
        };
        assert_eq!(&ours, golden, "{name}, case {index}");
    }
}

#[test]
fn llama_3() {
    check("llama3", include_str!("testdata/llama3.jinja"));
}

#[test]
fn llama_2() {
    check("llama2", include_str!("testdata/llama2.jinja"));
}

#[test]
fn mistral() {
    check("mistral", include_str!("testdata/mistral.jinja"));
}

#[test]
fn qwen_2_5() {
    check("qwen25", include_str!("testdata/qwen25.jinja"));
}

#[test]
fn qwen_3() {
    check("qwen3", include_str!("testdata/qwen3.jinja"));
}

#[test]
fn features_of_the_language() {
    check("features", include_str!("testdata/features.jinja"));
}

fn user(content: &str) -> Vec<Value> {
    vec![serde_json::json!({"role": "user", "content": content})]
}

#[test]
fn the_bundled_model_has_a_template() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-rust");
    let template = ChatTemplate::open(&dir).expect("valid").expect("there");
    let prompt = template.render(&user(" What is ownership? "), PromptEnd::Answer, &Map::new()).expect("renders");
    assert_eq!(prompt, "<|bos|><|user|>What is ownership?<|end|><|assistant|>");
}

/// Returns a new directory with these files.
fn dir_with(name: &str, files: &[(&str, &str)]) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("baton-template-{}-{name}", std::process::id()));
    for (file, text) in files {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().expect("inside")).expect("a directory");
        fs::write(path, text).expect("a file");
    }
    dir
}

fn render_in(dir: &Path, extra: &Map<String, Value>) -> String {
    let template = ChatTemplate::open(dir).expect("valid").expect("there");
    template.render(&user("x"), PromptEnd::Answer, extra).expect("renders")
}

#[test]
fn templates_are_found_where_hugging_face_puts_them() {
    let tools: Map<String, Value> = [("tools".to_owned(), serde_json::json!([{}]))].into_iter().collect();
    let config = r#"{"bos_token": {"content": "<s>"}, "eos_token": null, "chat_template":
        [{"name": "default", "template": "plain{{ bos_token }}{{ eos_token }}"}, {"name": "tool_use", "template": "tools"}]}"#;
    let dir = dir_with(
        "places",
        &[("tokenizer_config.json", config), ("special_tokens_map.json", r#"{"eos_token": "</s>"}"#)],
    );
    assert_eq!(render_in(&dir, &Map::new()), "plain<s></s>");
    assert_eq!(render_in(&dir, &tools), "tools");
    let dir = dir_with("places", &[("chat_template.json", r#"{"chat_template": "last"}"#)]);
    assert_eq!(render_in(&dir, &tools), "tools");
    let other = dir_with("of a processor", &[("chat_template.json", r#"{"chat_template": "last"}"#)]);
    assert_eq!(render_in(&other, &tools), "last");
    fs::remove_dir_all(other).expect("removed");
    let dir = dir_with("places", &[("chat_template.jinja", "file")]);
    assert_eq!(render_in(&dir, &tools), "file");
    let dir = dir_with("places", &[("additional_chat_templates/tool_use.jinja", "more")]);
    assert_eq!(render_in(&dir, &Map::new()), "file");
    assert_eq!(render_in(&dir, &tools), "more");
    fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn no_template_is_none_and_a_broken_one_an_error() {
    let open = |name: &str, config: &str| {
        let dir = dir_with(name, &[("tokenizer_config.json", config)]);
        let template = ChatTemplate::open(&dir);
        fs::remove_dir_all(dir).expect("removed");
        template
    };
    assert!(matches!(open("none", "{}"), Ok(None)));
    assert!(matches!(open("null", r#"{"chat_template": null}"#), Ok(None)));
    for (name, config) in [
        ("json", "{"),
        ("kind", r#"{"chat_template": 7}"#),
        ("unnamed", r#"{"chat_template": [{"template": "x"}]}"#),
        ("no-default", r#"{"chat_template": [{"name": "rag", "template": "x"}]}"#),
        ("syntax", r#"{"chat_template": "{% for %}"}"#),
    ] {
        assert!(matches!(open(name, config), Err(TemplateError::Invalid(_))), "{name}");
    }
}

#[test]
fn the_time_now_is_a_date() {
    let prompt =
        template("{{ strftime_now('%d %b %Y') }}").render(&[], PromptEnd::Message, &Map::new()).expect("renders");
    let year: u32 = prompt[7..].parse().expect("a year");
    assert!(year >= 2025, "{prompt}");
}

#[test]
fn options_of_tojson_that_are_unknown_are_refused() {
    let result = template("{{ messages | tojson(colour='red') }}").render(&[], PromptEnd::Message, &Map::new());
    assert!(matches!(result, Err(TemplateError::Render(_))));
}

#[test]
fn a_message_that_is_left_open_ends_the_prompt() {
    let messages = |answer: &str| {
        let message = |role: &str, content: &str| serde_json::json!({"role": role, "content": content});
        vec![message("user", "What is ownership?"), message("assistant", answer)]
    };
    let llama3 = template(include_str!("testdata/llama3.jinja"));
    let qwen = template(include_str!("testdata/qwen25.jinja"));
    let open = |template: &ChatTemplate, answer: &str| {
        template.render(&messages(answer), PromptEnd::OpenMessage, &Map::new()).expect("renders")
    };
    // Goldens of transformers' apply_chat_template with continue_final_message; Llama 3's template trims messages.
    assert!(open(&qwen, "It is ").ends_with("<|im_start|>assistant\nIt is "), "{}", open(&qwen, "It is "));
    assert!(open(&llama3, "It is ").ends_with("assistant<|end_header_id|>\n\nIt is"), "{}", open(&llama3, "It is "));
    assert!(open(&qwen, "").ends_with("<|im_start|>assistant\n"), "{}", open(&qwen, ""));
    let blind = template("{{ messages[0].content }}");
    let refused = blind.render(&messages("It is"), PromptEnd::OpenMessage, &Map::new());
    assert!(matches!(refused, Err(TemplateError::NoOpenEnd)), "{refused:?}");
    assert!(matches!(blind.render(&[], PromptEnd::OpenMessage, &Map::new()), Err(TemplateError::NoOpenEnd)));
}
