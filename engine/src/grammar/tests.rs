use super::*;
use crate::text::SpecialTokens;
use domain::Token;
use std::path::Path;

const VOCAB: usize = 4096;
const END: Token = 3;

fn tokenizer() -> Tokenizer {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-rust");
    Tokenizer::open(&model).expect("the bundled tokenizer")
}

#[test]
fn experiment() {
    let grammars = Grammars::new(&tokenizer(), VOCAB);
    let t = std::time::Instant::now();
    grammars.prepare();
    println!("prepare {:?}", t.elapsed());
    let deep_json = format!("start: %json {}{}", "{\"properties\":{\"a\":".repeat(100), "{}".to_owned() + &"}}".repeat(100));
    let deeper_json = format!("start: %json {}{}", "{\"not\":".repeat(5000), "{}".to_owned() + &"}".repeat(5000));
    let chain: String = (0..9000).map(|i| format!("T{i}: T{}\n", i + 1)).collect::<String>() + "T9000: \"a\"\nstart: T0\n";
    let rule_chain: String = (0..9000).map(|i| format!("r{i}: r{}\n", i + 1)).collect::<String>() + "r9000: \"a\"\nstart: r0\n";
    let double: String = (0..30).map(|i| format!("T{i}: T{} T{}\n", i + 1, i + 1)).collect::<String>() + "T30: \"a\"\nstart: T0\n";
    let many: String = format!("start: %json {{\"enum\":[{}]}}", (0..12000).map(|i| format!("\"v{i}\"")).collect::<Vec<_>>().join(","));
    let props: String = format!("start: %json {{\"type\":\"object\",\"properties\":{{{}}}}}", (0..4000).map(|i| format!("\"p{i}\":{{\"type\":\"string\"}}")).collect::<Vec<_>>().join(","));
    let list: Vec<(&str, String)> = vec![
        ("object", "start: %json {\"type\":\"object\"}".into()),
        ("deep json", deep_json),
        ("deeper json", deeper_json),
        ("parens", format!("start: {}\"a\"{}", "(".repeat(20000), ")".repeat(20000))),
        ("rx parens", format!("start: /{}a{}/", "(".repeat(20000), ")".repeat(20000))),
        ("rx parens 200", format!("start: /{}a{}/", "(".repeat(200), ")".repeat(200))),
        ("repeat", "start: /((a{1000}){1000}){1000}/".into()),
        ("repeat2", "start: /(a?){1000}a{1000}/".into()),
        ("repeat3", "start: /(.{0,100}x){0,100}/".into()),
        ("evil", "start: /(a|aa|aaa|b)*(c|a*)*[ab]{200}/".into()),
        ("nth", "start: /(a|b)*a(a|b){100}/".into()),
        ("chain", chain), ("rule chain", rule_chain), ("double", double), ("enum", many), ("props", props),
        ("ambiguous", "start: s\ns: s s | \"a\" | \"\"\n".into()),
        ("ambiguous2", "start: s\ns: s s s | s s | /[a-z]/ | /[a-z]+/\n".into()),
        ("maxlength", "start: %json {\"type\":\"string\",\"maxLength\":1000000}".into()),
        ("maxitems", "start: %json {\"type\":\"array\",\"maxItems\":1000000,\"minItems\":900000}".into()),
        ("not", "start: %json {\"not\":{}}".into()),
        ("unique", "start: %json {\"type\":\"array\",\"uniqueItems\":true}".into()),
        ("unsat", "start: %json {\"type\":\"string\",\"enum\":[1]}".into()),
        ("ref loop", "start: %json {\"$ref\":\"#\"}".into()),
        ("ref loop2", "start: %json {\"allOf\":[{\"$ref\":\"#\"}]}".into()),
        ("format", "start: %json {\"type\":\"string\",\"format\":\"nope\"}".into()),
        ("oneOf", "start: %json {\"oneOf\":[{\"type\":\"string\"},{\"type\":\"string\",\"maxLength\":3}]}".into()),
        ("lookahead", "start: /(?=a)b/".into()),
        ("empty", "".into()),
        ("syntax", "start: \"a".into()),
        ("noSuch", "start: nope".into()),
        ("remote", "start: %json {\"$ref\":\"http://x/y\"}".into()),
        ("multiple", "start: %json {\"type\":\"number\",\"multipleOf\":0.000001,\"maximum\":1e300}".into()),
    ];
    for (name, text) in list {
        let t = std::time::Instant::now();
        let made = Grammar::new(text).map_err(|e| e.to_string()).and_then(|g| grammars.compile(&g).map_err(|e| e.to_string()));
        println!("{name}: {:?} {:?}", t.elapsed(), made.as_ref().map(|_| ()).map_err(|e| e.chars().take(300).collect::<String>()));
        let Ok(made) = made else { continue };
        let mut guide = Guide::new(made);
        let mut output = Vec::new();
        let mut worst = std::time::Duration::ZERO;
        let mut rng = 12345u64;
        let mut end = "more".to_owned();
        for _ in 0..300 {
            let t = std::time::Instant::now();
            match guide.allowed(&output, &[END]) {
                Err(e) => { end = e.to_string(); break }
                Ok(set) => {
                    worst = worst.max(t.elapsed());
                    let all: Vec<Token> = (0..VOCAB as Token).filter(|&t| set.contains(t)).collect();
                    rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let token = all[(rng >> 33) as usize % all.len()];
                    if token == END { end = "end".into(); break }
                    output.push(token);
                    match guide.follow(&output) { Ok(true) => { end = "complete".into(); break } Ok(false) => {} Err(e) => { end = e.to_string(); break } }
                }
            }
        }
        println!("   worst mask {worst:?} tokens {} {end} {:?}", output.len(), tokenizer().decode(&output, SpecialTokens::Hidden).chars().take(80).collect::<String>());
        let t = std::time::Instant::now();
        drop(guide);
        println!("   drop {:?}", t.elapsed());
    }
}
