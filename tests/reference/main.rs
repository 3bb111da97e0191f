//! The CPU device against Hugging Face transformers: the same logits and the same greedy tokens. `make.py` makes the
//! goldens and says what they hold.

mod cases;
mod chat_model;
mod chats;
mod formats;
mod gguf;
mod gguf_writer;
mod golden;
mod greedy;
mod quantised;
mod run;

use cases::Case;
use domain::Dtype;
use engine::cpu::CpuModel;
use engine::models::config::Config;
use engine::models::tensors::tensors;
use engine::models::{ModelFiles, read_spec};
use engine::spec::{Activation, Attention, ModelSpec, RopeScaling, Yarn};
use golden::{Golden, folder};
use run::{Cut, Outcome, Run};
use std::sync::Arc;
use tempfile::TempDir;

/// Error that f32 models may have, as a share of the largest absolute logit.
const TOLERANCE_F32: f32 = 1e-4;

/// Prompts are longer than each chunk but the last (which some exceed as well), than each block and than each
/// window, and multiples of none. One has one step in flight, and one has guarded pools.
const CUTS: [Cut; 3] = [
    Cut { steps_in_flight: 1, ..Cut::new(16, 16, 1) },
    Cut { guarded: true, ..Cut::new(64, 64, 2) },
    Cut::new(512, 32, 2),
];

fn with_checkpoint(case: &Case, body: impl FnOnce(&ModelFiles)) {
    let dir = TempDir::new().expect("a directory");
    case.write(dir.path());
    body(&ModelFiles::load(dir.path()).unwrap_or_else(|error| panic!("{}: {error}", case.name)));
}

/// The model `name`: a case, or a folder that transformers saved.
fn with_model(name: &str, body: impl FnOnce(&ModelFiles)) {
    match Case::all().into_iter().find(|case| case.name == name) {
        Some(case) => with_checkpoint(&case, body),
        None => body(&ModelFiles::load(&folder().join(name)).expect("there is such a case or folder")),
    }
}

/// The model computes what transformers computed, in chunks of every size, and the same bits in all of them.
fn check(name: &str, files: &ModelFiles) {
    let golden = Golden::read(name);
    let allowed = golden.transformers_error.unwrap_or(TOLERANCE_F32 * golden.largest());
    let outcomes = CUTS.map(|cut| {
        let outcome = run(files.spec.clone(), files, &golden, cut);
        let error = largest_error(&golden, &outcome);
        println!("{name}, {cut:?}: error {error:.1e} of {:.1}, allowed {allowed:.1e}", golden.largest());
        assert!(error <= allowed, "{name}, {cut:?}: error {error:e}, allowed {allowed:e}");
        if files.spec.dtype == Dtype::F32 {
            let last = golden.prompt.len() as u32 - 1;
            let tokens: Vec<_> = outcome.range(last..).map(|(_, (_, token))| *token).collect();
            assert_eq!(tokens, golden.generated, "{name}, {cut:?}");
        }
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

/// Runs the golden's prompt and tokens through the model that `spec` says, with the weights of `files`.
fn run(spec: ModelSpec, files: &ModelFiles, golden: &Golden, cut: Cut) -> Outcome {
    let model = CpuModel::load(spec, &files.checkpoint, &mut |_| {}).expect("the model loads");
    let decoded = &golden.generated[..golden.generated.len() - 1];
    let mut run = Run::new(Arc::new(model), golden.prompt.len() + decoded.len(), cut);
    run.sequence(&golden.prompt, decoded, cut.chunk)
}

/// The largest absolute error of a logit, over all kept positions after the prompt and those in it that end a chunk.
fn largest_error(golden: &Golden, outcome: &Outcome) -> f32 {
    let mut error = 0_f32;
    for (position, expected) in golden.positions.iter().zip(&golden.logits) {
        let (logits, _) = outcome.get(position).unwrap_or_else(|| panic!("no logits at position {position}"));
        assert_eq!(logits.len(), expected.len());
        for (ours, theirs) in logits.iter().zip(expected) {
            assert!(ours.is_finite(), "{ours} at position {position}");
            error = error.max((ours - theirs).abs());
        }
    }
    error
}

#[test]
fn random_models_of_every_family_compute_what_transformers_computes() {
    for case in Case::all() {
        with_checkpoint(&case, |files| check(&case.name, files));
    }
}

#[test]
fn models_that_transformers_saved_compute_what_transformers_computes() {
    // The last two read images too: there is more in them than what is served.
    for (name, eos, others) in
        [("saved", &[2, 3][..], false), ("saved-gemma3", &[1, 106], true), ("saved-mistral3", &[2], true)]
    {
        let files = ModelFiles::load(&folder().join(name)).expect("it loads");
        assert!(files.checkpoint.files() > 1, "{name}");
        assert_eq!(files.spec.eos, eos, "{name}");
        assert_eq!(files.checkpoint.other_parts().tensors > 0, others, "{name}");
        let served: Vec<&str> = files.checkpoint.names().collect();
        let mut asked: Vec<String> = tensors(&files.spec).into_iter().map(|tensor| tensor.name).collect();
        asked.sort();
        assert_eq!(served, asked, "{name}");
        check(name, &files);
    }
}

#[test]
fn a_setting_that_is_slightly_wrong_is_noticed() {
    type Mutation = fn(&mut ModelSpec);
    let mutations: [(&str, Mutation); 20] = [
        ("mistral-window-f32", |spec| spec.attention.fill(Attention::Window(25))),
        ("qwen2-window-f32", |spec| spec.attention.swap(1, 2)),
        ("llama3-f32", |spec| spec.ropes.iter_mut().for_each(|rope| rope.scaling = RopeScaling::None)),
        ("llama-yarn-f32", |spec| with_yarn(spec, |yarn| yarn.magnitude = 1.0)),
        ("llama-yarn-f32", |spec| with_yarn(spec, |yarn| yarn.whole_pairs = true)),
        ("llama-yarn-f32", |spec| with_yarn(spec, |yarn| yarn.fast_turns = 5.0)),
        ("qwen3-yarn-f32", |spec| with_yarn(spec, |yarn| yarn.factor = 4.1)),
        // What a base for the longest sequence would be.
        ("llama-dynamic-f32", |spec| spec.ropes.iter_mut().for_each(|rope| rope.theta *= 3f64.powf(16.0 / 14.0))),
        ("ministral3-yarn-f32", |spec| spec.query_growth = None),
        ("saved-gemma3", |spec| spec.ropes[5].scaling = RopeScaling::None),
        ("qwen3-wide-f32", |spec| spec.norm_eps *= 10.0),
        ("gemma2-window-f32", |spec| spec.attention_cap = None),
        ("gemma2-window-f32", |spec| spec.logits_cap = Some(10.1)),
        ("gemma2-window-f32", |spec| spec.activation = Activation::Silu),
        ("gemma3-window-f32", |spec| spec.ropes.swap(0, 1)),
        ("gemma3-window-f32", |spec| spec.attention_scale *= 1.01),
        ("phi3-longrope-f32", |spec| spec.ropes.iter_mut().for_each(|rope| rope.scaling = short_factors())),
        ("olmo2-wide-f32", |spec| spec.norm_eps *= 10.0),
        ("granite-bias-f32", |spec| spec.residual_scale *= 1.01),
        ("granite-bias-f32", |spec| spec.embedding_scale *= 1.01),
    ];
    for (name, mutate) in mutations {
        with_model(name, |files| {
            let golden = Golden::read(name);
            let mut spec = files.spec.clone();
            mutate(&mut spec);
            let error = largest_error(&golden, &run(spec, files, &golden, CUTS[0]));
            let allowed = TOLERANCE_F32 * golden.largest();
            assert!(error > 2.0 * allowed, "{name}: error {error:e}, allowed {allowed:e}");
        });
    }
}

/// Changes YaRN's scaling in all layers.
fn with_yarn(spec: &mut ModelSpec, change: fn(&mut Yarn)) {
    for rope in &mut spec.ropes {
        if let RopeScaling::Yarn(yarn) = &mut rope.scaling {
            change(yarn);
        }
    }
}

/// The factors of the shape `tiny-longrope` that transformers takes for sequences within the original context.
fn short_factors() -> RopeScaling {
    RopeScaling::Long { factors: (0..6).map(|pair| 1.0 + 0.125 * f64::from(pair)).collect(), magnitude: 1.0 }
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
