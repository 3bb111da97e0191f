//! What a fuzzer feeds here: bodies of requests, as a client may send them.

use crate::ModelCard;
use crate::api::Limits;
use crate::dialects::{ALL, ask};

/// Parses a body as that of each dialect. What is taken keeps within every limit.
pub fn request(body: &[u8], card: &ModelCard) {
    let limits =
        Limits { context_tokens: 256, common_context: 128, prompt_tokens_max: 200, prompts_max: 4, choices_max: 8 };
    for dialect in ALL {
        let Ok(ask) = ask(dialect, body, card, &limits) else { continue };
        assert!((1..=limits.prompts_max).contains(&ask.prompts.len()), "{} prompts", ask.prompts.len());
        assert!((1..=limits.choices_max).contains(&ask.options.choices), "{} choices", ask.options.choices);
        for prompt in &ask.prompts {
            let tokens = prompt.tokens.len() as u32;
            assert!((1..=limits.prompt_tokens_max).contains(&tokens), "{tokens} tokens");
            assert!(tokens.saturating_add(prompt.params.max_tokens) <= limits.context_tokens);
            assert!(prompt.tokens.iter().all(|token| *token < card.shape.vocab), "a token that the model has not");
        }
    }
}
