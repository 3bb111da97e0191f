//! The small chat model against transformers: the tokens of its chats, and their answers.
//!
//! Skipped where the model was not fetched.

use crate::chat_model::{GOLDENS, fetched};
use crate::greedy::{Distance, Greedy};
use crate::run::Cut;
use domain::{Dtype, Token};
use engine::checkpoint::Checkpoint;
use engine::cpu::CpuModel;
use engine::models::ModelFiles;
use engine::spec::{ModelSpec, RopeScaling};
use engine::text::{ChatTemplate, PromptEnd, SpecialTokens, Tokenizer};
use safetensors::tensor::TensorView;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const CUT: Cut = Cut::new(512, 32, 2);

/// The largest error of a lead with widened weights, where nothing is rounded to 8 bits: ten times what was measured.
const WIDENED_ERROR_MAX: f32 = 1e-3;
/// Steps of each chat that are computed with widened weights, which take five times the memory and the time.
const WIDENED_STEPS: usize = 12;
/// How much more the engine may err, typically, than transformers does with activations that are rounded to 8 bits.
const TYPICAL_ERROR_MAX: f64 = 1.25;
/// The largest error of a lead with the weights as they are. Rounding to 8 bits costs 0.16 typically, and 0.7 in one of
/// 596 steps.
const ERROR_MAX: f32 = 1.2;
/// The share of steps with another token than transformers', at most: near-ties, whose leads are below [`ERROR_MAX`].
/// It was 3.5% when this was written.
const OTHER_MAX: f64 = 0.06;

/// A chat, and what transformers makes of it.
#[derive(Debug, Deserialize)]
struct Chat {
    name: String,
    messages: Vec<Value>,
    text: String,
    #[serde(flatten)]
    greedy: Greedy,
}

fn chats() -> Vec<Chat> {
    #[derive(Deserialize)]
    struct Chats {
        chats: Vec<Chat>,
    }
    let Chats { chats } = serde_json::from_str(GOLDENS).expect("make_chats.py made it");
    chats
}

/// Loads the weights for a cache that does not round.
fn load(spec: &ModelSpec, checkpoint: &Checkpoint) -> Arc<CpuModel> {
    let spec = ModelSpec { dtype: Dtype::F32, ..spec.clone() };
    Arc::new(CpuModel::load(spec, checkpoint, &mut |_| {}).expect("it loads"))
}

/// Answers the chats, `steps` of each at most. Returns how far the answers are from transformers', and how many are
/// equal.
fn answer(model: &Arc<CpuModel>, steps: usize) -> (Distance, usize) {
    let (mut all, mut equal) = (Distance::default(), 0);
    for Chat { name, greedy, .. } in chats() {
        let distance = greedy.first(steps).distance(model, CUT);
        println!("{name}: {distance:.4?}");
        equal += usize::from(distance.other == 0);
        all.add(distance);
    }
    let [own, rounded] = all.typical_errors();
    println!("{equal} of {} answers are equal; {all:.4?}", chats().len());
    println!("typical error of a lead: {own:.4}; of transformers with rounded activations: {rounded:.4}");
    (all, equal)
}

#[test]
fn chats_become_the_tokens_that_transformers_makes_of_them() {
    let Some(path) = fetched() else { return };
    let template = ChatTemplate::open(&path).expect("it is valid").expect("there is one");
    let tokenizer = Tokenizer::open(&path).expect("it opens");
    let end: Token = tokenizer.eos().expect("the file names it");
    for Chat { name, messages, text, greedy } in chats() {
        let rendered = template.render(&messages, PromptEnd::Answer, &Map::new()).expect("it renders");
        assert_eq!(tokenizer.encode(&rendered, false).expect("it encodes"), greedy.prompt, "{name}");
        let said = greedy.answer.strip_suffix(&[end]).unwrap_or(&greedy.answer);
        assert_eq!(tokenizer.decode(said, SpecialTokens::Hidden), text, "{name}");
    }
}

#[test]
fn chats_are_answered_about_as_transformers_answers_them() {
    let Some(path) = fetched() else { return };
    let files = ModelFiles::load(&path).expect("it loads");
    let (all, _) = answer(&load(&files.spec, &files.checkpoint), usize::MAX);
    let [own, rounded] = all.typical_errors();
    assert!(own <= TYPICAL_ERROR_MAX * rounded, "typical errors of {own} and {rounded}");
    assert!(all.error <= ERROR_MAX && all.other_lead <= ERROR_MAX, "{all:?}");
    assert!(all.other as f64 <= OTHER_MAX * all.steps as f64, "{all:?}");
}

/// Writes the weights as f32.
fn widen(checkpoint: &Checkpoint, path: &Path) {
    let tensors: Vec<(&str, Vec<usize>, Vec<u8>)> = checkpoint
        .names()
        .map(|name| {
            let tensor = checkpoint.tensor(name).expect("it is there");
            let mut row_numbers = vec![0.0; tensor.width()];
            let mut bytes = Vec::with_capacity(tensor.shape.iter().product::<usize>() * size_of::<f32>());
            for row in tensor.rows(0..tensor.height()) {
                tensor.format.dequantise(&row, &mut row_numbers);
                row_numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
            }
            (name, tensor.shape.clone(), bytes)
        })
        .collect();
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (*name, TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes).expect("it has a number for each place"))
    });
    safetensors::serialize_to_file(views, None, path).expect("it is written");
}

/// What is left of the difference when nothing is rounded to 8 bits: the order of sums.
#[test]
fn with_widened_weights_chats_are_answered_as_transformers_answers_them() {
    let Some(path) = fetched() else { return };
    let files = ModelFiles::load(&path).expect("it loads");
    let dir = TempDir::new().expect("a directory");
    widen(&files.checkpoint, &dir.path().join("model.safetensors"));
    let widened = Checkpoint::open(dir.path()).expect("it opens");
    let (all, equal) = answer(&load(&files.spec, &widened), WIDENED_STEPS);
    assert!(all.error <= WIDENED_ERROR_MAX && all.other_lead <= WIDENED_ERROR_MAX, "{all:?}");
    assert_eq!(equal, chats().len());

    // A setting that is slightly wrong is noticed in one step.
    let mut wrong = files.spec.clone();
    wrong.ropes.iter_mut().for_each(|rope| rope.scaling = RopeScaling::Linear { factor: 1.01 });
    let distance = chats()[0].greedy.first(1).distance(&load(&wrong, &widened), CUT);
    assert!(distance.error > 2.0 * WIDENED_ERROR_MAX, "{distance:?}");
}
