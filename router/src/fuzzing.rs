//! What a fuzzer feeds here: bodies of requests, as a client may send them, and what models write.

use crate::ModelCard;
use crate::api::Limits;
use crate::dialects::{ALL, ask};
use crate::output::checks::{CHAINS, check_grammar, parse, parser};

/// Parses a body as that of each dialect. What is taken keeps within every limit.
pub fn request(body: &[u8], card: &ModelCard) {
    let limits = Limits {
        context_tokens: 256,
        common_context: 128,
        prompt_tokens_max: 200,
        prompts_max: 4,
        choices_max: 8,
        grammars: true,
    };
    for dialect in ALL {
        let Ok(ask) = ask(dialect, body, card, &limits) else { continue };
        // Without a prompt there is nothing to compute.
        assert!(ask.prompts.len() <= limits.prompts_max, "{} prompts", ask.prompts.len());
        assert!((1..=limits.choices_max).contains(&ask.options.choices), "{} choices", ask.options.choices);
        for prompt in &ask.prompts {
            let tokens = prompt.tokens.len() as u32;
            assert!((1..=limits.prompt_tokens_max).contains(&tokens), "{tokens} tokens");
            assert!(tokens.saturating_add(prompt.params.max_tokens) <= limits.context_tokens);
            assert!(prompt.tokens.iter().all(|token| *token < card.shape.vocab), "a token that the model has not");
        }
    }
}

/// Parses what a model may write, in every form. How it is cut changes nothing, and every call ends.
pub fn output(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // The first byte says where to cut.
    let cut = bytes.first().map_or(0, |&first| usize::from(first) * text.len() / 256);
    let cut = (0..=cut).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    for (tool_form, reasoning_form, prompt) in CHAINS {
        let whole = parse(parser(tool_form, reasoning_form, prompt), [&text[..]]);
        check_grammar(&whole);
        let halves = parse(parser(tool_form, reasoning_form, prompt), [&text[..cut], &text[cut..]]);
        assert_eq!(halves, whole, "{tool_form}");
    }
}
