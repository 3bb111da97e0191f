//! What a grammar of calls lets a model write, the parser of the same form reads as such calls.

use super::super::checks::parse;
use super::super::{Must, OutputForms, Part, Rules, Tools, Wanted};
use crate::tests::world::{card, tokenizer};
use domain::{Grammar, Token};
use engine::grammar::Guide;
use engine::text::SpecialTokens;
use serde_json::{Value, json};
use std::sync::Arc;

/// Forms of calls and of reasoning.
const FORMS: [(&str, &str); 9] = [
    ("hermes", "think"),
    ("hermes", "none"),
    ("qwen3_coder", "none"),
    ("llama3_json", "none"),
    ("pythonic", "none"),
    ("mistral", "none"),
    ("deepseek", "think"),
    ("json", "none"),
    ("harmony", "harmony"),
];
/// Outputs of each.
const OUTPUTS: u64 = 12;
/// Tokens of an output at most; one that is longer is not looked at.
const TOKENS_MAX: usize = 400;
const END: Token = 0;

fn tools(strict: bool) -> Arc<Tools> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": { "enum": ["Paris", "Rome"], "type": "string" },
            "days": { "type": "integer", "minimum": 1, "maximum": 9 },
            "hourly": { "type": "boolean" },
        },
        "required": ["city"],
        "additionalProperties": false,
    });
    let none = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let tools = Tools::new([("get_weather".to_owned(), parameters), ("get_time".to_owned(), none)]);
    Arc::new(tools.with_strict(strict.then(|| "get_weather".to_owned())))
}

/// Returns what a model writes that takes any token that it may, of those with `at` most bytes. `None`: it is too long.
fn written(grammar: &Grammar, seed: u64) -> Option<String> {
    let compiled = card().grammars.compile(grammar).unwrap_or_else(|error| panic!("{error}: {}", grammar.text()));
    let (mut guide, mut output, mut state) = (Guide::new(compiled), Vec::new(), seed);
    while output.len() < TOKENS_MAX {
        let allowed = guide.allowed(&output, &[END]).expect("it goes on");
        let tokens: Vec<Token> = (0..card().shape.vocab).filter(|&token| allowed.contains(token)).collect();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let token = tokens[(state >> 33) as usize % tokens.len()];
        // Reasoning would go on for ever: a `<` begins its marker.
        let token = tokens.iter().copied().find(|&token| token == END).unwrap_or(token);
        if token == END {
            return Some(tokenizer().decode(&output, SpecialTokens::Shown));
        }
        output.push(token);
        if guide.follow(&output).expect("it was allowed") {
            return Some(tokenizer().decode(&output, SpecialTokens::Shown));
        }
    }
    None
}

fn grammar(forms: &OutputForms, prompt: &str, wanted: &Wanted<'_>) -> Grammar {
    let tokenizer = tokenizer();
    let mut rules = Rules::new(&tokenizer);
    let start = forms.grammar(&mut rules, prompt, wanted).expect("it has a marker").expect("something is wanted");
    Grammar::new(rules.finish(&start)).expect("it is short")
}

/// Returns the calls among the parts, by name with their arguments.
fn calls(parts: &[Part]) -> Vec<(String, Value)> {
    let mut calls: Vec<(String, String)> = Vec::new();
    for part in parts {
        match part {
            Part::ToolBegin { name } => calls.push((name.clone(), String::new())),
            Part::ToolArguments(more) => calls.last_mut().expect("a call began").1.push_str(more),
            Part::ToolEnd | Part::Text(_) | Part::Reasoning(_) => {}
        }
    }
    let read =
        |text: String| if text.is_empty() { json!({}) } else { serde_json::from_str(&text).expect("it is JSON") };
    calls.into_iter().map(|(name, arguments)| (name, read(arguments))).collect()
}

fn keeps_to_schema(name: &str, arguments: &Value) -> bool {
    let all = arguments.as_object().expect("an object");
    let is_known = |(key, value): (&String, &Value)| match key.as_str() {
        "city" => value == "Paris" || value == "Rome",
        "days" => value.as_i64().is_some_and(|days| (1..=9).contains(&days)),
        "hourly" => value.is_boolean(),
        _ => false,
    };
    match name {
        "get_weather" => all.contains_key("city") && all.iter().all(is_known),
        "get_time" => all.is_empty(),
        _ => false,
    }
}

#[test]
fn calls_that_are_forced_are_read_as_calls() {
    for (form, reasoning) in FORMS {
        // A thought has no end that a random model finds.
        let forms = OutputForms::find(form, if form == "harmony" { reasoning } else { "none" }, &"").expect("known");
        let tools = tools(false);
        for (must, named) in [(Must::Call, None), (Must::Name("get_weather".to_owned()), Some("get_weather"))] {
            let wanted = Wanted { tools: Some(&tools), must, one_call: false, text: None };
            let grammar = grammar(&forms, "", &wanted);
            let mut looked_at = 0;
            for seed in 0..OUTPUTS {
                let Some(text) = written(&grammar, seed) else { continue };
                let parts = parse(forms.parser("", Some(tools.clone())).expect("a parser"), [text.as_str()]);
                let calls = calls(&parts);
                assert!(!calls.is_empty(), "{form}: {text:?} became {parts:?}");
                let has_text = parts.iter().any(|part| matches!(part, Part::Text(text) if !text.trim().is_empty()));
                assert!(!has_text, "{form}: {text:?} became {parts:?}");
                for (name, arguments) in &calls {
                    assert!(keeps_to_schema(name, arguments), "{form}: {text:?}: {name} {arguments}");
                    assert!(named.is_none_or(|named| named == name), "{form}: {text:?}");
                }
                assert!(named.is_none() || calls.len() == 1, "{form}: {text:?}");
                looked_at += 1;
            }
            assert!(looked_at > 0, "{form}: all outputs are too long");
        }
    }
}

#[test]
fn an_answer_behind_reasoning_has_its_form() {
    let accepts = |forms: &OutputForms, prompt: &str, text: &str| {
        let tokenizer = tokenizer();
        let mut rules = Rules::new(&tokenizer);
        let choice = rules.choice(&["yes".to_owned(), "no".to_owned()]);
        let wanted = Wanted { text: Some(choice), ..Wanted::default() };
        let start = forms.grammar(&mut rules, prompt, &wanted).expect("no calls").expect("a text is wanted");
        let grammar = Grammar::new(rules.finish(&start)).expect("it is short");
        let compiled = card().grammars.compile(&grammar).unwrap_or_else(|error| panic!("{error}: {}", grammar.text()));
        let tokens = tokenizer.encode(text, false).expect("text");
        Guide::new(compiled).follow(&tokens)
    };
    let think = OutputForms::find("none", "think", &"").expect("known");
    for (prompt, text) in [
        ("", "yes"),
        ("", "<think>\nmaybe no</think>\n\nyes"),
        ("", "\n<think></think>no"),
        ("...<think>\n", "I think <so></think>\nno"),
    ] {
        assert_eq!(accepts(&think, prompt, text), Ok(true), "{prompt:?} {text:?}");
    }
    for (prompt, text) in [("", "maybe"), ("", "<think>yes</think>maybe")] {
        assert!(accepts(&think, prompt, text).is_err(), "{prompt:?} {text:?}");
    }
    assert_eq!(accepts(&think, "<think>", "yes"), Ok(false), "it is a thought");
    let harmony = OutputForms::find("harmony", "harmony", &"").expect("known");
    let said = "<|channel|>analysis<|message|>no?<|end|><|start|>assistant<|channel|>final<|message|>yes";
    assert_eq!(accepts(&harmony, "", said), Ok(true));
}

#[test]
fn strict_arguments_keep_to_their_schema_among_text() {
    let (tools, tokenizer) = (tools(true), tokenizer());
    let wanted = || Wanted { tools: Some(&tools), ..Wanted::default() };
    let hermes = OutputForms::find("hermes", "none", &"").expect("known");
    let grammar = grammar(&hermes, "", &wanted());
    let follow = |text: &str| {
        let compiled = card().grammars.compile(&grammar).unwrap_or_else(|error| panic!("{error}: {}", grammar.text()));
        let mut guide = Guide::new(compiled);
        guide.allowed(&tokenizer.encode(text, false).expect("text"), &[END]).map(|allowed| allowed.contains(END))
    };
    assert_eq!(follow("Just text, with < and <tool"), Ok(true));
    let call = |arguments: &str| {
        format!("Let me see.\n<tool_call>\n{{\"name\": \"get_weather\", \"arguments\": {arguments}}}\n</tool_call>")
    };
    assert_eq!(follow(&call("{\"city\": \"Rome\"}")), Ok(true));
    assert!(follow(&call("{\"city\": \"London\"}")).is_err());
    assert!(follow(&call("{}")).is_err());
    let json = OutputForms::find("json", "none", &"").expect("known");
    assert!(json.grammar(&mut Rules::new(&tokenizer), "", &wanted()).is_err(), "its calls have no marker");
}
