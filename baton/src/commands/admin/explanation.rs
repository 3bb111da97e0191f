//! What became of a request, in lines.

use super::waterfall;
use crate::output::table;
use proto::admin::{Candidate, Explanation, Placement, Request, candidate_kind_name, request_state_name};
use std::fmt::Write;

/// Returns the explanation of a request: what it took, and each choice with its candidates.
pub(super) fn text(explanation: &Explanation) -> String {
    let Request { id, state, waits_for, prompt_tokens, output_tokens, .. } =
        explanation.request.clone().unwrap_or_default();
    let mut text = format!("request {id}: {}", request_state_name(state));
    let how = if explanation.end.is_empty() { &waits_for } else { &explanation.end };
    let word = if explanation.end.is_empty() { " waits for " } else { ", " };
    if !how.is_empty() {
        text += word;
        text += how;
    }
    writeln!(
        text,
        "\n{prompt_tokens} prompt tokens ({} cached), {output_tokens} tokens made\n",
        explanation.cached_tokens
    )
    .expect("a text takes all");
    text += &times(explanation);
    text += &waterfall::text(explanation);
    let left_out =
        explanation.placements_total as usize - explanation.placements.len().min(explanation.placements_total as usize);
    if left_out > 0 {
        writeln!(text, "\n{left_out} earlier placements are not kept").expect("a text takes all");
    }
    explanation.placements.iter().for_each(|placement| text += &placed(placement));
    text
}

fn times(explanation: &Explanation) -> String {
    let rows = [
        ("tokenize", explanation.tokenize_ms, "in the router, until its tokens were known"),
        ("queue", explanation.queue_ms, "from there until a worker was told"),
        ("prefill", explanation.prefill_ms, "from there to the first token"),
        ("handoff", explanation.handoff_ms, "from there to the first token of the decode worker"),
        ("decode", explanation.decode_ms, "from there to the end"),
        ("first token", explanation.first_token_ms, "since it arrived"),
        ("total", explanation.total_ms, "since it arrived"),
    ];
    let row = |(name, ms, what): (&str, Option<f64>, &str)| {
        let ms = ms.map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
        [name.to_owned(), ms, what.to_owned()]
    };
    table(&rows.map(row))
}

fn placed(placement: &Placement) -> String {
    let Placement { epoch, at_ms, tokens, prefill, decode, cost_s, candidates, moved, .. } = placement;
    if *moved {
        return format!("\nattempt {epoch} at {at_ms:.1} ms: the running sequence moves to w{decode}\n");
    }
    let route = prefill.map_or(format!("w{decode} alone"), |prefill| format!("w{prefill} to w{decode}"));
    let mut text =
        format!("\nattempt {epoch} at {at_ms:.1} ms: {tokens} tokens, {route}, predicted {:.1} ms\n", cost_s * 1e3);
    let head = [
        "",
        "CANDIDATE",
        "AS",
        "CACHED",
        "QUEUE",
        "LOAD",
        "COMPUTE",
        "FETCH",
        "OVERHEAD",
        "SLOWDOWN",
        "TOTAL (ms)",
        "NOTES",
    ];
    let rows = candidates.iter().map(candidate);
    text += &table(&std::iter::once(head.map(str::to_owned)).chain(rows).collect::<Vec<_>>());
    text
}

fn candidate(candidate: &Candidate) -> [String; 12] {
    let ms = |seconds: f64| format!("{:.1}", seconds * 1e3);
    let notes = [
        candidate.holder.map(|holder| format!("fetches up to token {} from w{holder}", candidate.holder_tokens)),
        (!candidate.fits).then(|| "no room".to_owned()),
        (!candidate.takes).then(|| "others wait there".to_owned()),
        (!candidate.measured).then(|| "speed assumed".to_owned()),
    ];
    [
        if candidate.chosen { "*" } else { "" }.to_owned(),
        candidate.worker_name.clone(),
        candidate_kind_name(candidate.kind),
        candidate.cached_tokens.to_string(),
        ms(candidate.queue_s),
        ms(candidate.load_s),
        ms(candidate.compute_s),
        ms(candidate.fetch_s),
        ms(candidate.overhead_s),
        ms(candidate.slowdown_s),
        ms(candidate.total_s),
        notes.into_iter().flatten().collect::<Vec<_>>().join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::admin::{CandidateKind, RequestState};

    #[test]
    fn what_was_chosen_is_marked_and_what_did_not_come_is_a_dash() {
        let request = Request {
            id: "00000000000000ff".to_owned(),
            state: RequestState::Ended.into(),
            prompt_tokens: 100,
            output_tokens: 8,
            ..Request::default()
        };
        let alone = |worker: u32, chosen| Candidate {
            kind: CandidateKind::Alone.into(),
            worker,
            worker_name: format!("decode-{worker}"),
            chosen,
            compute_s: 0.1,
            total_s: 0.1 * f64::from(worker),
            fits: chosen,
            takes: true,
            measured: true,
            ..Candidate::default()
        };
        let placement = Placement {
            epoch: 1,
            at_ms: 0.5,
            tokens: 100,
            decode: 1,
            cost_s: 0.1,
            candidates: vec![alone(1, true), alone(2, false)],
            ..Placement::default()
        };
        let moved = Placement { epoch: 2, at_ms: 9.0, decode: 2, moved: true, ..Placement::default() };
        let explanation = Explanation {
            request: Some(request),
            placements: vec![placement, moved],
            placements_total: 2,
            tokenize_ms: Some(0.1),
            queue_ms: Some(0.4),
            prefill_ms: Some(110.0),
            end: "length".to_owned(),
            ..Explanation::default()
        };
        let expect = "\
request 00000000000000ff: ended, length
100 prompt tokens (0 cached), 8 tokens made

tokenize     0.1 ms    in the router, until its tokens were known
queue        0.4 ms    from there until a worker was told
prefill      110.0 ms  from there to the first token
handoff      -         from there to the first token of the decode worker
decode       -         from there to the end
first token  -         since it arrived
total        -         since it arrived

attempt 1 at 0.5 ms: 100 tokens, w1 alone, predicted 100.0 ms
   CANDIDATE  AS     CACHED  QUEUE  LOAD  COMPUTE  FETCH  OVERHEAD  SLOWDOWN  TOTAL (ms)  NOTES
*  decode-1   alone  0       0.0    0.0   100.0    0.0    0.0       0.0       100.0
   decode-2   alone  0       0.0    0.0   100.0    0.0    0.0       0.0       200.0       no room

attempt 2 at 9.0 ms: the running sequence moves to w2
";
        assert_eq!(text(&explanation), expect);
    }
}
