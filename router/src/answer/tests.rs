//! Text of a sequence against the text of all its tokens at once; and streams that have nothing to say.

use super::text::{Piece, SequenceText};
use super::{Run, Waiting, events};
use crate::access::Access;
use crate::api::{Limits, Options};
use crate::brain::Update;
use crate::clock::Clock;
use crate::dialects::openai::Completion;
use crate::dialects::{Dialect, Head, ask};
use crate::open_requests::OpenRequests;
use crate::tests::world::{card, tokenizer, tokens};
use domain::plan::TokenLogprobs;
use domain::{End, RequestId};
use domain::{SamplingParams, Token};
use engine::text::{Detokenizer, SpecialTokens};
use futures_util::StreamExt;
use keys::Admission;
use proptest::prelude::*;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

fn stopped_by(stops: &[&str]) -> Options {
    Options { stops: stops.iter().map(|&stop| stop.to_owned()).collect(), ..Options::default() }
}

fn sequence(stops: &[&str], params: SamplingParams) -> SequenceText {
    let detokenizer = Detokenizer::new(tokenizer(), &[], SpecialTokens::Hidden);
    SequenceText::new(detokenizer, &stopped_by(stops), Arc::new(params))
}

/// All deltas of a sequence of `tokens`, up to a stop string or the end.
fn deltas(sequence: &mut SequenceText, tokens: &[Token]) -> Vec<Piece> {
    let mut deltas = Vec::new();
    for &token in tokens {
        deltas.push(sequence.push(token, Some(TokenLogprobs { logprob: -1.0, top: Vec::new() })));
        if deltas.last().is_some_and(|delta| delta.stopped.is_some()) {
            return deltas;
        }
    }
    deltas.push(sequence.finish());
    deltas
}

fn text(deltas: &[Piece]) -> String {
    deltas.iter().map(|delta| delta.text.as_str()).collect()
}

/// `(token, characters before it)` of all log probabilities.
fn logged(deltas: &[Piece]) -> Vec<(Token, usize)> {
    deltas.iter().flat_map(|delta| &delta.logprobs).map(|logged| (logged.token, logged.offset_chars)).collect()
}

#[test]
fn stop_tokens_are_counted_and_not_shown() {
    let newline = tokens("\n")[0];
    let params = SamplingParams { stop_tokens: vec![newline], ..Default::default() };
    let mut sequence = sequence(&[], params);
    let word = tokens("word");
    let deltas = deltas(&mut sequence, &[&word[..], &[newline]].concat());
    assert_eq!(text(&deltas), "word");
    assert_eq!(sequence.tokens() as usize, word.len() + 1);
    assert_eq!(logged(&deltas).len(), word.len(), "nor are their log probabilities");
}

#[test]
fn what_ends_a_text_is_part_of_it_where_it_is_asked_for() {
    let newline = tokens("\n")[0];
    let params = SamplingParams { stop_tokens: vec![newline], ..Default::default() };
    let text_of = |said: &str| {
        let detokenizer = Detokenizer::new(tokenizer(), &[], SpecialTokens::Hidden);
        let options = Options { shows_stop: true, ..stopped_by(&["row che"]) };
        let mut sequence = SequenceText::new(detokenizer, &options, Arc::new(params.clone()));
        let all = tokens(said);
        let deltas = deltas(&mut sequence, &all);
        (text(&deltas), logged(&deltas).len(), all.len())
    };
    let (text, logged, all) = text_of("word\n");
    assert_eq!((&text[..], logged), ("word\n", all));
    let (text, logged, all) = text_of("Ask the borrow checker about it");
    assert_eq!(text, "Ask the borrow che", "and not what is behind it");
    assert!(logged < all);
}

#[test]
fn no_stop_string_counts_before_min_tokens() {
    let tokens = tokens("one two three two");
    let params = SamplingParams { min_tokens: 3, ..Default::default() };
    let mut first = sequence(&["two"], SamplingParams::default());
    assert_eq!(text(&deltas(&mut first, &tokens)), "one ");
    let mut later = sequence(&["two"], params);
    assert_eq!(text(&deltas(&mut later, &tokens)), "one two three ");
}

#[test]
fn log_probabilities_wait_for_their_text_and_go_with_what_a_stop_string_cut() {
    let all = tokens("Ask the borrow checker");
    let mut sequence = sequence(&["row che"], SamplingParams::default());
    let deltas = deltas(&mut sequence, &all);
    let shown = text(&deltas);
    assert_eq!(shown, "Ask the bor");
    let mut offset = 0;
    let mut wanted = Vec::new();
    for &token in &all {
        if offset < shown.chars().count() {
            wanted.push((token, offset));
        }
        offset += tokenizer().token_text(token).chars().count();
    }
    assert_eq!(logged(&deltas), wanted);
    for delta in &deltas {
        assert!(delta.text.is_empty() || !delta.logprobs.is_empty() || shown.ends_with(&delta.text), "{delta:?}");
    }
}

#[test]
fn half_a_character_is_never_shown() {
    let crab = tokens("🦀");
    assert!(crab.len() > 1, "the bundled vocabulary spells it in bytes");
    let mut sequence = sequence(&[], SamplingParams::default());
    let whole = deltas(&mut sequence, &crab);
    assert!(whole[..crab.len() - 1].iter().all(|delta| delta.text.is_empty()));
    assert_eq!(text(&whole), "🦀");
    assert_eq!(logged(&whole).iter().map(|&(token, _)| token).collect::<Vec<_>>(), crab);
}

proptest! {
    #[test]
    fn pieces_are_the_text_up_to_the_first_stop_string(
        words in proptest::collection::vec("[a-c ]{1,3}|é|🦀|\n", 0..24),
        stops in proptest::collection::vec("[a-c ]{1,3}|é", 0..3),
    ) {
        let whole = words.concat();
        let tokens = tokens(&whole);
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        let mut sequence = sequence(&stops, SamplingParams::default());
        let deltas = deltas(&mut sequence, &tokens);
        // The stop string that is complete first; of several at once, the longest.
        let found = stops.iter().filter_map(|stop| whole.find(stop).map(|begin| (begin + stop.len(), begin)));
        let cut = found.min().map(|(_, begin)| begin);
        prop_assert_eq!(text(&deltas), &whole[..cut.unwrap_or(whole.len())]);
        prop_assert_eq!(deltas.iter().any(|delta| delta.stopped.is_some()), cut.is_some());
        if cut.is_none() {
            let logged: Vec<Token> = logged(&deltas).iter().map(|&(token, _)| token).collect();
            prop_assert_eq!(logged, tokens);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_has_nothing_to_say_sends_comments() {
    const SECOND: Duration = Duration::from_secs(1);
    let limits = Limits {
        context_tokens: 512,
        common_context: 512,
        prompt_tokens_max: 512,
        prompts_max: 1,
        choices_max: 1,
        grammars: true,
    };
    let body = br#"{ "model": "tiny-rust", "prompt": "a", "stream": true, "stop": " ruler" }"#;
    let ask = ask(&Completion, body, &card(), &limits).expect("it is well formed");
    let (updates, receiver) = mpsc::channel(8);
    let (notes, _brain) = mpsc::channel(8);
    let access = Access::begin(
        (RequestId(1), None),
        &Completion,
        "tiny-rust".into(),
        Clock::new(),
        None,
        &OpenRequests::default(),
    );
    let waiting = Waiting { ids: vec![RequestId(1)], updates: receiver, notes, access };
    let run = Run::new(&ask, &card(), waiting, Admission::free());
    let head = Head {
        request: RequestId(1),
        id: "ID".into(),
        created: 0,
        model: "tiny-rust".into(),
        fingerprint: "fp_0".into(),
    };
    let writer = Completion.writer(head, &ask, &card());
    let mut events = pin!(events(run, writer, Some(15 * SECOND)));

    // 40 s until the first token, another 20 s until the next. The third may begin the stop string, and is not shown.
    let began = Instant::now();
    let worker = async {
        for (after, word) in [(40, "A"), (20, " b"), (10, " rule")] {
            sleep(after * SECOND).await;
            for token in tokens(word) {
                let update = Update::Token { sequence: 0, token, logprobs: None, cached_tokens: 0 };
                updates.send(update).await.expect("the stream reads");
            }
        }
        sleep(30 * SECOND).await;
        updates.send(Update::End { end: End::stop(), cached_tokens: 0 }).await.expect("the stream reads");
    };
    let client = async {
        let mut said = Vec::new();
        while let Some(Ok(bytes)) = events.next().await {
            let what = if &bytes[..] == b": keepalive\n\n" { "keepalive" } else { "event" };
            said.push((began.elapsed().as_secs(), what));
        }
        said
    };
    let ((), said) = tokio::join!(worker, client);
    let wanted = [(15, "keepalive"), (30, "keepalive"), (40, "event"), (55, "keepalive"), (60, "event")];
    let silence = [(75, "keepalive"), (90, "keepalive"), (100, "event")];
    assert_eq!(said, [&wanted[..], &silence[..]].concat());
}
