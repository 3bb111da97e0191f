//! The declarations are well formed, and what is recorded is what is rendered.

use crate::logging::{self, LogError, LogFormat};
use crate::metrics::{self, BlockState, DECLARED, Kind, Outcome};
use crate::{ALIASES, lanes};
use ::metrics::Unit;
use domain::{End, Ender, GroupId, WorkerId};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn names_follow_the_conventions_of_prometheus() {
    let mut seen = HashSet::new();
    for metric in DECLARED {
        let name = metric.name;
        assert!(seen.insert(name), "{name} is declared twice");
        assert!(name.starts_with("baton_"), "{name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}: counters end in _total");
        assert!(metric.unit != Unit::Seconds || name.contains("_seconds"), "{name} names its unit");
        assert!(metric.unit != Unit::Bytes || name.contains("_bytes"), "{name} names its unit");
        assert!(metric.help.trim().ends_with('.'), "{name}: help is a sentence");
        assert!(metric.labels.len() <= 3, "{name}: every label multiplies the series");
        if let Kind::Histogram(buckets) = metric.kind {
            assert!(buckets.windows(2).all(|pair| pair[0] < pair[1]), "{name}: buckets rise");
        }
    }
}

#[test]
fn what_is_recorded_is_rendered() {
    let handle = crate::install();
    metrics::kv_blocks(WorkerId(3), GroupId(1), BlockState::InUse).set(7.0);
    metrics::requests(Outcome::Length).increment(2);
    metrics::step_overhead(WorkerId(3)).record(3e-6);
    crate::install().upkeep();
    let text = handle.render();
    for line in [
        r#"baton_kv_blocks{worker="w3",group="g1",state="in_use"} 7"#,
        r#"baton_requests_total{outcome="length"} 2"#,
        "# TYPE baton_requests_total counter",
        r#"baton_step_overhead_seconds_bucket{worker="w3",le="0.0000025"} 0"#,
        r#"baton_step_overhead_seconds_bucket{worker="w3",le="0.000005"} 1"#,
        r#"baton_step_overhead_seconds_count{worker="w3"} 1"#,
        concat!(r#"baton_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#),
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\nis not in\n{text}");
    }
    assert!(text.contains("# HELP baton_requests_total Requests that ended, by outcome."), "{text}");
}

#[test]
fn aliases_show_declared_metrics_under_names_that_others_read() {
    let handle = crate::install();
    metrics::fleet_waiting().set(3.0);
    metrics::inter_token().record(0.02);
    let _info = metrics::fleet_kv_info(16, 1024);
    let (plain, text) = (handle.render(), handle.render_with_aliases("a \"model\""));
    assert!(!plain.contains("vllm:"), "{plain}");
    for line in [
        "# TYPE vllm:num_requests_waiting gauge",
        r#"vllm:num_requests_waiting{model_name="a \"model\""} 3"#,
        "# TYPE vllm:inter_token_latency_seconds histogram",
        r#"vllm:inter_token_latency_seconds_bucket{model_name="a \"model\"",le="0.01"} 0"#,
        r#"vllm:time_per_output_token_seconds_count{model_name="a \"model\""} 1"#,
        r#"vllm:cache_config_info{model_name="a \"model\"",block_size="16",num_gpu_blocks="1024"} 0"#,
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\nis not in\n{text}");
    }
    // What is read otherwise is as it was, in whatever order.
    for line in plain.lines() {
        assert!(text.lines().any(|it| it == line), "{line}\nis not in\n{text}");
    }
    for alias in ALIASES {
        let metric = DECLARED.iter().find(|metric| metric.name == alias.of).expect("it is declared");
        assert!(alias.labels.iter().all(|(from, _)| metric.labels.contains(from)), "{alias:?}");
    }
}

#[test]
fn an_end_has_one_outcome() {
    assert_eq!(Outcome::of(&End::stop()), Outcome::Stop);
    assert_eq!(Outcome::of(&End::length()), Outcome::Length);
    assert_eq!(Outcome::of(&End::error(Ender::Limit, "late")), Outcome::Deadline);
    assert_eq!(Outcome::of(&End::error(Ender::Client, "gone")), Outcome::Client);
    assert_eq!(Outcome::of(&End::error(Ender::Us, "shutdown")), Outcome::Us);
    assert_eq!(Outcome::of(&End::error(Ender::Worker, "lost")), Outcome::Worker);
}

#[test]
fn a_filter_that_cannot_be_read_is_named() {
    let error = logging::init("info,router=loud", LogFormat::Text, false, None).expect_err("loud is no level");
    assert!(matches!(&error, LogError::Filter { filter, .. } if filter == "info,router=loud"), "{error}");
}

#[test]
fn a_series_is_shown_for_as_long_as_somebody_holds_it() {
    let handle = crate::install();
    let shown = |line: &str| handle.render().lines().any(|it| it == line);
    let taken = |peer: u32| metrics::lane_taken(WorkerId(7), WorkerId(peer), "tcp");
    let (first, again) = (taken(1), taken(1));
    first.set(1.0);
    let line = r#"baton_lane_taken{worker="w7",peer="w1",lane="tcp"} 1"#;
    assert!(shown(line) && shown("# TYPE baton_lane_taken gauge"));
    drop(first);
    assert!(shown(line), "there is another handle");
    drop(again);
    assert!(!handle.render().contains(r#"baton_lane_taken{worker="w7""#));
    let named = metrics::worker_name(WorkerId(7), "a \"b\"\\\n".to_owned());
    named.set(1.0);
    assert!(shown(r#"baton_worker_name{worker="w7",name="a \"b\"\\\n"} 1"#), "{}", handle.render());
}

#[test]
fn a_series_is_gone_also_where_its_last_handles_are_dropped_at_once() {
    let handle = crate::install();
    let taken = |peer: u32| metrics::lane_taken(WorkerId(9), WorkerId(peer), "tcp");
    let handles = [(); 2].map(|()| (0..20_000).map(taken).collect::<Vec<_>>());
    // A barrier would wake them one after the other.
    let dropping = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for series in handles {
            scope.spawn(|| {
                for (round, series) in series.into_iter().enumerate() {
                    dropping.fetch_add(1, Ordering::AcqRel);
                    let mut looks = 0;
                    while dropping.load(Ordering::Acquire) < 2 * (round + 1) {
                        looks += 1;
                        if looks % 1000 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
                    }
                    drop(series);
                }
            });
        }
    });
    let text = handle.render();
    assert_eq!(text.lines().filter(|line| line.starts_with(r#"baton_lane_taken{worker="w9""#)).count(), 0);
}

#[test]
fn reasons_are_told_until_they_are_dropped_or_others_take_their_place() {
    let (worker, peer) = (WorkerId(8), WorkerId(1));
    let first = lanes::Reasons::tell(worker, peer, vec![("shm", "another \"host\"".to_owned())]);
    let told = || {
        let all: serde_json::Value = serde_json::from_str(&lanes::render()).expect("it is JSON");
        let all = all.as_array().expect("a list").clone();
        all.into_iter().find(|pair| pair["worker"] == "w8").map(|pair| pair["passed_over"].to_string())
    };
    assert_eq!(told().as_deref(), Some(r#"[{"lane":"shm","reason":"another \"host\""}]"#));
    let second = lanes::Reasons::tell(worker, peer, Vec::new());
    drop(first);
    assert_eq!(told().as_deref(), Some("[]"));
    drop(second);
    assert_eq!(told(), None);
}
