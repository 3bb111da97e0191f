//! The CPU device against Hugging Face transformers: the same logits and the same greedy tokens. `make.py` makes the
//! goldens and says what they hold.

mod cases;
mod golden;
mod run;

use cases::Case;
use domain::Dtype;
use engine::cpu::CpuModel;
use engine::models::config::Config;
use engine::models::{ModelFiles, read_spec};
use golden::{Golden, folder};
use run::{Cut, Outcome, Run};
use std::sync::Arc;
use tempfile::TempDir;

/// Error that f32 models may have, as a share of the largest absolute logit.
const TOLERANCE_F32: f32 = 1e-4;

/// Prompts are longer than each chunk but the last (which some exceed as well), than each block and than each window, and
/// multiples of none.
const CUTS: [Cut; 3] = [
    Cut { chunk: 16, block_tokens: 16, threads: 1 },
    Cut { chunk: 64, block_tokens: 64, threads: 2 },
    Cut { chunk: 512, block_tokens: 32, threads: 2 },
];

fn with_checkpoint(case: &Case, body: impl FnOnce(&ModelFiles)) {
    let dir = TempDir::new().expect("a directory");
    case.write(dir.path());
    body(&ModelFiles::load(dir.path()).unwrap_or_else(|error| panic!("{}: {error}", case.name)));
}

/// The model computes what transformers computed, in chunks of every size, and the same bits in all of them.
fn check(name: &str, files: &ModelFiles) {
    let golden = Golden::read(name);
    let model = CpuModel::load(files.spec.clone(), &files.checkpoint, &mut |_| {}).expect("the model loads");
    let model = Arc::new(model);
    let decoded = &golden.generated[..golden.generated.len() - 1];
    let outcomes = CUTS.map(|cut| {
        let mut run = Run::new(model.clone(), golden.prompt.len() + decoded.len(), cut);
        let outcome = run.sequence(&golden.prompt, decoded, cut.chunk);
        check_outcome(&format!("{name}, {cut:?}"), files.spec.dtype, &golden, &outcome);
        outcome
    });
    for (cut, outcome) in CUTS.iter().zip(&outcomes).skip(1) {
        for (position, (logits, _)) in outcome {
            if let Some((first, _)) = outcomes[0].get(position) {
                assert!(logits == first, "{name}: position {position} depends on the chunks: {cut:?}, {:?}", CUTS[0]);
            }
        }
    }
}

fn check_outcome(run: &str, dtype: Dtype, golden: &Golden, outcome: &Outcome) {
    let (mut error, mut largest, mut compared) = (0_f32, 0_f32, 0);
    for (position, expected) in golden.positions.iter().zip(&golden.logits) {
        let Some((logits, _)) = outcome.get(position) else { continue };
        assert_eq!(logits.len(), expected.len(), "{run}");
        for (ours, theirs) in logits.iter().zip(expected) {
            assert!(ours.is_finite(), "{run}: {ours} at position {position}");
            error = error.max((ours - theirs).abs());
            largest = largest.max(theirs.abs());
        }
        compared += 1;
    }
    // All that follows the prompt, and what of the prompt is the end of a chunk.
    let prompt = golden.prompt.len() as u32;
    let ends = outcome.keys().filter(|position| golden.positions.contains(position)).count();
    let after = golden.positions.iter().filter(|position| **position >= prompt - 1).count();
    assert!(compared == ends && after > 10 && ends >= after, "{run}: {compared} positions compared");

    let allowed = golden.transformers_error.unwrap_or(TOLERANCE_F32 * largest);
    println!("{run}: error {error:.1e} of {largest:.1}, allowed {allowed:.1e}, {compared} positions");
    assert!(error <= allowed, "{run}: error {error:e}, allowed {allowed:e}");
    if dtype == Dtype::F32 {
        let tokens: Vec<_> = outcome.range(prompt - 1..).map(|(_, (_, token))| *token).collect();
        assert_eq!(tokens, golden.generated, "{run}");
    }
}

#[test]
fn random_models_of_every_family_compute_what_transformers_computes() {
    for case in Case::all() {
        with_checkpoint(&case, |files| check(&case.name, files));
    }
}

#[test]
fn a_model_that_transformers_saved_computes_what_transformers_computes() {
    let files = ModelFiles::load(&folder().join("saved")).expect("it loads");
    assert!(files.checkpoint.files() > 1);
    assert_eq!(files.spec.eos, [2, 3]);
    check("saved", &files);
}

#[test]
fn both_spellings_of_a_config_are_the_same_model() {
    for case in Case::all() {
        let golden = Golden::read(&case.name);
        let config = Config::parse(golden.config.to_string().as_bytes()).expect("it is an object");
        assert!(config.get("rope_parameters").is_some() && config.get("rope_theta").is_none(), "{}", case.name);
        let by_five = read_spec(&config, None).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        with_checkpoint(&case, |files| assert_eq!(files.spec, by_five, "{}", case.name));
    }
}
