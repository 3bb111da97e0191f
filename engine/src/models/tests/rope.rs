//! How frequencies are scaled.

use super::*;
use crate::spec::{QueryGrowth, Yarn};

#[test]
fn the_original_context_may_stand_outside_of_the_scaling() {
    let scaling = json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4});
    check_refused(
        "llama",
        json!({"rope_scaling": scaling}),
        &["rope_scaling.original_max_position_embeddings", "missing"],
    );
    let spec = spec("llama", json!({"rope_scaling": scaling, "original_max_position_embeddings": 256}));
    let scaling = &spec.ropes[0].scaling;
    assert!(matches!(scaling, RopeScaling::Llama3 { original_context: 256.0, .. }), "{scaling:?}");
}

/// YaRN of a Llama with `changes` to its config, and the model's context.
fn yarn(changes: Value) -> (Yarn, usize) {
    let spec = spec("llama", changes);
    match spec.ropes[0].scaling {
        RopeScaling::Yarn(yarn) => (yarn, spec.context),
        ref other => panic!("{other:?}"),
    }
}

/// The magnitude that YaRN has by its factor.
fn magnitude(factor: f64) -> f64 {
    1.0 + 0.1 * factor.ln()
}

#[test]
fn yarn_has_the_defaults_of_transformers() {
    let plain = Yarn {
        factor: 4.0,
        fast_turns: 32.0,
        slow_turns: 1.0,
        whole_pairs: true,
        original_context: 250.0,
        magnitude: magnitude(4.0),
    };
    let four = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 250, "finetuned": true});
    assert_eq!(yarn(json!({"rope_scaling": four})), (plain, 1000));
    let five = json!({"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "beta_fast": null, "mscale": 1.0});
    let outside = json!({"rope_parameters": five, "original_max_position_embeddings": 250});
    assert_eq!(yarn(outside), (plain, 1000));
    // The model's context is the original one where nothing says it. Its factor makes it longer.
    assert_eq!(yarn(json!({"rope_parameters": five})), (Yarn { original_context: 1000.0, ..plain }, 4000));
    // The factor is the share of both contexts where it is left out.
    let shared = json!({"rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 125}});
    let expected = Yarn { factor: 8.0, original_context: 125.0, magnitude: magnitude(8.0), ..plain };
    assert_eq!(yarn(shared), (expected, 1000));
}

#[test]
fn yarn_is_tuned_by_its_numbers() {
    let with = |changes: Value| {
        let mut scaling = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 250});
        scaling.as_object_mut().expect("it is one").extend(changes.as_object().expect("it is one").clone());
        json!({"rope_scaling": scaling})
    };
    let found = |changes| yarn(with(changes)).0;
    let tuned = found(json!({"beta_fast": 16, "beta_slow": 2, "truncate": false, "attention_factor": 1.25}));
    assert_eq!((tuned.fast_turns, tuned.slow_turns, tuned.whole_pairs, tuned.magnitude), (16.0, 2.0, false, 1.25));
    let relative = (1.0 + 0.2 * 4f64.ln()) / (1.0 + 0.05 * 4f64.ln());
    assert_eq!(found(json!({"mscale": 2.0, "mscale_all_dim": 0.5})).magnitude, relative);
    assert_eq!(found(json!({"mscale": 2.0, "mscale_all_dim": 0})).magnitude, magnitude(4.0));
    assert_eq!(found(json!({"factor": 0.5})).magnitude, 1.0);
    let refused = |changes, parts: &[&str]| check_refused("llama", with(changes), parts);
    refused(json!({"beta_fast": 1, "beta_slow": 2}), &["rope_scaling.beta_fast", "from beta_slow (2) on"]);
    refused(json!({"factor": -1}), &["rope_scaling.factor", "above 0"]);
    refused(json!({"truncate": "no"}), &["rope_scaling.truncate", "true or false"]);
    refused(json!({"original_max_position_embeddings": 0}), &["rope_scaling.original_max_position_embeddings"]);
    refused(json!({"extrapolation_factor": 0.5}), &["rope_scaling.extrapolation_factor", "0.5", "supported: 1"]);
}

#[test]
fn every_family_with_a_plain_embedding_takes_yarn() {
    // Gemma 3 scales layers without a window only.
    let scaling = json!({"rope_scaling": {"type": "yarn", "factor": 2.0}, "sliding_window_pattern": 2});
    for family in FAMILIES.into_iter().filter(|family| !["phi3", "ministral3"].contains(&family.model_type)) {
        let spec = spec(family.model_type, scaling.clone());
        assert!(spec.ropes.iter().any(|rope| matches!(rope.scaling, RopeScaling::Yarn(_))), "{}", family.model_type);
        assert_eq!(spec.context, 2000);
    }
    check_refused("phi3", scaling, &["rope_scaling.type", "yarn", "default, longrope"]);
}

#[test]
fn dynamic_scaling_has_no_effect_in_the_context_of_the_model() {
    let scaled = spec("llama", json!({"rope_scaling": {"type": "dynamic", "factor": 4.0}}));
    assert_eq!(scaled, spec("llama", json!({})));
    let missing = json!({"rope_parameters": {"rope_type": "dynamic"}});
    check_refused("llama", missing, &["rope_parameters.factor is missing"]);
    let alpha = json!({"rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0}});
    check_refused("llama", alpha, &["rope_scaling.alpha", "dynamic scaling by a factor alone"]);
}

#[test]
fn queries_of_ministral3_grow_by_their_position() {
    let scaling = json!({"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 100,
        "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1});
    let ministral = spec("ministral3", json!({"rope_parameters": scaling}));
    let growth = QueryGrowth { beta: 0.1, original_context: 100 };
    assert_eq!((ministral.query_growth, ministral.context, ministral.windows()), (Some(growth), 1600, vec![None; 4]));
    assert!(
        matches!(&ministral.ropes[0], Rope { theta: 1e6, scaling: RopeScaling::Yarn(yarn), .. } if yarn.magnitude == 1.0)
    );
    let at = [0, 99, 100, 299].map(|position| growth.at(position));
    assert_eq!(at, [1.0, 1.0, 1.0 + 0.1 * 2f32.ln(), 1.0 + 0.1 * 3f32.ln()]);
    let mut silent = scaling.clone();
    silent["llama_4_scaling_beta"] = json!(null);
    check_refused(
        "ministral3",
        json!({"rope_parameters": silent}),
        &["rope_parameters.llama_4_scaling_beta is missing"],
    );
    check_refused("ministral3", json!({}), &["rope_scaling.type", "default", "supported: yarn"]);
}

#[test]
fn numbers_of_llama3_are_in_order() {
    let low = json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
        "original_max_position_embeddings": 128});
    check_refused("llama", json!({"rope_parameters": low}), &["rope_parameters.high_freq_factor", "low_freq_factor"]);
}
