//! What took time in a request, as a waterfall in text: a line for each phase.

use crate::output::{grouped, human_bytes, table};
use proto::admin::{Explanation, Phase, PhaseKind};
use std::fmt::Write;

/// Columns of the bars.
const BAR: usize = 32;

/// Returns the lines, or nothing where nothing is known.
pub(super) fn text(explanation: &Explanation) -> String {
    let phases = &explanation.phases;
    if phases.is_empty() {
        return String::new();
    }
    let end = |phase: &Phase| phase.begin_ms + phase.ms;
    let all_ms = phases.iter().map(end).fold(0.0, f64::max);
    let several = explanation.placements_total > 1;
    let head = ["BEGIN (ms)", "   TOOK", "WHERE", "WHAT", "", "DETAIL"].map(str::to_owned);
    let rows = phases.iter().map(|phase| row(phase, all_ms, several));
    let mut text = format!("\n{}", table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
    if explanation.phases_left_out > 0 {
        writeln!(text, "{} further phases are not kept", grouped(explanation.phases_left_out.into()))
            .expect("a text takes all");
    }
    text
}

fn row(phase: &Phase, all_ms: f64, several: bool) -> [String; 6] {
    let kind = phase.kind();
    let is_moment = matches!(kind, PhaseKind::FirstToken | PhaseKind::End);
    let attempt = (several && phase.epoch > 0).then(|| format!("attempt {}", phase.epoch));
    let detail = details(phase).into_iter().chain(attempt).collect::<Vec<_>>().join(", ");
    [
        format!("{:>10.2}", phase.begin_ms),
        if is_moment { String::new() } else { format!("{:>7.2}", phase.ms) },
        if phase.worker_name.is_empty() { "router".to_owned() } else { phase.worker_name.clone() },
        name(kind).to_owned(),
        bar(phase, all_ms, is_moment),
        detail,
    ]
}

fn name(kind: PhaseKind) -> &'static str {
    match kind {
        PhaseKind::Unspecified => "?",
        PhaseKind::Tokenize => "tokenize",
        PhaseKind::Queue => "queue",
        PhaseKind::Load => "load",
        PhaseKind::Chunk => "prefill chunk",
        PhaseKind::Transfer => "transfer",
        PhaseKind::FirstToken => "first token",
        PhaseKind::Decode => "decode",
        PhaseKind::End => "end",
    }
}

fn details(phase: &Phase) -> Vec<String> {
    let mut details = Vec::new();
    let is_transfer = phase.kind() == PhaseKind::Transfer;
    if phase.kind() == PhaseKind::Chunk {
        let (first, end) = (u64::from(phase.start), u64::from(phase.start) + u64::from(phase.tokens));
        details.push(format!("tokens {} to {}", grouped(first), grouped(end.saturating_sub(1))));
    } else if phase.tokens > 0 {
        details.push(format!("{} tokens", grouped(phase.tokens.into())));
    }
    match (phase.layer, phase.layers) {
        (_, 0) if is_transfer => details.push("all layers".to_owned()),
        (_, 0) => {}
        (layer, 1) => details.push(format!("layer {layer}")),
        (layer, layers) => details.push(format!("layers {layer} to {}", u64::from(layer) + u64::from(layers) - 1)),
    }
    if phase.bytes > 0 {
        details.push(human_bytes(phase.bytes));
    }
    let over = [("over", &phase.lane), ("from", &phase.tier), ("from", &phase.peer_name)];
    let over: Vec<String> =
        over.into_iter().filter(|(_, it)| !it.is_empty()).map(|(word, it)| format!("{word} {it}")).collect();
    if !over.is_empty() {
        details.push(over.join(" "));
    }
    if phase.parts > 1 && phase.kind() != PhaseKind::Load {
        details.push(format!("{} told as one", phase.parts));
    }
    details
}

/// Draws where a phase is between the arrival and the last end.
fn bar(phase: &Phase, all_ms: f64, is_moment: bool) -> String {
    let place = |ms: f64| if all_ms > 0.0 { ((ms / all_ms * BAR as f64) as usize).min(BAR - 1) } else { 0 };
    let (begin, end) = (place(phase.begin_ms), place(phase.begin_ms + phase.ms));
    let mark = if is_moment { "|" } else { "=" };
    format!("{:.<BAR$}", format!("{}{}", ".".repeat(begin), mark.repeat(end + 1 - begin.min(end))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_is_a_line_with_its_bar_and_what_it_is_about() {
        let phase = |kind: PhaseKind, worker: &str, begin_ms, ms| Phase {
            kind: kind.into(),
            worker_name: worker.to_owned(),
            epoch: u32::from(!worker.is_empty()),
            begin_ms,
            ms,
            parts: 1,
            ..Phase::default()
        };
        let read = |layer, layers, begin_ms| Phase {
            layer,
            layers,
            bytes: 1 << 16,
            lane: "tcp".to_owned(),
            peer_name: "p".to_owned(),
            ..phase(PhaseKind::Transfer, "d", begin_ms, 0.25)
        };
        let load = Phase {
            tokens: 2048,
            bytes: 1 << 20,
            tier: "host".to_owned(),
            parts: 128,
            ..phase(PhaseKind::Load, "p", 1.0, 1.0)
        };
        let phases = vec![
            phase(PhaseKind::Tokenize, "", 0.0, 0.5),
            load,
            Phase { start: 2048, tokens: 512, ..phase(PhaseKind::Chunk, "p", 2.0, 4.0) },
            read(0, 0, 3.0),
            read(0, 1, 4.0),
            Phase { parts: 2, ..read(1, 2, 5.0) },
            phase(PhaseKind::FirstToken, "", 6.0, 0.0),
            phase(PhaseKind::Decode, "d", 6.0, 10.0),
            phase(PhaseKind::End, "", 16.0, 0.0),
        ];
        let explanation = Explanation { phases, phases_left_out: 3, ..Explanation::default() };
        let expect = "
BEGIN (ms)     TOOK  WHERE   WHAT                                             DETAIL
      0.00     0.50  router  tokenize       ==..............................
      1.00     1.00  p       load           ..===...........................  2,048 tokens, 1 MiB, from host
      2.00     4.00  p       prefill chunk  ....=========...................  tokens 2,048 to 2,559
      3.00     0.25  d       transfer       ......=.........................  all layers, 64 KiB, over tcp from p
      4.00     0.25  d       transfer       ........=.......................  layer 0, 64 KiB, over tcp from p
      5.00     0.25  d       transfer       ..........=.....................  layers 1 to 2, 64 KiB, over tcp from p, 2 told as one
      6.00           router  first token    ............|...................
      6.00    10.00  d       decode         ............====================
     16.00           router  end            ...............................|
3 further phases are not kept
";
        assert_eq!(text(&explanation), expect);
        assert_eq!(text(&Explanation::default()), "", "a router of the release before tells none");
    }
}
