//! The times have the right orders of magnitude, and grow as they should.

use super::rig::{known, layout, plan, span};
use crate::sim::{CostModel, Preset, StepTime};
use domain::plan::{Span, StepPlan};
use std::time::Duration;

fn cost(name: &str) -> (CostModel, u16) {
    let preset = Preset::named(name).expect("a preset");
    (CostModel::new(preset), preset.shape.layers)
}

/// Seconds of a step of these spans.
fn seconds(name: &str, spans: Vec<Span>) -> f64 {
    let (cost, layers) = cost(name);
    cost.step(&plan(&layout(None), 1, spans)).total(layers).as_secs_f64()
}

fn prefill(start: u32, rows: u32) -> Span {
    span(start, known(&vec![1; rows as usize]), None)
}

fn decode(context: u32) -> Span {
    span(context - 1, known(&[1]), Some(1))
}

#[test]
fn decoding_alone_waits_for_memory() {
    // The weights that a step reads: 15 GB in bf16 of 8B, 71 GB in fp8 of 70B (and bf16 of its output projection).
    for (name, bytes, memory) in
        [("h100-8b", 15.0e9, 3.35e12), ("h200-8b", 15.0e9, 4.8e12), ("h100-70b", 70.6e9, 3.35e12)]
    {
        let (alone, at_best) = (seconds(name, vec![decode(100)]), bytes / memory);
        assert!((1.3..1.6).contains(&(alone / at_best)), "{name}: {alone} s, {at_best} s at best");
    }
    let batch = |rows: usize| seconds("h100-8b", vec![decode(100); rows]);
    assert!(batch(64) < 1.1 * batch(1), "64 rows read the weights once");
    assert!(batch(1024) > 2.0 * batch(1), "1,024 rows compute");
}

#[test]
fn decoding_reads_the_kv_of_its_contexts() {
    let (_, layers) = cost("h100-8b");
    let added = seconds("h100-8b", vec![decode(100_000); 8]) - seconds("h100-8b", vec![decode(1); 8]);
    // 4,096 bytes a token and layer.
    let at_best = 8.0 * 99_999.0 * 4096.0 * f64::from(layers) / 3.35e12;
    assert!((1.3..1.6).contains(&(added / at_best)), "{added} s, {at_best} s at best");
}

#[test]
fn a_prompt_computes_and_grows_faster_than_its_length() {
    let of = |tokens| seconds("h100-8b", vec![prefill(0, tokens)]);
    // Two operations a weight and token, 7.0e9 weights in the layers.
    let at_best = 2.0 * 7.0e9 * 2048.0 / 989.4e12;
    assert!((1.5..2.0).contains(&(of(2048) / at_best)), "{} s, {at_best} s at best", of(2048));
    assert!(of(16_384) > 2.05 * of(8192) && of(65_536) > 2.5 * of(32_768));
    let chunked: f64 = (0..4).map(|chunk| seconds("h100-8b", vec![prefill(chunk * 4096, 4096)])).sum();
    assert!((chunked / of(16_384) - 1.0).abs() < 0.01, "chunks compute what the whole computes");
    assert!(seconds("h100-8b", vec![prefill(50_000, 512)]) > 1.5 * seconds("h100-8b", vec![prefill(0, 512)]));
    assert!(seconds("h100-70b", vec![prefill(0, 2048)]) > 4.0 * of(2048), "fp8 halves what ten times the weights cost");
}

#[test]
fn a_step_is_the_sum_of_its_layers() {
    let (cost, layers) = cost("h200-70b");
    let time = cost.step(&plan(&layout(None), 1, vec![prefill(64, 512), decode(2000)]));
    assert!(time.layer_written < time.layer / 5, "K and V come first in a layer");
    assert!(time.written(0) > time.before);
    assert_eq!(time.written(layers - 1) + (time.layer - time.layer_written) + time.after, time.total(layers));
    assert!(time.at_speed(4.0).total(layers).abs_diff(time.total(layers) / 4) < Duration::from_micros(1));
    assert_eq!(time.at_speed(0.0), StepTime::default());
    assert_eq!(cost.step(&StepPlan::default()).total(layers), cost.step(&StepPlan::default()).before);
}

#[test]
fn presets_have_names() {
    for name in Preset::names() {
        assert_eq!(Preset::named(name).map(|preset| preset.name), Some(name));
    }
    assert_eq!(Preset::named("h100"), None);
}
