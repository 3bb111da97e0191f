//! How many kernels a step launches, in each layer and outside of layers: a committed table, by what a family has.

use super::{Models, greedy, span};
use domain::Dtype;
use engine::random::{RandomSpec, Shape};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use tests_cuda::Emulator;

/// Tells the test that it shall write the table.
const WRITE: &str = "WRITE_TABLE";

/// The table.
const TABLE: &str = "../../cuda/kernels/launches.md";

/// What families have that launches may depend on, with one that has it.
const KINDS: [(&str, &str, bool); 9] = [
    ("dense (Llama, Mistral, Ministral)", "llama", false),
    ("biases (Qwen2)", "qwen2", true),
    ("norms of heads (Qwen3)", "qwen3", false),
    ("norms of whole queries and keys, norms behind (OLMo 2)", "olmo2", false),
    ("windows, caps, norms before and behind (Gemma 2)", "gemma2", false),
    ("windows, norms of heads, before and behind (Gemma 3)", "gemma3_text", false),
    ("joined projections (Phi-3)", "phi3", false),
    ("scales (Granite)", "granite", false),
    ("growing queries (Ministral 3)", "ministral3", false),
];

/// Layers of the two models whose difference is that of some layers.
const LAYERS: [usize; 2] = [2, 4];

/// Launches by kernel.
type Launches = BTreeMap<String, u64>;

/// Launches of a step that decodes a row, and of one that computes a prompt, both with a greedy sample.
fn launches(family: &str, biases: bool, layers: usize, emulator: &Emulator) -> [Launches; 2] {
    let shape = if family == "ministral3" { "tiny-64-yarn" } else { "tiny-64" };
    let spec = RandomSpec::named(family, shape, 5, Some(Dtype::Bf16)).expect("a named shape");
    let shape: &'static Shape = Box::leak(Box::new(Shape { layers, biases, ..*spec.shape }));
    let models = Models::of_shape(RandomSpec { shape, ..spec }).expect("the emulator has a card");
    let mut run = models.on_card();
    let tokens = models.tokens(4, 1);
    let mut params = greedy();
    params.logprobs = None;
    let mut step = |start: usize, end: usize| {
        let before = emulator.launches();
        let output = run.run(vec![span(1, start, &tokens[start..end], Some(params.clone()))]);
        output.sampled.expect("the step ran");
        let of = |name: &str| before.get(name).copied().unwrap_or(0);
        let all = emulator.launches().into_iter().map(|(name, count)| (name.clone(), count - of(&name)));
        all.filter(|(_, count)| *count > 0).collect::<Launches>()
    };
    // The first step of a sequence brings its table; the second one is all decoding.
    let prompt = step(0, 3);
    [step(3, 4), prompt]
}

/// Returns the launches of a layer, by kernel, and those outside of layers.
fn by_layer([few, many]: [&Launches; 2]) -> (BTreeMap<&str, f64>, BTreeMap<&str, f64>) {
    let (mut inside, mut outside) = (BTreeMap::new(), BTreeMap::new());
    for (name, &count) in many {
        let less = few.get(name).copied().unwrap_or(0) as f64;
        let each = (count as f64 - less) / (LAYERS[1] - LAYERS[0]) as f64;
        let rest = less - each * LAYERS[0] as f64;
        for (to, number) in [(&mut inside, each), (&mut outside, rest)] {
            if number != 0.0 {
                to.insert(name.as_str(), number);
            }
        }
    }
    (inside, outside)
}

/// Writes kernels with how often each is launched.
fn list(kernels: &BTreeMap<&str, f64>) -> String {
    let each = kernels.iter().map(|(name, &count)| match count {
        1.0 => (*name).to_owned(),
        _ => format!("{count} x {name}"),
    });
    each.collect::<Vec<_>>().join(", ")
}

#[test]
#[expect(clippy::disallowed_methods, reason = "make tells a test through the environment that it shall write")]
fn steps_launch_what_is_written_down() {
    let Some(emulator) = Emulator::find() else {
        return println!("skipped: the emulator alone counts launches; `make test-cuda` has it");
    };
    let mut table = String::from(HEAD);
    for (kind, family, biases) in KINDS {
        let [few, many] = LAYERS.map(|layers| launches(family, biases, layers, emulator));
        for (at, step) in ["decode", "prompt"].into_iter().enumerate() {
            let (inside, outside) = by_layer([&few[at], &many[at]]);
            let count = |kernels: &BTreeMap<&str, f64>| kernels.values().sum::<f64>();
            let (in_layer, rest) = (count(&inside), count(&outside));
            writeln!(table, "| {kind} | {step} | {in_layer} | {rest} | {} | {} |", list(&inside), list(&outside))
                .expect("a text");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    if std::env::var_os(WRITE).is_some() {
        return std::fs::write(path, table).expect("the table can be written");
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(committed, table, "the table is stale: look at what changed, then run `make fix-cuda-launches`");
}

/// What stands before the rows.
const HEAD: &str = "\
# What a step launches

`make fix-cuda-launches` writes this page, with the emulator. It has the kernels of a step of one sequence with a greedy
sample: in each layer, and outside of layers. A prompt's step also brings its block table. A decoding step is one launch
of a graph, and that of its samples; the graph's kernels are counted one by one.

| what a family has | step | in a layer | outside | kernels of a layer | kernels outside |
| --- | --- | --- | --- | --- | --- |
";
