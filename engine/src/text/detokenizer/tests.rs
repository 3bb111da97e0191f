use super::super::tokenizer::tests::{BYTE_LEVEL, JOINED, SENTENCE_PIECE};
use super::*;
use proptest::prelude::*;

/// The text that comes with each token, and at the end.
fn stream(tokenizer: &Tokenizer, prompt: &[Token], tokens: &[Token]) -> Vec<String> {
    let mut detokenizer = Detokenizer::new(tokenizer.clone(), prompt, SpecialTokens::Hidden);
    let mut texts: Vec<String> = tokens.iter().map(|&token| detokenizer.push(token)).collect();
    texts.push(detokenizer.finish());
    texts
}

/// Returns the tokens by their spelling in the small SentencePiece vocabulary.
fn tokens(names: &[&str]) -> Vec<Token> {
    names.iter().map(|name| SENTENCE_PIECE.token_id(name).expect(name)).collect()
}

fn check(prompt: &[&str], names: &[&str], texts: &[&str]) {
    assert_eq!(stream(&SENTENCE_PIECE, &tokens(prompt), &tokens(names)), texts);
}

#[test]
fn a_leading_space_belongs_to_a_text_that_goes_on() {
    check(&[], &["▁the", "▁a"], &["the", " a", ""]);
    check(&["<s>"], &["▁the", "▁a"], &["the", " a", ""]);
    check(&["<s>", "▁a"], &["▁the", "▁a"], &[" the", " a", ""]);
    check(&[], &["<s>", "▁", "</s>", "▁a"], &["", "", "", " a", ""]);
}

#[test]
fn half_a_character_waits_for_the_other() {
    // U+1F980, a crab.
    check(&[], &["a", "<0xF0>", "<0x9F>", "<0xA6>", "<0x80>", "b"], &["a", "", "", "", "🦀", "b", ""]);
    check(&[], &["<0xF0>", "</s>", "<0x9F>"], &["", "", "", "\u{fffd}"]);
    check(&[], &["<0xF0>", "a"], &["", "\u{fffd}a", ""]);
    check(&[], &["<0xFF>", "<0x80>"], &["\u{fffd}", "\u{fffd}", ""]);
}

#[test]
fn half_a_character_at_the_end_of_the_prompt_is_completed() {
    check(&["a", "<0xF0>", "<0x9F>"], &["<0xA6>", "<0x80>"], &["", "🦀", ""]);
    check(&["a", "<0xF0>", "<0x9F>"], &[], &[""]);
    check(&["<0xC3>", "<0xA9>"], &["a"], &["a", ""]);
}

#[test]
fn special_tokens_are_shown_to_those_who_ask() {
    let text = |prompt: &[&str], names: &[&str]| {
        let mut detokenizer = Detokenizer::new(SENTENCE_PIECE.clone(), &tokens(prompt), SpecialTokens::Shown);
        let mut text: String = tokens(names).into_iter().map(|token| detokenizer.push(token)).collect();
        text += &detokenizer.finish();
        text
    };
    assert_eq!(text(&[], &["▁the", "</s>", "▁a"]), "the</s> a");
    // The leading space is that of the first token, which is special here.
    assert_eq!(text(&[], &["<s>", "▁the"]), "<s> the");
    assert_eq!(text(&["<s>"], &["▁the"]), " the");
    // A character does not go on behind them.
    assert_eq!(text(&[], &["<0xF0>", "</s>", "<0x9F>"]), "\u{fffd}</s>\u{fffd}");
}

#[test]
fn memory_does_not_grow_with_broken_characters() {
    let mut detokenizer = Detokenizer::new(SENTENCE_PIECE.clone(), &[], SpecialTokens::Hidden);
    let [token] = tokens(&["<0x80>"])[..] else { panic!("one token") };
    for _ in 0..10_000 {
        assert_eq!(detokenizer.push(token), "\u{fffd}");
    }
    assert!(detokenizer.partial.capacity() < 64);
}

proptest! {
    #[test]
    fn the_stream_is_the_whole_text(
        byte_level in prop::collection::vec(0u32..4200, 0..60),
        sentence_piece in prop::collection::vec(prop_oneof![0u32..302, 120u32..259], 0..60),
    ) {
        for (tokenizer, tokens) in [(&*BYTE_LEVEL, byte_level), (&*SENTENCE_PIECE, sentence_piece)] {
            let bytes: Vec<u8> = tokens
                .iter()
                .filter(|&&token| !tokenizer.is_special(token))
                .flat_map(|&token| tokenizer.token_bytes(token).to_vec())
                .collect();
            let whole = String::from_utf8_lossy(&bytes).into_owned();
            let begins_with_space = matches!(tokenizer.beginning(), Beginning::Strip { .. });
            let expected = if begins_with_space { whole.strip_prefix(' ').unwrap_or(&whole) } else { &whole };
            prop_assert_eq!(stream(tokenizer, &[], &tokens).concat(), expected);
            prop_assert_eq!(tokenizer.decode(&tokens, SpecialTokens::Hidden), expected);
        }
    }

    #[test]
    fn joined_tokens_stream_as_they_are_decoded(
        prompt in prop::collection::vec(0u32..302, 0..6),
        tokens in prop::collection::vec(0u32..302, 0..40),
    ) {
        let all: Vec<Token> = prompt.iter().chain(&tokens).copied().collect();
        let (before, whole) = (JOINED.decode(&prompt, SpecialTokens::Hidden), JOINED.decode(&all, SpecialTokens::Hidden));
        prop_assert_eq!(before + &stream(&JOINED, &prompt, &tokens).concat(), whole);
    }

    #[test]
    fn a_prompt_and_its_continuation_are_one_text(text in "\\PC{0,30}", cut in 0usize..60) {
        for tokenizer in [&*BYTE_LEVEL, &*SENTENCE_PIECE] {
            let tokens = tokenizer.encode(&text, false).expect("encodes");
            let (prompt, rest) = tokens.split_at(cut.min(tokens.len()));
            // What the prompt has of a character is the continuation's to give out.
            let mut before = Detokenizer::new(tokenizer.clone(), &[], SpecialTokens::Hidden);
            let head: String = prompt.iter().map(|&token| before.push(token)).collect();
            let whole = head + &stream(tokenizer, prompt, rest).concat();
            if !rest.is_empty() {
                prop_assert_eq!(whole, tokenizer.decode(&tokens, SpecialTokens::Hidden));
            }
        }
    }
}
