use super::*;
use crate::text::SpecialTokens;
use domain::Token;
use domain::plan::TokenSet;
use std::path::Path;

const VOCAB: usize = 4096;
const END: Token = 3;

fn tokenizer() -> Tokenizer {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-rust");
    Tokenizer::open(&model).expect("the bundled tokenizer")
}

fn grammars() -> Grammars {
    Grammars::new(&tokenizer(), VOCAB)
}

fn grammar(text: &str) -> Grammar {
    Grammar::new(text.to_owned()).expect("it is short")
}

fn guide(text: &str) -> Guide {
    Guide::new(grammars().compile(&grammar(text)).expect("it is one"))
}

/// Numbers that look random, by a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn tokens(set: &TokenSet) -> Vec<Token> {
    (0..VOCAB as Token).filter(|&token| set.contains(token)).collect()
}

/// Takes tokens at random until the output is complete, or has `most`. Returns it, and whether it is complete.
fn walk(guide: &mut Guide, seed: u64, most: usize) -> Result<(Vec<Token>, bool), GuideError> {
    let (mut numbers, mut output) = (Numbers(seed), Vec::new());
    while output.len() < most {
        let allowed = tokens(&guide.allowed(&output, &[END])?);
        let token = allowed[numbers.below(allowed.len())];
        if token == END {
            return Ok((output, true));
        }
        output.push(token);
        if guide.follow(&output)? {
            return Ok((output, true));
        }
    }
    Ok((output, false))
}

fn spelled(output: &[Token]) -> String {
    tokenizer().decode(output, SpecialTokens::Shown)
}

#[test]
fn an_output_is_a_text_of_its_grammar() {
    let texts = ["yes", "no", "yes, but"];
    let mut seen = Vec::new();
    for seed in 0..40 {
        let (output, complete) =
            walk(&mut guide("start: \"yes\" | \"no\" | \"yes, but\""), seed, 20).expect("it goes on");
        let text = spelled(&output);
        assert!(complete && texts.contains(&text.as_str()), "seed {seed}: {text:?}");
        seen.push(text);
    }
    assert!(texts.iter().all(|text| seen.iter().any(|seen| seen == text)), "{seen:?}");
}

#[test]
fn an_output_of_a_schema_is_json() {
    let schema = r#"start: %json {"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x","y"]}},
        "required":["a","b"],"additionalProperties":false,"x-guidance":{"whitespace_pattern":" "}}"#;
    let mut complete = 0;
    for seed in 0..20 {
        let (output, is_complete) = walk(&mut guide(&schema.replace('\n', " ")), seed, 100).expect("it goes on");
        if is_complete {
            complete += 1;
            let said: serde_json::Value = serde_json::from_str(&spelled(&output)).expect("it is JSON");
            assert!(said["a"].is_i64() || said["a"].is_u64() || said["a"].is_number(), "{said}");
            assert!(said["b"] == "x" || said["b"] == "y", "{said}");
        }
    }
    assert!(complete > 5, "{complete} were complete");
}

#[test]
fn whoever_has_the_tokens_has_the_guide() {
    let text = "start: (/[a-z]{1,3}/ /[0-9]{1,3}/)+ \".\"";
    let mut followed = guide(text);
    let (output, _) = walk(&mut followed, 7, 40).expect("it goes on");
    for known in 0..output.len() {
        // One that saw one token after the other, one that saw them at once, and a clone that goes on elsewhere.
        let mut late = guide(text);
        let mut early = guide(text);
        (0..known).for_each(|known| assert_eq!(early.follow(&output[..known]), Ok(false)));
        let mut other = early.clone();
        let allowed = late.allowed(&output[..known], &[END]).expect("it goes on");
        assert_eq!(early.allowed(&output[..known], &[END]), Ok(allowed.clone()), "behind {known}");
        assert!(allowed.contains(output[known]));
        let another = tokens(&allowed).into_iter().find(|&token| token != output[known] && token != END);
        if let Some(another) = another {
            other.follow(&[&output[..known], &[another]].concat()).expect("it is allowed");
            assert_eq!(early.allowed(&output[..known], &[END]), Ok(allowed), "a clone goes on alone");
        }
    }
}

#[test]
fn an_output_ends_where_it_may() {
    let mut guide = guide("start: /ab?/");
    let of = |text: &str| tokenizer().encode(text, false).expect("text");
    assert!(!guide.allowed(&[], &[END]).expect("it begins").contains(END));
    let a = of("a");
    let allowed = guide.allowed(&a, &[END]).expect("it goes on");
    assert!(allowed.contains(END) && allowed.contains(of("b")[0]));
    assert!(!guide.allowed(&a, &[]).expect("it goes on").contains(END), "nothing ends this request");
    let ab = [a, of("b")].concat();
    assert_eq!(guide.follow(&ab), Ok(true));
    assert_eq!(guide.allowed(&ab, &[END]).map(|set| tokens(&set)), Ok(vec![END]));
    assert_eq!(guide.allowed(&ab, &[]), Err(GuideError::NothingAllowed { tokens: 2 }));
}

#[test]
fn an_output_that_is_none_fails_and_stays_so() {
    let mut guide = guide("start: \"a\"");
    let b = tokenizer().encode("b", false).expect("text");
    for _ in 0..2 {
        assert!(matches!(guide.follow(&b), Err(GuideError::Lost { tokens: 1, .. })));
        assert!(matches!(guide.allowed(&b, &[END]), Err(GuideError::Lost { .. })));
    }
}

#[test]
fn no_text_spells_a_special_token() {
    let allowed = guide("start: /(?s:.*)/").allowed(&[], &[END]).expect("it begins");
    let (special, end) = (|token: &Token| tokenizer().is_special(*token), |token: &Token| *token == END);
    assert!(tokens(&allowed).iter().all(|token| !special(token) || end(token)), "{:?}", tokens(&allowed));
    let named = guide("start: <[1]> \"a\"").allowed(&[], &[END]).expect("it begins");
    assert_eq!(tokens(&named), [1]);
}

#[test]
fn what_is_no_grammar_is_refused_with_its_reason() {
    for (text, reason) in [
        ("", "start"),
        ("start: \"a", ""),
        ("start: nope", "nope"),
        ("start: %json {\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems"),
        ("start: %json {\"type\":\"string\",\"format\":\"nope\"}", "nope"),
        ("start: %json {\"not\":{}}", "not"),
        ("start: %json {\"$ref\":\"http://x/y\"}", "http://x/y"),
    ] {
        let error = grammars().compile(&grammar(text)).expect_err(text).to_string();
        assert!(error.contains(reason) && !error.is_empty() && error.len() <= REASON_BYTES_MAX + 8, "{text}: {error}");
    }
}

/// What a hostile client may send ends: in an error, or in masks that are there before the test runner loses patience.
#[test]
fn a_hostile_grammar_comes_to_an_end() {
    let nested = |open: &str, times: usize, inner: &str, close: &str| open.repeat(times) + inner + &close.repeat(times);
    let chain = |times: usize, name: &str, of: &dyn Fn(usize) -> String| {
        (0..times).map(|at| format!("{name}{at}: {}\n", of(at))).collect::<String>()
    };
    let list = |times: usize, of: &dyn Fn(usize) -> String| (0..times).map(of).collect::<Vec<_>>().join(",");
    let hostile = [
        format!("start: %json {}", nested("{\"properties\":{\"a\":", 100, "{}", "}}")),
        format!("start: %json {}", nested("{\"anyOf\":[", 5000, "{}", "]}")),
        format!("start: {}", nested("(", 20_000, "\"a\"", ")")),
        format!("start: /{}/", nested("(", 20_000, "a", ")")),
        "start: /((a{1000}){1000}){1000}/".to_owned(),
        "start: /(a?){1000}a{1000}/".to_owned(),
        "start: /(.{0,100}x){0,100}/".to_owned(),
        "start: /(a|b)*a(a|b){100}/".to_owned(),
        chain(9000, "T", &|at| format!("T{}", at + 1)) + "T9000: \"a\"\nstart: T0\n",
        chain(9000, "r", &|at| format!("r{}", at + 1)) + "r9000: \"a\"\nstart: r0\n",
        chain(30, "T", &|at| format!("T{} T{}", at + 1, at + 1)) + "T30: \"a\"\nstart: T0\n",
        format!("start: %json {{\"enum\":[{}]}}", list(12_000, &|at| format!("\"v{at}\""))),
        format!(
            "start: %json {{\"properties\":{{{}}}}}",
            list(4000, &|at| format!("\"p{at}\":{{\"type\":\"string\"}}"))
        ),
        "start: s\ns: s s | \"a\" | \"\"\n".to_owned(),
        "start: s\ns: s s s | s s | /[a-z]/ | /[a-z]+/\n".to_owned(),
        "start: %json {\"type\":\"string\",\"maxLength\":1000000}".to_owned(),
        "start: %json {\"type\":\"array\",\"maxItems\":1000000,\"minItems\":900000}".to_owned(),
        "start: %json {\"$ref\":\"#\"}".to_owned(),
        "start: %json {\"type\":\"number\",\"multipleOf\":0.000001,\"maximum\":1e300}".to_owned(),
    ];
    let grammars = grammars();
    grammars.prepare();
    for text in hostile {
        let head: String = text.chars().take(60).collect();
        match grammars.compile(&grammar(&text)) {
            Ok(compiled) => {
                let bytes = compiled.bytes();
                assert!(bytes <= COMPILED_BYTES_MAX, "{head}: {bytes} bytes");
                let walked = walk(&mut Guide::new(compiled), 11, 60);
                println!("{head}: {bytes} bytes, {:?}", walked.map(|(output, _)| output.len()));
            }
            Err(error) => println!("{head}: {error}"),
        }
    }
}

#[test]
fn what_is_kept_is_bounded_and_what_comes_again_stays() {
    let grammars = grammars();
    let of = |number: usize| grammar(&format!("start: \"text {number}\""));
    let first = grammars.compile(&of(0)).expect("it is one");
    assert!(first.bytes() > 0);
    for number in 1..COMPILED_MAX + 10 {
        grammars.compile(&of(number)).expect("it is one");
        assert!(grammars.kept(&of(0)).is_some(), "it was asked for again");
    }
    assert!(grammars.kept(&of(1)).is_none(), "it was not asked for longest");
    let compiled = lock(&grammars.compiled);
    let bytes: usize = compiled.kept.iter().map(|(_, grammar)| grammar.bytes()).sum();
    assert_eq!((compiled.kept.len(), compiled.bytes), (COMPILED_MAX, bytes));
}
