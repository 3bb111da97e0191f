//! Answers as tables.

use crate::output::{grouped, human_bytes, table};
use proto::admin::*;
use std::fmt::Write;

/// Returns a table below its head; `none` where it has no rows.
pub(super) fn with_head<const N: usize>(head: [&str; N], rows: Vec<[String; N]>, none: &str) -> String {
    if rows.is_empty() {
        return format!("{none}\n");
    }
    table(&[vec![head.map(str::to_owned)], rows].concat())
}

/// Returns a number of its unit, or nothing where it is not known.
fn known(value: f64, unit: &str) -> String {
    if value > 0.0 { format!("{value:.1} {unit}") } else { "-".to_owned() }
}

fn latency(us: f64) -> String {
    if us < 10.0 { format!("{us:.2} us") } else { format!("{us:.1} us") }
}

/// Lists workers, one a line.
pub(super) fn workers(workers: &[Worker]) -> String {
    let row = |worker: &Worker| {
        let used = worker.blocks_total.saturating_sub(worker.blocks_available);
        let running = match worker.running_max {
            0 => worker.running.to_string(),
            most => format!("{}/{most}", worker.running),
        };
        [
            format!("w{}", worker.id),
            worker.name.clone(),
            role_name(worker.role),
            worker_state_name(worker.state),
            running,
            worker.waiting.to_string(),
            grouped(worker.waiting_tokens),
            format!("{}/{}", grouped(used.into()), grouped(worker.blocks_total.into())),
            known(f64::from(worker.prefill_tokens_per_s), "tok/s"),
            known(f64::from(worker.decode_step_s) * 1e3, "ms"),
            if worker.tiers.is_empty() { "-".to_owned() } else { worker.tiers.join(",") },
            worker.address.clone(),
        ]
    };
    let head = [
        "ID",
        "NAME",
        "ROLE",
        "STATE",
        "RUNS",
        "WAITS",
        "TOKENS DUE",
        "BLOCKS USED",
        "PREFILL",
        "STEP",
        "TIERS",
        "ADDRESS",
    ];
    with_head(head, workers.iter().map(row).collect(), "no worker is up")
}

/// Lists lanes, each with the reasons against faster ones below it.
pub(super) fn lanes(answer: &ListLanesResponse) -> String {
    let row = |lane: &Lane| {
        let expected = lane.expected_bytes_per_s.map_or("-".to_owned(), |expected| known(expected / 1e9, "GB/s"));
        [
            lane.worker_name.clone(),
            lane.peer_name.clone(),
            format!(
                "{}{}{}",
                lane.lane,
                if lane.encrypted { "+tls" } else { "" },
                if lane.staged.is_empty() { "" } else { "+staged" }
            ),
            known(lane.bytes_per_s / 1e9, "GB/s"),
            expected,
            latency(lane.latency_s * 1e6),
        ]
    };
    let head = ["READER", "READS FROM", "LANE", "SPEED", "EXPECTED", "LATENCY"];
    let none = "no worker reads from another one: they connect when they first hand something over";
    let mut text = with_head(head, answer.lanes.iter().map(row).collect(), none);
    for lane in &answer.lanes {
        if !lane.staged.is_empty() {
            writeln!(text, "{} from {}: staged {}", lane.worker_name, lane.peer_name, lane.staged)
                .expect("a text takes all");
        }
        for PassedOver { lane: passed, reason } in &lane.passed_over {
            writeln!(text, "{} from {}: not {passed}: {reason}", lane.worker_name, lane.peer_name)
                .expect("a text takes all");
        }
    }
    text + &silent(&answer.silent)
}

/// Lists the places of KV.
pub(super) fn tiers(answer: &ListTiersResponse) -> String {
    let row = |tier: &Tier| {
        let looked = tier.hits + tier.misses;
        let hits =
            if looked == 0 { "-".to_owned() } else { format!("{:.0}%", tier.hits as f64 * 100.0 / looked as f64) };
        [
            tier.worker_name.clone(),
            tier.tier.clone(),
            if tier.open { "open" } else { "failed" }.to_owned(),
            human_bytes(tier.bytes),
            format!("{}/{}", grouped(tier.blocks), grouped(tier.blocks_max)),
            if tier.tier == "device" { grouped(tier.pinned) } else { "-".to_owned() },
            grouped(tier.hits),
            hits,
            grouped(tier.evictions),
        ]
    };
    let head = ["WORKER", "TIER", "STATE", "HOLDS", "BLOCKS", "PINNED", "HITS", "HIT RATE", "EVICTED"];
    with_head(head, answer.tiers.iter().map(row).collect(), "no worker is up") + &silent(&answer.silent)
}

/// Names the workers that did not answer, one a line.
pub(super) fn silent(silent: &[Silence]) -> String {
    silent.iter().map(|Silence { worker, why }| format!("{worker} did not answer: {why}\n")).collect()
}

/// Lists models.
pub(super) fn models(models: &[Model]) -> String {
    let row = |model: &Model| {
        let number = |number: u32| if number == 0 { "-".to_owned() } else { grouped(number.into()) };
        [
            model.name.clone(),
            number(model.context_tokens),
            number(model.block_tokens),
            human_bytes(model.token_bytes),
            model.layers.to_string(),
            grouped(model.hidden.into()),
            grouped(model.vocab.into()),
            model.weights.chars().take(12).collect(),
            if model.batch_invariant { "yes" } else { "no" }.to_owned(),
        ]
    };
    let head = ["NAME", "CONTEXT", "BLOCK", "KV/TOKEN", "LAYERS", "WIDTH", "VOCABULARY", "WEIGHTS", "BATCH-INVARIANT"];
    with_head(head, models.iter().map(row).collect(), "no model is served")
}

/// Lists open requests.
pub(super) fn requests(requests: &[Request]) -> String {
    let row = |request: &Request| {
        let or_none = |name: &String| if name.is_empty() { "-".to_owned() } else { name.clone() };
        [
            request.id.clone(),
            request_state_name(request.state),
            or_none(&request.prefill_name),
            or_none(&request.decode_name),
            grouped(request.prompt_tokens.into()),
            grouped(request.output_tokens.into()),
            format!("{:.1} s", request.age_ms / 1e3),
            request.attempts.to_string(),
            or_none(&request.waits_for),
        ]
    };
    let head = ["REQUEST", "STATE", "PREFILL", "DECODE", "PROMPT", "TOKENS", "AGE", "TRIES", "WAITS FOR"];
    with_head(head, requests.iter().map(row).collect(), "no request is open")
}

/// Says what requests and threads wait for, and what a worker does.
pub(super) fn dump(answer: &DumpResponse) -> String {
    let mut text: String = answer.unanswered.iter().map(|unanswered| format!("{unanswered}\n")).collect();
    // Where those did not answer that know the requests, it is not known that there are none.
    if answer.unanswered.is_empty() || !answer.requests.is_empty() {
        text += &requests(&answer.requests);
    }
    text += &answer.worker.as_ref().map(worker_dump).unwrap_or_default();
    text + &threads(answer)
}

/// Lists the threads of the process that answered.
fn threads(answer: &DumpResponse) -> String {
    let row = |thread: &Thread| {
        let or_none = |text: &String| if text.is_empty() { "-".to_owned() } else { text.clone() };
        let says = !thread.doing.is_empty();
        [
            thread.id.to_string(),
            thread.name.clone(),
            or_none(&thread.state),
            format!("{:.1} s", thread.cpu_s),
            if says { format!("{:.1} s", thread.doing_ms / 1e3) } else { "-".to_owned() },
            or_none(&thread.doing),
            or_none(&thread.kernel),
        ]
    };
    let head = ["ID", "THREAD", "STATE", "CPU", "FOR", "DOES", "IN THE KERNEL"];
    let all = with_head(head, answer.threads.iter().map(row).collect(), "no thread is known");
    let more = match answer.threads_left_out {
        0 => String::new(),
        more => format!("{more} more threads are not listed\n"),
    };
    format!("\nthreads of process {}:\n{all}{more}", answer.process)
}

/// Says what a worker does.
fn worker_dump(worker: &WorkerDump) -> String {
    let mut text = String::new();
    let WorkerDump { worker_name, attempts, sizes, in_step, leases, sessions, backlog_bytes, .. } = worker;
    let backlog = human_bytes(*backlog_bytes);
    write!(
        text,
        "\n{worker_name}: {in_step} sequences in the step in flight, {leases} leases, {sessions} sessions, {backlog} wait \
         for routers\n\n"
    )
    .expect("a text takes all");
    let rows = attempts.iter().map(|attempt| {
        let waits_for = attempt.waits_for.join("; ");
        [
            format!("{}/e{}", attempt.request, attempt.epoch),
            format!("{:.1} s", attempt.age_ms / 1e3),
            attempt.part.clone(),
            if waits_for.is_empty() { "-".to_owned() } else { waits_for },
        ]
    });
    text += &with_head(["ATTEMPT", "AGE", "PART", "WAITS FOR"], rows.collect(), "no attempt is open");
    let rows = sizes.iter().filter(|size| size.entries > 0).map(|size| [size.name.clone(), grouped(size.entries)]);
    text.push('\n');
    text + &with_head(["LIST", "ENTRIES"], rows.collect(), "every list is empty")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_a_table_with_units() {
        let worker = Worker {
            id: 7,
            name: "decode-1".to_owned(),
            role: Role::Decode.into(),
            state: WorkerState::Draining.into(),
            running: 3,
            running_max: 64,
            waiting: 1,
            waiting_tokens: 12_345,
            blocks_total: 2000,
            blocks_available: 500,
            prefill_tokens_per_s: 900.0,
            tiers: vec!["device".to_owned(), "host".to_owned()],
            address: "10.0.0.1:9001".to_owned(),
            ..Worker::default()
        };
        let expect = "\
ID  NAME      ROLE    STATE     RUNS  WAITS  TOKENS DUE  BLOCKS USED  PREFILL      STEP  TIERS        ADDRESS
w7  decode-1  decode  draining  3/64  1      12,345      1,500/2,000  900.0 tok/s  -     device,host  10.0.0.1:9001
";
        assert_eq!(workers(&[worker]), expect);
        assert_eq!(workers(&[]), "no worker is up\n");
    }

    #[test]
    fn a_dump_lists_threads_and_names_what_did_not_answer() {
        let thread = |id, name: &str, doing: &str| Thread {
            id,
            name: name.to_owned(),
            state: "sleeping".to_owned(),
            cpu_s: 1.25,
            doing: doing.to_owned(),
            doing_ms: if doing.is_empty() { 0.0 } else { 61_500.0 },
            ..Thread::default()
        };
        let kernel = "futex_wait_queue".to_owned();
        let answer = DumpResponse {
            threads: vec![thread(8, "d1", "handles events"), Thread { kernel, ..thread(9, "other", "") }],
            threads_left_out: 3,
            unanswered: vec!["the step loop did not answer for 2000 ms".to_owned()],
            process: 7,
            ..DumpResponse::default()
        };
        let expect = "\
the step loop did not answer for 2000 ms

threads of process 7:
ID  THREAD  STATE     CPU    FOR     DOES            IN THE KERNEL
8   d1      sleeping  1.2 s  61.5 s  handles events  -
9   other   sleeping  1.2 s  -       -               futex_wait_queue
3 more threads are not listed
";
        assert_eq!(dump(&answer), expect);
        let at_rest = dump(&DumpResponse { unanswered: Vec::new(), ..answer });
        assert!(at_rest.starts_with("no request is open\n\nthreads of process 7:\n"), "{at_rest}");
    }

    #[test]
    fn who_did_not_answer_is_named_below() {
        let tier = Tier {
            worker_name: "p".to_owned(),
            tier: "disk".to_owned(),
            bytes: 3 << 20,
            blocks: 12,
            blocks_max: 4096,
            hits: 1,
            misses: 3,
            ..Tier::default()
        };
        let silent = vec![Silence { worker: "d".to_owned(), why: "it stands still".to_owned() }];
        let expect = "\
WORKER  TIER  STATE   HOLDS  BLOCKS    PINNED  HITS  HIT RATE  EVICTED
p       disk  failed  3 MiB  12/4,096  -       1     25%       0
d did not answer: it stands still
";
        assert_eq!(tiers(&ListTiersResponse { tiers: vec![tier], silent }), expect);
    }

    #[test]
    fn a_lane_says_why_no_faster_one() {
        let lane = Lane {
            worker_name: "d".to_owned(),
            peer_name: "p".to_owned(),
            lane: "tcp".to_owned(),
            staged: "from the peer's device 0".to_owned(),
            bytes_per_s: 2.5e9,
            latency_s: 2e-5,
            passed_over: vec![PassedOver { lane: "rdma".to_owned(), reason: "no device".to_owned() }],
            ..Lane::default()
        };
        let expect = "\
READER  READS FROM  LANE        SPEED     EXPECTED  LATENCY
d       p           tcp+staged  2.5 GB/s  -         20.0 us
d from p: staged from the peer's device 0
d from p: not rdma: no device
";
        assert_eq!(lanes(&ListLanesResponse { lanes: vec![lane], silent: Vec::new() }), expect);
    }
}
