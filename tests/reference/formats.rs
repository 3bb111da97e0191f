//! One small model in every number format of GGUF: what transformers decodes with the widened weights.

use crate::gguf::MIXED_TOLERANCE;
use crate::golden::folder;
use crate::greedy::Greedy;
use crate::run::Cut;
use domain::Dtype;
use engine::cpu::CpuModel;
use engine::models::ModelFiles;
use engine::quant::Repacked;
use engine::spec::ModelSpec;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const CUT: Cut = Cut::new(16, 16, 2);

/// Formats whose weights are multiplied as the file has them: natively, or repacked without a loss. The others change
/// when they are repacked, so that their tokens are counted and not required.
const EXACT: [&str; 6] = ["Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K"];
/// The largest error of a lead beside transformers, as a share of the largest logit; see [`MIXED_TOLERANCE`]. The
/// leads of the goldens are larger.
const ERROR_MAX: f32 = MIXED_TOLERANCE;
/// The same of exact formats beside transformers with rounded activations: the order of sums.
const ROUNDED_ERROR_MAX: f32 = 1e-4;

/// What transformers decoded with the model in one format.
#[derive(Debug, Deserialize)]
struct Golden {
    /// The largest logit.
    largest: f32,
    #[serde(flatten)]
    greedy: Greedy,
}

#[test]
fn every_format_decodes_what_transformers_decodes() {
    let goldens = std::fs::read(folder().join("formats/goldens.json")).expect("make_formats.py made it");
    let goldens: BTreeMap<String, Golden> = serde_json::from_slice(&goldens).expect("make_formats.py made it");
    let native = ["Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K"].map(str::to_owned);
    let formats: BTreeSet<String> = native.into_iter().chain(Repacked::ALL.map(|it| it.to_string())).collect();
    assert!(formats.iter().eq(goldens.keys()), "{formats:?} are read, {:?} have goldens", goldens.keys());
    for (name, Golden { largest, greedy }) in goldens {
        let files = ModelFiles::load(&folder().join(format!("formats/{name}.gguf"))).expect("it loads");
        assert!(files.describe().formats.iter().any(|share| share.format == name), "{name} is in its file");
        // The cache is not to round.
        let spec = ModelSpec { dtype: Dtype::F32, ..files.spec.clone() };
        let model = CpuModel::load(spec, &files.checkpoint, &mut |_| {}).expect("it loads");
        let distance = greedy.distance(&Arc::new(model), CUT);
        let [error, rounded_error] = [distance.error, distance.rounded_error].map(|error| error / largest);
        let (other, steps) = (distance.other, distance.steps);
        println!("{name}: {other} of {steps} tokens differ; errors {error:.1e}, {rounded_error:.1e} beside rounded");
        assert!(error <= ERROR_MAX, "{name}: {distance:?}, {largest}");
        if EXACT.contains(&name.as_str()) {
            assert_eq!(other, 0, "{name}: {distance:?}");
            assert!(rounded_error <= ROUNDED_ERROR_MAX, "{name}: {distance:?}, {largest}");
        }
    }
}
